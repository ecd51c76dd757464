"""What to ask the store about the values of one call, and how to read its answer.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.message_titles import LINK, TITLE
from guard.core.model import Integrity
from guard.core.ports import Lookup
from guard.core.provenance import Evidence
from guard.core.values import SAID
from guard.memory.areas import ATTESTED, ITEM, PROMPT, READ, REPLY, TAINTED
from guard.memory.seal import FINGERPRINT, NAMES_AT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.model import Identity
    from guard.core.ports import Area
    from guard.core.provenance import Record
    from guard.memory.areas import Areas
    from guard.memory.seal import Seal

PRIVATE: Final = "private"
ASK_LIMIT: Final = 256
"""Values asked about for one call; a target beyond it stays unknown, and suspicious."""


@dataclass(slots=True)
class Question:
    """Values of one call to look up in one round trip."""

    seal: Seal
    areas: Areas
    identity: Identity
    at: float
    item: str = ""
    """Value of the memory item that the call names, if it names one."""
    values: dict[str, bytes] = field(default_factory=dict)
    """Fingerprint by value."""
    saves: bool = False
    """Whether the call saves, so that it matters what its session has read."""
    passages: dict[str, bytes] = field(default_factory=dict)
    """Fingerprint by passage of the body."""
    private: list[Record] = field(default_factory=list)
    """Records of the passages that a private source has returned, once the answer is read."""
    complete: bool = True
    """Whether no value was left out."""
    saved: list[str] = field(default_factory=list)
    """Values in a text that is about to be saved."""
    said: list[str] = field(default_factory=list)
    """Its sentences, where each can be told apart."""
    _slots: list[tuple[Area, bytes, str, str]] = field(default_factory=list)
    """Area, field, value and place of each answer, in the order of the answers."""
    _known: set[str] = field(default_factory=set)
    """Values that may be attested; the others only taint."""

    def add(self, values: Iterable[str], *, taint_only: bool = False) -> None:
        """Ask about some more values, or only whether untrusted text named them."""
        for value in values:
            if not taint_only:
                self._known.add(value)
            if value in self.values:
                continue
            if len(self.values) >= ASK_LIMIT:
                self.complete = False
                return
            self.values[value] = self.seal.fingerprint(value)

    def add_passages(self, passages: Iterable[str]) -> None:
        """Ask whether a private source has returned some passages."""
        self.passages = {passage: self.seal.fingerprint(passage) for passage in passages}

    def lookups(self) -> tuple[Lookup, ...]:
        """Return the look-ups, grouped by area."""
        if not self.values and not self.saves and not self.item:
            return ()
        session = self.areas.session(self.identity)
        # Areas are remembered, so one area is one object.
        grouped: dict[int, list[tuple[Area, bytes, str, str]]] = {}
        for slot in self._all_slots(session):
            grouped.setdefault(id(slot[0]), []).append(slot)
        groups = list(grouped.values())
        self._slots = [slot for slots in groups for slot in slots]
        found = [Lookup(slots[0][0], tuple([name for _, name, _, _ in slots])) for slots in groups]
        names = tuple([self.values[value] + REPLY for value in self._repliable()])
        if names:
            found.append(Lookup(session, names, chained=True))
        return tuple(found)

    def _repliable(self) -> list[str]:
        return [v for v in self.values if v in self._known and not v.startswith(("any:", SAID))]

    def _all_slots(self, session: Area) -> Iterator[tuple[Area, bytes, str, str]]:
        if self.saves:
            yield session, READ, "", "read"
        epochs = self.areas.epochs(self.at)
        for value, mark in self.values.items():
            # It says which message or link; only the user's naming of its place vouches for it.
            if not value.startswith((TITLE, LINK)):
                yield from self._slots_of(value, mark, session, epochs)
        for mark in self.passages.values():
            yield self.areas.private(self.identity, mark), mark, "", PRIVATE
        if self.item:
            mark = self.seal.fingerprint(self.item)
            yield self.areas.memory(self.identity.tenant, mark), mark + ITEM, "", "item"

    def _slots_of(
        self, value: str, mark: bytes, session: Area, epochs: range
    ) -> Iterator[tuple[Area, bytes, str, str]]:
        if value.startswith(SAID):
            # Words count for the session that they were said in; nothing taints them.
            yield session, mark + PROMPT, value, "prompt"
            return
        identity = self.identity
        memory = self.areas.memory(identity.tenant, mark)
        if value in self._known and not value.startswith("any:"):
            prompted, attested = mark + PROMPT, mark + ATTESTED
            yield session, prompted, value, "prompt"
            yield session, attested, value, "field"
            yield self.areas.prompts(identity, mark), prompted, value, "earlier_prompt"
            yield memory, attested, value, "memory"
        yield memory, mark + TAINTED, value, "memory_taint"
        for epoch in epochs:
            yield self.areas.taint(identity, mark, epoch), mark, value, "taint"

    def read(
        self, labels: tuple[object, ...]
    ) -> tuple[dict[str, Evidence], Record | None, Record | None]:
        """Return what is known of each value, the session's first untrusted read, the item.

        Raises:
            ValueError: the answer does not fit the question.
        """
        slots = self._slots
        repliable = self._repliable() if self.values else []
        if len(labels) != len(slots) + len(repliable):
            raise ValueError("the store answered other look-ups than were asked")
        places: dict[str, dict[str, Record]] = {}
        for (area, name, value, place), raw in zip(slots, labels, strict=False):
            if raw is not None:
                record = self.seal.read(area, name, raw)
                if record is not None and place == PRIVATE:
                    self.private.append(record)
                elif record is not None:
                    _keep(places.setdefault(value, {}), place, record)
        self._replies(repliable, labels[len(slots) :], places)
        whole = places.pop("", {})
        evidence = {value: Evidence(**found) for value, found in places.items()}
        return evidence, whole.get("read"), whole.get("item")

    def _replies(
        self,
        values: list[str],
        answers: tuple[object, ...],
        places: dict[str, dict[str, Record]],
    ) -> None:
        """Keep the sender of each message that the user has named in this session."""
        session = self.areas.session(self.identity)
        for value, answer in zip(values, answers, strict=True):
            mark = self.values[value]
            if not isinstance(answer, list) or len(answer) != 2:  # noqa: PLR2004 - record, names
                continue
            raw, named = answer
            record = self.seal.read(session, mark + REPLY, raw)
            if record is None or not record.sealed or not isinstance(raw, bytes):
                continue
            for name, found in zip(_names_in(raw), named, strict=False):
                by = self.seal.read(session, name + PROMPT, found)
                if by is not None and by.sealed and by.label >= Integrity.AUTHENTICATED:
                    places.setdefault(value, {})["reply"] = record
                    break


def _keep(places: dict[str, Record], place: str, record: Record) -> None:
    """Keep the earliest record of a place: taint has one per period."""
    before = places.get(place)
    if before is None or (record.at, record.call) < (before.at, before.call):
        places[place] = record


def _names_in(raw: bytes) -> list[bytes]:
    """Return the fingerprints behind a record's source."""
    start = NAMES_AT + raw[NAMES_AT - 1] if len(raw) >= NAMES_AT else len(raw)
    return [
        raw[at : at + FINGERPRINT] for at in range(start, len(raw) - FINGERPRINT + 1, FINGERPRINT)
    ]
