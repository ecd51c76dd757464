"""Lists of what a memory held before the guard: store, text and label.  Pure: no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from guard.core.model import Integrity

if TYPE_CHECKING:
    from guard.core.model import Json

LABELS: Final = {label.name.lower(): label for label in Integrity}
_FIELDS: Final = frozenset({"store", "value", "label"})


def read_items(text: str, default: Integrity | None = None) -> list[tuple[str, str, Integrity]]:
    """Return store, text and label of each item of a JSON list.

    Args:
        text: ``[{"store": "facts", "value": "…", "label": "authenticated"}, …]``.
        default: label of items that name none.

    Raises:
        ValueError: it is no such list, or an item has no label.
    """
    try:
        items: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not json: {error}") from error
    if not isinstance(items, list):
        raise ValueError("not a list; write [{store, value, label}, ...]")  # noqa: TRY004  (one kind of error for a bad file)
    return [_item(item, number, default) for number, item in enumerate(items)]


def _item(item: Json, number: int, default: Integrity | None) -> tuple[str, str, Integrity]:
    fits = isinstance(item, dict) and {"store", "value"} <= set(item) <= _FIELDS
    if not fits or not all(isinstance(value, str) for value in item.values()):
        raise ValueError(f"item {number}: write `store`, `value` and `label`, all texts")
    label = LABELS.get(item["label"]) if "label" in item else default
    if label is None:
        known = ", ".join(f"`{name}`" for name in LABELS)
        raise ValueError(f"item {number}: its label must be one of {known}; or give --label")
    return item["store"], item["value"], label
