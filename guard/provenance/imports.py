"""Lists of what a memory held before the guard: store, text, label and services.  Pure: no I/O."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.labels import Channel, LabelRecord, LabelWrite
from guard.core.model import Integrity, Json
from guard.provenance.ladder import OF_A_SERVICE
from guard.provenance.saved_values import label_write
from guard.values.finding import find_values, leaf_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.provenance.label_sets import LabelSets
    from guard.provenance.seal import Seal

LABELS: Final = {label.name.lower(): label for label in Integrity}
_FIELDS: Final = frozenset({"store", "value", "label", "for"})


class ImportedItem(NamedTuple):
    """One text that a memory held before the guard."""

    store: str
    text: str
    label: Integrity
    services: tuple[str, ...] = ()
    """Services of the accounts, channels and other handles in it; they vouch in no other."""


def read_items(text: str, default: Integrity | None = None) -> list[ImportedItem]:
    """Return the items of a JSON list.

    Args:
        text: ``[{"store": "facts", "value": "…", "label": "authenticated", "for": ["bank"]}, …]``;
            ``for`` may be left out.
        default: label of items that name none.

    Raises:
        ValueError: it is no such list, or an item has no label.
    """
    try:
        items: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not json: {error}") from error
    if not isinstance(items, list):
        raise ValueError("not a list; write [{store, value, label, for}, ...]")  # noqa: TRY004  (one kind of error for a bad file)
    return [_item(item, number, default) for number, item in enumerate(items)]


def _item(item: Json, number: int, default: Integrity | None) -> ImportedItem:
    fits = isinstance(item, dict) and {"store", "value"} <= set(item) <= _FIELDS
    texts = [item[name] for name in item if name != "for"] if fits else []
    services = item.get("for", []) if fits else None
    if not isinstance(services, list) or not all(isinstance(t, str) for t in (*texts, *services)):
        raise ValueError(
            f"item {number}: write `store`, `value` and `label`, all texts, and names of services "
            "in `for`"
        )
    label = LABELS.get(item["label"]) if "label" in item else default
    if label is None:
        known = ", ".join(f"`{name}`" for name in LABELS)
        raise ValueError(f"item {number}: its label must be one of {known}; or give --label")
    return ImportedItem(item["store"], item["value"], label, tuple(services))


def import_writes(
    seal: Seal,
    sets: LabelSets,
    tenant: str,
    items: Iterable[ImportedItem],
    at: float,
) -> list[LabelWrite]:
    """Return the records of memory that existed before the guard.

    Args:
        seal: the deployment's key.
        sets: where records lie.
        tenant: whose memory it is.
        items: what it held.
        at: now.
    """
    writes: list[LabelWrite] = []
    for item in items:
        store, text, label, services = ImportedItem(*item)
        record = LabelRecord(label, Channel.IMPORTED, -1, at, bytes(8), store)
        own = replace(record, services=tuple(map(seal.service, services)))
        whole = leaf_value(text)
        found = find_values(text)
        values = {**found.plain, **({whole: None} if whole else {})}
        if label is Integrity.UNTRUSTED:
            values.update(found.disguised)
        else:
            values = {v: None for v in values if not v.startswith("any:")}
        writes.extend(
            label_write(
                seal, sets, tenant, value, own if value.startswith(OF_A_SERVICE) else record
            )
            for value in values
        )
    return writes
