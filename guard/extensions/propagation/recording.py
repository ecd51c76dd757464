"""The nodes and edges that a call adds to the propagation graph, out and back.  Pure: no I/O.

The marks of what is saved or sent are looked up with the attempt and its node is written with the
completion: no round trip is added, and calls that neither save, send nor recall cost nothing.
Text that somebody vouches for is not evidence, nor is text of several items that nobody doubts.  An
attacker therefore cannot make others' items look like his by repeating common text, and repeating
his own text does not make it common.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.calls import (
    ClassifiedCall,
    ToolResult,
    TracedCall,
    remembered_texts,
    saved_document,
)
from guard.core.json_values import strings_in_order
from guard.core.labels import LabelLookup, LabelQuery, LabelSet, LabelWrite, LabelWriteMode, Rung
from guard.core.model import READING, DestinationStatus, Integrity, Role
from guard.extensions.propagation.containment import EPOCH, contained_set
from guard.extensions.propagation.events import (
    HELD,
    MARK,
    PARENTS,
    Edge,
    Event,
    EventKind,
    Flag,
    Holder,
    event_write,
    holder_entry,
    holders_in,
    index_of,
    log_of,
    node_of,
    server_of,
    text_write,
    texts_of,
)
from guard.extensions.propagation.evidence import (
    DISGUISED,
    Kind,
    Marks,
    ids_in,
    marks_of,
    outside,
    values_asked,
)
from guard.provenance.label_sets import RECALLS, label_sets
from guard.provenance.ladder import lasting
from guard.provenance.lineage import Recalls, entries_in, place_of, read_recalls
from guard.provenance.result_documents import items_in
from guard.provenance.saved_values import item_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.mappings import PropagationSettings
    from guard.core.model import Identity
    from guard.core.policy import Policy
    from guard.core.trajectory import Snapshot
    from guard.provenance.seal import Seal

COMMON: Final = 3
"""Items whose label is not untrusted from which on what they share says nothing."""
PASSAGES: Final = 2
"""Five-word passages, and the share of the shorter text, from which on a text resembles another
that no run of eight words joins it to."""
SHARE: Final = 0.4
_PRINT: Final = 4
"""Bytes by which a run is remembered beside its passage."""
RECEIPT_IDS: Final = 4
"""Ids in the answer to a save that may be what the store calls the item."""
_VOUCHED: Final = frozenset({Rung.LISTED, Rung.PROMPTED, Rung.REMEMBERED})
_WHAT: Final = {Role.SAVE: EventKind.SAVE, Role.SEND: EventKind.SEND, Role.DRAFT: EventKind.DRAFT}


def concerns(classified: ClassifiedCall) -> bool:
    """Return whether a call is a node of the graph that is known before it runs."""
    return bool(classified.saves_to) or classified.role is Role.SEND


def reads(classified: ClassifiedCall) -> bool:
    """Return whether a call reads a declared memory."""
    mapping = classified.mapping
    return mapping is not None and bool(mapping.store) and mapping.role in READING


class Spread:
    """The look-ups and records of one call in the propagation graph.

    Args:
        seal: the deployment's key.
        policy: in force.
        settings: its ``propagation`` section.
        classified: the call.
    """

    def __init__(
        self, seal: Seal, policy: Policy, settings: PropagationSettings, classified: ClassifiedCall
    ) -> None:
        self._seal = seal.folding(policy.fold)
        self._settings, self._call = settings, classified
        self._records = concerns(classified)
        """False for a recall, which is recorded with its result."""
        self._ttl = policy.limits.labels * 1000
        self._node = node_of(seal, classified.call.id)
        texts = _texts(classified) if self._records else ()
        self._marks = marks_of(texts, outside(policy.status_of))
        self._asked: list[tuple[LabelSet, list[tuple[str, bytes]]]] = []
        self._held: dict[str, list[Holder]] = {}
        """Holders of each mark."""
        self._session = label_sets(policy.limits).session(classified.call.identity)
        self._recalls = Recalls()
        """Items that the session has recalled before."""
        stores = {mapping.store for mapping in policy.tools if mapping.store}
        self._stores = {place_of(self._seal, store, "")[:MARK] for store in stores}
        """Marks of recalls that name no item."""
        self._skip = 0
        self.sources: frozenset[bytes] = frozenset()
        """Nodes that a send follows from, as far as that is confirmed."""
        self.granted = False
        """True if a person has granted exactly this call."""
        self.identity: Identity = classified.call.identity
        self.epoch: object = None
        """State of the contained set, as the store had it when the call was asked for."""

    @classmethod
    def of(cls, seal: Seal, policy: Policy, classified: ClassifiedCall) -> Spread | None:
        """Return those of a call; None where it neither saves, sends nor recalls."""
        settings = policy.propagation
        if settings is None or not (concerns(classified) or reads(classified)):
            return None
        return cls(seal, policy, settings, classified)

    def extended(self, query: LabelQuery) -> LabelQuery:
        """Return the query with what the graph needs to know."""
        self._skip = sum(len(lookup.fields) for lookup in query.values)
        tenant = self.identity.tenant
        self._asked = by_part(self._seal, tenant, self._ttl, self._looked_up())
        more = [
            LabelLookup(area, tuple([one + HELD for _, one in asked]))
            for area, asked in self._asked
        ]
        own = LabelLookup(self._session, (RECALLS,)), LabelLookup(contained_set(tenant), (EPOCH,))
        return replace(query, values=(*query.values, *own, *more), repeats=False)

    def _looked_up(self) -> Iterator[str]:
        marks = self._marks
        yield from values_asked(marks.values)
        yield from (f"cite:{word}" for word in marks.ids)
        yield from marks.runs

    def taken(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot as it would be without the look-ups of the graph.

        Raises:
            ValueError: the reply does not fit the query.
        """
        values = snapshot.labels.values
        recalled, self.epoch, *rest = values[self._skip :]
        self._recalls = read_recalls(self._seal, self._session, RECALLS, recalled)
        if len(rest) != sum(len(asked) for _, asked in self._asked):
            raise ValueError("the store answered other marks than were asked for")
        found = iter(rest)
        for area, asked in self._asked:
            for (mark, fingerprint), raw in zip(asked, found, strict=False):
                if raw is not None:
                    entries = entries_in(self._seal, area, fingerprint + HELD, raw)
                    self._held[mark] = [
                        one for one in holders_in(entries.bodies) if one.node != self._node
                    ]
        return replace(snapshot, labels=replace(snapshot.labels, values=values[: self._skip]))

    def recorded(self, traced: TracedCall, *, granted: bool) -> TracedCall:
        """Return the call with its node, to be stored once it has run.

        Args:
            traced: the call.
            granted: whether a person has allowed exactly this call.
        """
        self.granted = granted
        if not self._records:
            return traced
        return replace(traced, on_executed=(*traced.on_executed, *self._writes(traced)))

    def _writes(self, traced: TracedCall) -> list[LabelWrite]:
        """Return the node of the call, and for a save the marks it is found by from now on."""
        call, classified = traced.call, self._call
        label = Integrity.UNTRUSTED
        if traced.context is not None and classified.saves_to:
            read = traced.context.read_untrusted
            tainted = any(self._rung(traced, v) >= Rung.TAINTED for v in self._marks.values)
            label = Integrity.UNTRUSTED if read is not None or tainted else Integrity.ADVISORY
            if traced.saved is not None:
                label = (
                    min(label, traced.saved.label)
                    if not traced.saved.prompted
                    else traced.saved.label
                )
        vouched = {v for v in self._marks.values if self._rung(traced, v) in _VOUCHED}
        values = [
            value
            for value in self._marks.values
            if value not in vouched and not self._is_others(value)
        ]
        edges = self._edges(vouched)
        if classified.role is Role.SEND:
            sure = (edge.parent for edge in edges if edge.kind is not Kind.RESEMBLANCE)
            self.sources = frozenset(sure)
        event = self._event(traced, label, values, edges)
        area = log_of(call.identity.tenant, self._ttl, self._settings.events)
        writes = [event_write(self._seal, area, event)]
        if classified.saves_to:
            writes += self._index(values, is_known=label > Integrity.UNTRUSTED)
            if self._settings.versions:
                area = texts_of(call.identity.tenant, self._ttl, self._settings.versions)
                text = text_write(self._seal, area, self._node, call.tool, call.arguments)
                writes += [text] if text is not None else []
        return writes

    def _rung(self, traced: TracedCall, value: str) -> Rung:
        if traced.context is None:
            return Rung.UNKNOWN
        return lasting(value.removeprefix(DISGUISED), traced.context).rung

    def _event(
        self, traced: TracedCall, label: Integrity, values: list[str], edges: list[Edge]
    ) -> Event:
        call, classified, context, marks = traced.call, self._call, traced.context, self._marks
        read = context.read_untrusted if context is not None else None
        sent = classified.role is Role.SEND and any(
            target.status in {DestinationStatus.EXTERNAL, DestinationStatus.DENIED}
            for target in traced.targets
        )
        flags = Flag.OUTSIDE * sent | Flag.CUT * (marks.cut or len(edges) > PARENTS)
        event = Event(
            what=_WHAT.get(classified.role, EventKind.SAVE),
            node=self._node,
            label=label,
            call=traced.index,
            at=call.at,
            session=self._seal.session(call.identity),
            principal=self._seal.principal(call.identity),
            place=_place(self._seal, classified),
            tool=call.tool,
            store=classified.saves_to,
            server=server_of(self._seal, call.server, call.upstream),
            origin=(read.origin if read is not None else b"").ljust(12, b"\0"),
            root=read.call if read is not None else -1,
            root_tool=read.source if read is not None else "",
            flags=flags,
            edges=tuple(edges[:PARENTS]),
        )
        return known_by(event, self._seal, marks, values)

    def _edges(self, vouched: set[str]) -> list[Edge]:
        """Return the edges that lead here, the surest first and of those the newest."""
        found: dict[bytes, Kind] = {}
        for kind, nodes in (
            (Kind.VALUE, self._by_value(vouched)),
            (Kind.CITATION, self._by_citation()),
            (Kind.RUN, self._by_run()),
            (Kind.RESEMBLANCE, self._by_resemblance()),
        ):
            for node in nodes:
                found.setdefault(node, kind)
        return [Edge(node, kind) for node, kind in found.items()]

    def _shown(self, holders: list[Holder]) -> list[Holder]:
        """Return the holders whose items the session may have been shown, the newest first.

        A recall that names no item may have shown any.
        """
        if not self._recalls.whole:
            return holders[::-1]
        places = {one.place[:MARK] for one in self._recalls.held}
        if self._stores & places:
            return holders[::-1]
        if places:
            # What was saved without a name may have been any item that was shown.
            places |= self._stores
        return [one for one in reversed(holders) if one.place in places]

    def _is_others(self, value: str) -> bool:
        """Return whether what only decoding shows stands in clear in honest items of others."""
        if not value.startswith(DISGUISED):
            return False
        clear = self._held.get(value.removeprefix(DISGUISED), [])
        shown = {one.node for one in self._shown(clear)}
        return any(one.is_known and one.node not in shown for one in clear)

    def _sources(self, holders: list[Holder]) -> list[Holder]:
        """Return the nodes that a mark may have come from, the newest first.

        Where the session was shown none of them, it is taken to have come from whoever had it
        first: an item that repeats what others had before does not become their source.  Nobody is
        the source of what is common.
        """
        return [] if _is_common(holders) else self._shown(holders) or holders[:1]

    def _by_value(self, vouched: set[str]) -> Iterator[bytes]:
        for value in self._marks.values:
            if value in vouched:
                continue
            # In clear it was there before anybody had to decode it.
            clear, *decoded = [self._held.get(name, []) for name in values_asked((value,))]
            found = self._sources(clear) or [one for more in decoded for one in self._sources(more)]
            yield from (one.node for one in found)

    def _by_citation(self) -> Iterator[bytes]:
        for word in self._marks.ids:
            holders = self._held.get(f"cite:{word}", [])
            yield from () if _is_common(holders) else (one.node for one in reversed(holders))

    def _by_run(self) -> Iterator[bytes]:
        for passage, runs in self._marks.runs.items():
            mine = {run_print(self._seal, run) for run in runs} if passage in self._held else set()
            same = [
                one
                for one in self._held.get(passage, [])
                if not mine.isdisjoint(
                    one.more[at : at + _PRINT] for at in range(0, len(one.more), _PRINT)
                )
            ]
            yield from (one.node for one in self._sources(same))

    def _by_resemblance(self) -> Iterator[bytes]:
        """Yield what the session was shown and its text shares more with than chance would have."""
        shared: Counter[Holder] = Counter()
        for passage in self._marks.runs:
            holders = self._held.get(passage, [])
            if not _is_common(holders):
                shared.update(one._replace(more=b"") for one in self._shown(holders))
        for one, count in shared.items():
            if count >= PASSAGES and count >= SHARE * min(one.kept, len(self._marks.runs)):
                yield one.node

    def _index(self, values: list[str], *, is_known: bool) -> Iterator[LabelWrite]:
        """Yield the marks by which later texts find this item."""
        marks = self._marks
        kept = len(marks.kept)
        place = _place(self._seal, self._call)[:MARK]
        one = Holder(self._node, place, is_known, kept, b"")
        entries: dict[str, Holder] = {value: one._replace(kept=0) for value in values}
        for passage, runs in marks.kept.items():
            prints = (run_print(self._seal, run) for run in runs)
            entries[passage] = one._replace(more=b"".join(prints))
        for word in _names(self._call):
            entries[f"cite:{word}"] = one._replace(kept=0)
        yield from index_writes(self._seal, self._call.call.identity.tenant, self._ttl, entries)


