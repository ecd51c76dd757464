"""Size of an installation: the guard and everything that it needs, without extras."""

from __future__ import annotations

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import guard
from guard.settings import models_directory, policies_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAME: Final = "agent-egress-guard"
BYTECODE: Final = frozenset({".pyc", ".pyo"})
MEGABYTE: Final = 1_000_000


def installed_sizes() -> dict[str, int]:
    """Return the bytes of every distribution that a plain installation has, bytecode left out.

    Distributions that are not installed here (for another system or interpreter) are not counted.
    """
    sizes = {NAME: _own_size()}
    waiting: list[tuple[str, frozenset[str]]] = [(NAME, frozenset())]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extras = waiting.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        sizes.setdefault(name, _size(found.locate_file(item) for item in found.files or ()))
        for needed, wanted in _needed(found, extras):
            fresh = {(needed, extra) for extra in (wanted or {""})} - seen
            if fresh:
                seen |= fresh
                waiting.append((needed, wanted))
    return sizes


def _needed(found: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what a distribution needs with some of its extras, and with which extras of that."""
    for text in found.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": one}) for one in extras | {""}):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def _own_size() -> int:
    """Return the bytes of the package with its policies and models, installed or in a checkout."""
    package = Path(guard.__file__).parent
    folders = {package, models_directory(), policies_directory()}
    inner = [one for one in folders if package not in one.parents]
    return _size(path for folder in inner for path in folder.rglob("*"))


def _size(paths: Iterable[object]) -> int:
    files = (Path(str(path)) for path in paths)
    return sum(
        path.stat().st_size
        for path in files
        if path.suffix not in BYTECODE and path.is_file() and not path.is_symlink()
    )
