"""What a save leaves behind: the label of every value in it, and one hop of its path.  Pure.

The label of a saved value is the minimum over what it is made of and what its session had read
before.  It belongs to the store.  The hop says who saved it where and what it was taken from; it
decides nothing (:mod:`guard.provenance.lineage`).  No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guard.core.labels import Channel, LabelRecord, LabelWrite, LabelWriteMode
from guard.core.memory_writes import saved_document
from guard.core.model import Integrity
from guard.destinations.values import find_values, leaf_value
from guard.provenance.label_sets import ATTESTED, HOPS, ITEM, TAINTED
from guard.provenance.lineage import HOP_VALUES, Hop, place_of, principal_digest, write_hop
from guard.provenance.result_fields import leaves_of
from guard.provenance.saved_text import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.calls import ClassifiedCall
    from guard.core.labels import Context
    from guard.core.model import Json
    from guard.core.tool_mapping import ToolMapping
    from guard.provenance.label_query import LabelQuery
    from guard.provenance.label_sets import LabelSets
    from guard.provenance.lineage import Recalls
    from guard.provenance.seal import Seal


@dataclass(slots=True)
class Save:
    """One call that saves into a declared store."""

    question: LabelQuery
    classified: ClassifiedCall
    context: Context
    recalls: Recalls
    """What its session had recalled before."""
    _place: bytes = b""
    _principal: bytes = b""

    def __post_init__(self) -> None:
        seal = self.question.seal
        self._place = place_of(seal, self.question.store, self.question.item)
        self._principal = principal_digest(seal, self.classified.call.identity)

    def writes(self, index: int) -> Iterator[LabelWrite]:
        """Yield the labels of what is saved, and a hop of each.

        Args:
            index: of the call in its session or recorded run.
        """
        call, context, question = self.classified.call, self.context, self.question
        plain, disguised, overflow = saved_values(saved_document(self.classified))
        here = LabelRecord(
            Integrity.ADVISORY, Channel.SAVED, index, call.at, context.session, call.tool
        )
        lowest = Integrity.AUTHENTICATED if plain and not overflow else Integrity.ADVISORY
        for count, value in enumerate((*plain, *disguised)):
            label, origin = label_of(value, context)
            if value not in plain and label is not Integrity.UNTRUSTED:
                continue
            if value.startswith("any:") and label is not Integrity.UNTRUSTED:
                continue
            lowest = min(lowest, label)
            saved = record = replace(here, label=label)
            if label is Integrity.UNTRUSTED and origin is not None and origin.sealed:
                # The origin stays with the value, whoever saves it again under another name.
                record = replace(origin, label=label, channel=Channel.SAVED)
            yield label_write(question.seal, question.areas, call.identity.tenant, value, record)
            if count < HOP_VALUES and plain.get(value, True):
                yield self._hop_of_value(question.seal.fingerprint(value), saved, origin)
        if question.item:
            if context.read_untrusted is not None and lowest is not Integrity.AUTHENTICATED:
                lowest = Integrity.UNTRUSTED
            mark = question.seal.fingerprint(question.item)
            area = question.areas.memory(call.identity.tenant, mark)
            saved = replace(here, label=lowest)
            entry = question.seal.write(area, mark + ITEM, saved)
            yield LabelWrite(area, LabelWriteMode.REPLACE, (entry,))
            yield self._hop_of_item(mark, saved)

    def _hop_of_value(
        self, mark: bytes, saved: LabelRecord, source: LabelRecord | None
    ) -> LabelWrite:
        """Return the hop of a value, whose parent is the newest recall that brought it."""
        recalled = self.recalls.of(mark)
        if recalled is not None:
            return self._hop(mark, saved, source, recalled.place)
        unknown = not self.recalls.whole or (self.context.remembers and not self.recalls.held)
        broken = source is not None and not source.sealed
        return self._hop(mark, saved, None if broken else source, lost=unknown or broken)

    def _hop_of_item(self, mark: bytes, saved: LabelRecord) -> LabelWrite:
        """Return the hop of an item: what tainted it is the first untrusted text of its session."""
        read = self.context.read_untrusted if saved.label is Integrity.UNTRUSTED else None
        if read is None or not read.sealed:
            return self._hop(mark, saved, None, lost=read is not None)
        calls = [one for one in self.recalls.held if one.record.call == read.call]
        return self._hop(mark, saved, read, calls[0].place if calls else b"")

    def _hop(
        self,
        mark: bytes,
        saved: LabelRecord,
        source: LabelRecord | None,
        parent: bytes = b"",
        *,
        lost: bool = False,
    ) -> LabelWrite:
        store, seal = self.question.store, self.question.seal
        hop = Hop(saved, self._principal, self._place, store, parent, lost, source)
        area = self.question.areas.memory(self.classified.call.identity.tenant, mark)
        return LabelWrite(area, LabelWriteMode.APPEND, (write_hop(seal, area, mark + HOPS, hop),))


def label_write(
    seal: Seal, areas: LabelSets, tenant: str, value: str, record: LabelRecord
) -> LabelWrite:
    """Return the label of one value in the memories of a tenant."""
    mark = seal.fingerprint(value)
    area = areas.memory(tenant, mark)
    tainted = record.label is Integrity.UNTRUSTED
    field = mark + (TAINTED if tainted else ATTESTED)
    mode = LabelWriteMode.KEEP if tainted else LabelWriteMode.RAISE
    return LabelWrite(area, mode, (seal.write(area, field, record),))


def item_value(mapping: ToolMapping, store: str, arguments: Json) -> str:
    """Return the value that names an item of a memory, empty where the call names none."""
    if mapping.item is None:
        return ""
    for _, value in mapping.item.find(arguments):
        if isinstance(value, str | int):
            return f"item:{store}:{value}"
    return ""


def saved_values(arguments: Json) -> tuple[dict[str, bool], dict[str, None], bool]:
    """Return the values in what is saved, as they stand and disguised, and whether some lack.

    Of those as they stand it says which leave a hop: a text that is a value as a whole, and has
    others in it, goes the way that they go.
    """
    plain: dict[str, bool] = {}
    disguised: dict[str, None] = {}
    overflow = False
    for leaf in leaves_of(dict(arguments), None, Integrity.UNTRUSTED):
        found = find_values(leaf.text)
        plain.update(dict.fromkeys(found.plain, True))
        disguised.update(found.disguised)
        overflow = overflow or found.overflow
        if leaf.whole and (whole := leaf_value(leaf.text)) is not None:
            plain[whole] = plain.get(whole, False) or not found.plain
    return plain, disguised, overflow