def known_by(event: Event, seal: Seal, marks: Marks, values: Iterable[str]) -> Event:
    """Return an event with what its texts are known by."""

    def short(names: Iterable[str]) -> tuple[bytes, ...]:
        return tuple([seal.fingerprint(name)[:MARK] for name in names])

    evident = tuple(map(seal.fingerprint, values))
    return replace(event, values=evident, runs=short(marks.kept), wholes=short(marks.wholes))


def index_writes(
    seal: Seal, tenant: str, ttl: int, entries: dict[str, Holder]
) -> Iterator[LabelWrite]:
    """Yield the writes that put holders of marks into the index, one per part of it."""
    for area, marks in by_part(seal, tenant, ttl, entries):
        written = [holder_entry(seal, area, one, entries[mark]) for mark, one in marks]
        yield LabelWrite(area, LabelWriteMode.APPEND, tuple(written))


def by_part(
    seal: Seal, tenant: str, ttl: int, marks: Iterable[str]
) -> list[tuple[LabelSet, list[tuple[str, bytes]]]]:
    """Return the parts of the index that some marks lie in, with the marks' fingerprints."""
    grouped: dict[str, tuple[LabelSet, list[tuple[str, bytes]]]] = {}
    for mark in marks:
        fingerprint = seal.fingerprint(mark)
        area = index_of(tenant, fingerprint, ttl)
        grouped.setdefault(area.part, (area, []))[1].append((mark, fingerprint))
    return list(grouped.values())


