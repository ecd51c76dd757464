"""The scalars of a JSON value, wherever in it they stand.  Pure: no I/O."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from guard.core.model import Json


_SCALARS: Final = (str, int, float)
"""A tuple: building the union of the types on every check is slow."""


def scalars_in(value: Json) -> Iterator[str | int | float | bool]:
    """Yield every string, number and boolean that is a value, to any depth; no keys, no null."""
    return (item for item in parts_of(value) if isinstance(item, _SCALARS))


def parts_of(value: Json) -> Iterator[Json]:
    """Yield a value and every value in it, containers included, to any depth."""
    stack = [value]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def is_empty(value: Json) -> bool:
    """Return whether a value is null, a blank text, or a container of such values only.

    INVARIANT (one absence): a member with such a value counts as a member that is left out.
    """
    return all(isinstance(one, str) and not one.strip() for one in scalars_in(value))


def without_empty(value: Json) -> Json:
    """Return a value without its empty members, at any depth; None where nothing is left.

    A list that is not empty keeps all of its items, so that each keeps its index.
    """
    if isinstance(value, dict):
        found = {name: without_empty(item) for name, item in value.items()}
        return {name: item for name, item in found.items() if item is not None} or None
    if isinstance(value, list):
        items = [without_empty(item) for item in value]
        kept = [old if new is None else new for old, new in zip(value, items, strict=True)]
        return kept if any(item is not None for item in items) else None
    return None if is_empty(value) else value


def strings_in(value: Json) -> Iterator[str]:
    """Yield every string that is a value, to any depth."""
    return (item for item in scalars_in(value) if isinstance(item, str))


def strings_in_order(value: Json, *, names: bool = False) -> Iterator[str]:
    """Yield every string that is a value, and if wanted every member's name, in document order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            parts = [*chain.from_iterable(item.items())] if names else item.values()
            stack.extend(reversed(parts))
        elif isinstance(item, list):
            stack.extend(reversed(item))


def json_encoder(
    *, sort_keys: bool = False, allow_nan: bool = True, blanks: bool = False
) -> Callable[[Json, int], Iterable[str]]:
    """Return an encoder that yields a value as JSON in pieces: ``"".join(encode(value, 0))``.

    It is what ``json.JSONEncoder`` makes anew for every value, which costs as much as writing a
    small one.  A value that contains itself is a ``RecursionError``.

    Args:
        sort_keys: whether members stand in the order of their names.
        allow_nan: whether NaN and infinities may be written; else they are a ValueError.
        blanks: whether one stands behind each comma and colon, as ``json.dumps`` has it.
    """
    comma, colon = (", ", ": ") if blanks else (",", ":")
    slow = json.JSONEncoder(sort_keys=sort_keys, allow_nan=allow_nan, separators=(comma, colon))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # Another Python than CPython.
        return lambda value, _: slow.iterencode(value)
    text, skip_keys = json.encoder.encode_basestring_ascii, False
    given = (None, slow.default, text, None, colon, comma, sort_keys, skip_keys, allow_nan)
    found: Callable[[Json, int], Iterable[str]] = make(*given)
    return found


def quoted(texts: Iterable[str]) -> str:
    """Return names that somebody else chose, as a list in a sentence: each a JSON string."""
    return ", ".join(
        json.dumps("".join(filter(str.isprintable, text)), ensure_ascii=False) for text in texts
    )
