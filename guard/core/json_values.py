"""The scalars of a JSON value, wherever in it they stand.  Pure: no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.model import Json


def scalars_in(value: Json) -> Iterator[str | int | float | bool]:
    """Yield every string, number and boolean that is a value, to any depth; no keys, no null."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, str | int | float):
            yield item


def strings_in(value: Json) -> Iterator[str]:
    """Yield every string that is a value, to any depth."""
    return (item for item in scalars_in(value) if isinstance(item, str))


def strings_in_order(value: Json) -> Iterator[str]:
    """Yield every string that is a value, in document order."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))


def quoted(texts: Iterable[str]) -> str:
    """Return names that somebody else chose, as a list in a sentence: each a JSON string."""
    return ", ".join(
        json.dumps("".join(filter(str.isprintable, text)), ensure_ascii=False) for text in texts
    )