def result_events(seal: Seal, policy: Policy, result: ToolResult) -> tuple[LabelWrite, ...]:
    """Return what a result adds: what a recall has shown, or what the store calls a saved item."""
    settings, classified = policy.propagation, result.call.classified
    if settings is None or result.is_lost:
        return ()
    seal, call, ttl = seal.folding(policy.fold), classified.call, policy.limits.labels * 1000
    tenant, mapping = call.identity.tenant, classified.mapping
    if classified.saves_to:
        if result.is_error:
            return ()
        assigned = _assigned(result)
        place = _place(seal, classified)[:MARK]
        holder = Holder(node_of(seal, call.id), place, is_known=False, kept=0, more=b"")
        entries = {f"cite:{word}": holder for word in assigned}
        return tuple(index_writes(seal, tenant, ttl, entries))
    if mapping is None or not reads(classified):
        return ()
    marks = marks_of(strings_in_order(result.content), outside(policy.status_of))

    event = Event(
        what=EventKind.RECALL,
        node=node_of(seal, call.id),
        label=mapping.source,
        call=result.call.index,
        at=result.at,
        session=seal.session(call.identity),
        principal=seal.principal(call.identity),
        place=place_of(seal, mapping.store, item_value(mapping, mapping.store, call.arguments)),
        tool=call.tool,
        store=mapping.store,
        server=server_of(seal, call.server, call.upstream),
        flags=Flag.CUT * marks.cut,
    )
    event = known_by(event, seal, marks, marks.values)
    return (event_write(seal, log_of(tenant, ttl, settings.events), event),)


