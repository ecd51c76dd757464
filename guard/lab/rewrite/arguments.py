"""The ways in which models fill in the arguments of a call: lists or texts, numbers, nulls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

    from guard.core.model import Json

_SEVERAL: Final = frozenset({"bcc", "cc", "participants", "recipients", "to"})
"""Arguments that take one recipient or many."""
_EMPTY: Final[tuple[Json, ...]] = (None, [], "")


def filled_in(args: dict[str, Json], draw: random.Random) -> dict[str, Any]:
    """Return the arguments as another model might have written them."""
    told: dict[str, Any] = {}
    for name, value in args.items():
        told[name] = _value(name, value, draw)
    if args.keys() & {"recipients", "to"}:
        for name in ("cc", "bcc"):
            if name not in args and draw.random() < 1 / 3:
                told[name] = draw.choice(_EMPTY)
    return told


def _value(name: str, value: Json, draw: random.Random) -> Json:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return draw.choice((value, str(value)))
    if name not in _SEVERAL:
        return value
    if isinstance(value, str) and value:
        return draw.choice((value, [value]))
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return draw.choice((value, ", ".join(map(str, value))))
    return value
