"""Lineage of values, as data and as a tree of lines: sources and every save."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from guard.core.labels import Channel, LabelRecord
from guard.provenance.lineage import ALTERED, BEGINNINGS, GAP, LIST_LIMIT, SAVED, Step, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from guard.core.model import Identity, Json
    from guard.provenance.seal import Seal
    from guard.store.label_records import LabelEntry, LabelTrace

SHORT: Final = 8
"""Number of hex digits of a shown digest."""
Tree = tuple[str, list[Any]]
"""Line, and the trees below it."""


def traced_document(text: str, found: Mapping[str, LabelTrace]) -> dict[str, Json]:
    """Return the records and paths of the values in a text."""
    return {"text": text, "values": [_document(value, one) for value, one in found.items()]}


def entry_document(found: LabelEntry) -> dict[str, Any]:
    """Return a label record and what it is of as JSON values."""
    record = found.record
    line = {"mark": found.mark.hex(), "kind": found.kind, "altered": not record.sealed}
    return {**line, **_fields(record)}


def traced_tree(
    text: str, found: Mapping[str, LabelTrace], *, seal: Seal, keys: Iterable[str], reader: Identity
) -> Tree:
    """Return the paths of the values in a text.

    Args:
        text: the searched text.
        found: its values, each with its records and steps.
        seal: the deployment's key, for comparing digests.
        keys: keys of items that the tree may name: the store keeps digests only.
        reader: the principal that the tree may name.
    """
    names = Names(seal, keys, reader)
    values: list[Any] = []
    for value, traced in found.items():
        held = sorted(traced.records, key=lambda one: (one.record.at, one.record.call))
        below: list[Any] = [(_held(one), []) for one in held]
        values.append((value, [*below, *(_grown(step, names) for step in traced.steps)]))
    nothing = "no record: its values are unknown, and untrusted where a memory answers them"
    return text, values or [(nothing, [])]


@dataclass(frozen=True, slots=True)
class Names:
    """Names for digests: the store keeps digests only."""

    seal: Seal
    keys: Iterable[str]
    """Keys of known items."""
    reader: Identity

    def principal(self, digest: bytes) -> str:
        """Return a principal by name if it is the known one."""
        known = bool(self.reader.principal) and digest == self.seal.principal(self.reader)
        return self.reader.principal if known else digest.hex()[:SHORT]

    def place(self, mark: bytes, store: str) -> str:
        """Return an item, by its key if it is known, or the whole store."""
        if mark == place_of(self.seal, store, ""):
            return store
        return f"{self.item(mark, (store,))} of {store}"

    def item(self, mark: bytes, stores: Iterable[str]) -> str:
        """Return an item of one of some stores."""
        for store in stores:
            for key in self.keys:
                if mark == self.seal.fingerprint(f"item:{store}:{key}"):
                    return f"item {key}"
            if mark == place_of(self.seal, store, ""):
                return store
        return f"item {mark.hex()[:SHORT]}"


def _held(found: LabelEntry) -> str:
    """Return one line about a held label."""
    record = found.record
    if not record.sealed:
        return "held: an altered record, which counts as untrusted"
    kinds = {"item": "kept as an item", "read": "read in untrusted text"}
    channels = {Channel.IMPORTED: "first imported", Channel.SAVED: "saved"}
    way = kinds.get(found.kind) or channels.get(record.channel, "known")
    return f"held: {way}, label {record.label.name.lower()}, {_call(record)}"


def _grown(step: Step, names: Names) -> Tree:
    """Return a step and all that followed from it."""
    return _line(step, names), [_grown(after, names) for after in step.then]


def _line(step: Step, names: Names) -> str:
    record, hop = step.record, step.hop
    if step.kind == GAP:
        return f"gap: {_gap(step, names)}"
    if step.kind == ALTERED:
        return f"altered: {step.count} saves whose seal does not fit are not trusted"
    if hop is not None and record is not None:
        named = hop.parent and hop.source is not None and hop.source.channel is Channel.PROMPT
        return (
            f"saved in {names.place(hop.place, hop.store)}"
            f"{', named by the user' if named else ''}: label {record.label.name.lower()}"
            f", {_call(record)}, principal {names.principal(hop.principal)}"
        )
    if record is None:
        return "the agent's own words: nothing on record vouches for it, or taints it"
    return f"{BEGINNINGS[step.kind]}: {_call(record)}"


def _gap(step: Step, names: Names) -> str:
    if step.why == "deleted":
        return (
            f"{step.count} saves are not on record: deleted, or more than {LIST_LIMIT} "
            f"and these were in the middle"
        )
    if step.why == "label" and step.record is not None:
        return f"the save behind a held label is not on record: first known {_call(step.record)}"
    if step.why == "recall":
        text = "it may have been recalled from an item, and which is not on record"
    else:
        stores = dict.fromkeys(after.hop.store for after in step.then if after.hop is not None)
        text = f"recalled from {names.item(step.item, stores)}, where no save of it is on record"
    return text if step.record is None else f"{text}; first known {_call(step.record)}"


def _call(record: LabelRecord) -> str:
    """Return the call of a record."""
    at = datetime.fromtimestamp(record.at, UTC).strftime("%Y-%m-%d %H:%M")
    session = record.session.hex()[:SHORT]
    return f"{record.source}, call {record.call} of session {session}, {at}"


def _document(value: str, traced: LabelTrace) -> Json:
    """Return the records and the path of one value as JSON."""
    held: list[Json] = [
        {"kind": one.kind, "altered": not one.record.sealed, **_fields(one.record)}
        for one in traced.records
    ]
    return {"value": value, "held": held, "path": [_step(step) for step in traced.steps]}


def _step(step: Step) -> Json:
    document: dict[str, Json] = {"kind": step.kind}
    if step.record is not None:
        document |= _fields(step.record)
    if step.kind == SAVED and (hop := step.hop) is not None:
        document |= {
            "store": hop.store,
            "item": hop.place.hex(),
            "principal": hop.principal.hex(),
            "parents": [
                *([{"item": hop.parent.hex()}] if hop.parent else []),
                *([] if hop.source is None else [_fields(hop.source)]),
            ],
        }
    if step.why:
        document |= {"why": step.why, "item": step.item.hex() or None}
    if step.count:
        document["count"] = step.count
    return {**document, "then": [_step(after) for after in step.then]}


def _fields(record: LabelRecord) -> dict[str, Json]:
    return {
        "label": record.label.name.lower(),
        "channel": record.channel.value,
        "source": record.source,
        "call": record.call,
        "session": record.session.hex(),
        "at": record.at,
    }
