"""Discovery of plug-ins: the concrete subclasses of a base in the modules of a package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

ClassT = TypeVar("ClassT")


def classes_of(module: ModuleType, base: type[ClassT]) -> Iterator[type[ClassT]]:
    """Yield the concrete subclasses of a base that a module defines."""
    for value in vars(module).values():
        is_one = isinstance(value, type) and issubclass(value, base) and value is not base
        if is_one and value.__module__ == module.__name__ and not inspect.isabstract(value):
            yield value


def classes_in(package: str, path: Iterable[str], base: type[ClassT]) -> Iterator[type[ClassT]]:
    """Yield the concrete subclasses of a base in every module of a package, by module name.

    Args:
        package: full name of the package.
        path: where its modules lie.
        base: the class that they derive from.
    """
    infos = pkgutil.walk_packages(path, f"{package}.")
    for name in sorted(info.name for info in infos):
        yield from classes_of(importlib.import_module(name), base)
