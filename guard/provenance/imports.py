"""Lists of what a memory held before the guard: store, text and label.  Pure: no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord
from guard.core.model import Integrity
from guard.destinations.values import find_values, leaf_value
from guard.provenance.saved_values import label_write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.labels import LabelWrite
    from guard.core.model import Json
    from guard.provenance.label_sets import LabelSets
    from guard.provenance.seal import Seal

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


def import_writes(
    seal: Seal,
    sets: LabelSets,
    tenant: str,
    items: Iterable[tuple[str, str, Integrity]],
    at: float,
) -> list[LabelWrite]:
    """Return the records of memory that existed before the guard.

    Args:
        seal: the deployment's key.
        sets: where records lie.
        tenant: whose memory it is.
        items: store, text and label of each.
        at: now.
    """
    writes: list[LabelWrite] = []
    for store, text, label in items:
        record = LabelRecord(label, Channel.IMPORTED, -1, at, bytes(8), store)
        whole = leaf_value(text)
        found = find_values(text)
        values = {**found.plain, **({whole: None} if whole else {})}
        if label is Integrity.UNTRUSTED:
            values.update(found.disguised)
        else:
            values = {v: None for v in values if not v.startswith("any:")}
        writes.extend(label_write(seal, sets, tenant, value, record) for value in values)
    return writes
