"""Selectors: one file here is one way in which a store ranks what it recalls."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Final

from guard.extensions.graph_memory.selectors.base import Selector

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Selector", "discover_selectors", "selector_from"]

BASE: Final = "base"


def selector_from(name: str, parameters: Mapping[str, object]) -> Selector:
    """Return a selector with the parameters of a policy.

    Raises:
        ValueError: the selector is unknown, or has no such parameter.
    """
    known = discover_selectors()
    if name not in known:
        raise ValueError(f"unknown selector `{name}`; it is one of {', '.join(sorted(known))}")
    made = known[name]
    for one in parameters:
        if one not in made.parameters:
            has = ", ".join(made.parameters) or "none"
            raise ValueError(f"`{one}` is not a parameter of `{name}`, which has: {has}")
    return made(**parameters)


@cache
def discover_selectors() -> dict[str, type[Selector]]:
    """Return every selector by name, from every module in this package's path.

    Raises:
        TypeError: two have one name.
    """
    found: dict[str, type[Selector]] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        if info.name == BASE:
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            if not _is_selector(value, module.__name__):
                continue
            if value.name in found:
                raise TypeError(f"two selectors are named `{value.name}`; rename one")
            found[value.name] = value
    return found


def _is_selector(value: object, module: str) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, Selector)
        and not inspect.isabstract(value)
        and value.__module__ == module
    )
