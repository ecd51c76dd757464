"""Selectors: one file here is one way in which a store ranks what it recalls."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from guard.core.discovery import classes_in
from guard.extensions.graph_memory.selectors.base import Selector

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Selector", "discover_selectors", "selector_from"]


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
    for selector in classes_in(__name__, __path__, Selector):
        if selector.name in found:
            raise TypeError(f"two selectors are named `{selector.name}`; rename one")
        found[selector.name] = selector
    return found