def _assigned(result: ToolResult) -> list[str]:
    """Return the ids that a store gave to what was saved: as the policy says, else like an id."""
    mapping = result.call.classified.mapping
    if mapping is not None and mapping.items is not None:
        named = (name for name, _ in items_in(result.content, mapping.items))
        return [word for name in islice(named, RECEIPT_IDS) for word in ids_in(name)]
    words = [w for text in strings_in_order(result.content) for w in ids_in(text[:4096])]
    return [w for w in dict.fromkeys(words) if any(c.isdigit() for c in w)][:RECEIPT_IDS]


def _texts(classified: ClassifiedCall) -> list[str]:
    """Return what a call saves or sends, text by text."""
    if classified.memory_write is not None:
        return remembered_texts(classified.call, classified.memory_write)
    if classified.saves_to:
        names = _item_names(classified)
        return [t for t in strings_in_order(dict(saved_document(classified))) if t not in names]
    return list(strings_in_order(dict(classified.call.arguments)))


def _item_names(classified: ClassifiedCall) -> set[str]:
    mapping = classified.mapping
    if mapping is None or mapping.item is None:
        return set()
    return {str(value) for _, value in mapping.item.find(dict(classified.call.arguments))}


def _names(classified: ClassifiedCall) -> Iterator[str]:
    """Yield the names of a saved item by which a text can cite it, without ordinary words."""
    for name in _item_names(classified):
        words = list(ids_in(name))
        if len(words) == 1 and words[0] == name.casefold():
            yield words[0]


def _place(seal: Seal, classified: ClassifiedCall) -> bytes:
    mapping, store = classified.mapping, classified.saves_to
    if not store:
        return bytes(12)
    item = item_value(mapping, store, dict(classified.call.arguments)) if mapping else ""
    return place_of(seal, store, item)


def _is_common(holders: list[Holder]) -> bool:
    return sum(one.is_known for one in holders) >= COMMON


def run_print(seal: Seal, run: str) -> bytes:
    """Return what an eight-word run is remembered by beside its passage.

    Texts with a passage of boilerplate in common differ in the runs around it; of two bytes, one
    of some hundred such items would be taken for made of another.
    """
    return seal.fingerprint(run)[:_PRINT]
