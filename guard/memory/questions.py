"""What to ask the store about the values of one call, and how to read its answer.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.message_titles import LINK, TITLE
from guard.core.model import Integrity
from guard.core.ports import Lookup
from guard.core.provenance import Evidence
from guard.core.values import SAID
from guard.memory.areas import ATTESTED, CLAIM, ITEM, PROMPT, READ, REPLY, TAINTED, bucket_of
from guard.memory.seal import FINGERPRINT, NAMES_AT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.model import Identity
    from guard.core.ports import Area
    from guard.core.provenance import Record
    from guard.memory.areas import Areas
    from guard.memory.seal import Seal

PRIVATE: Final = "private"
_Slot: TypeAlias = tuple[bytes, str, str]
"""A field that is asked for, the value that it is about, and its place in :class:`Evidence`."""
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
    _groups: list[tuple[Area, list[_Slot]]] = field(default_factory=list)
    """What is asked of each area, in the order of the answers."""
    _known: set[str] = field(default_factory=set)
    """Values that may be attested; the others only taint."""

    def add(self, values: Iterable[str], *, taint_only: bool = False) -> None:
        """Ask about some more values, or only whether untrusted text named them."""
        for value in values:
            if not taint_only and not value.startswith("any:"):
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
        """Return the look-ups, one per area."""
        if not self.values and not self.saves and not self.item:
            return ()
        session = self.areas.session(self.identity)
        in_session: list[_Slot] = [(READ, "", "read")] if self.saves else []
        buckets: dict[int, list[tuple[str, bytes]]] = {}
        for value, mark in self.values.items():
            if value.startswith((TITLE, LINK)):
                # It says which message or link; only the user's naming of its place vouches for it.
                continue
            if value in self._known:
                in_session.append((mark + PROMPT, value, "prompt"))
                if value.startswith(SAID):
                    # Words count for the session that they were said in; nothing taints them.
                    continue
                in_session.append((mark + ATTESTED, value, "field"))
                in_session.append((mark + CLAIM, value, "claim"))
            buckets.setdefault(bucket_of(mark), []).append((value, mark))
        self._groups = [(session, in_session)] if in_session else []
        for values in buckets.values():
            self._ask_bucket(values)
        private: dict[int, tuple[Area, list[_Slot]]] = {}
        for mark in self.passages.values():
            area = self.areas.private(self.identity, mark)
            private.setdefault(id(area), (area, []))[1].append((mark, "", PRIVATE))
        self._groups += private.values()
        if self.item:
            mark = self.seal.fingerprint(self.item)
            area = self.areas.memory(self.identity.tenant, mark)
            self._groups.append((area, [(mark + ITEM, "", "item")]))
        found = [
            Lookup(area, tuple([name for name, _, _ in slots])) for area, slots in self._groups
        ]
        names = tuple([self.values[value] + REPLY for value in self._repliable()])
        if names:
            found.append(Lookup(session, names, chained=True))
        return tuple(found)

    def _ask_bucket(self, values: list[tuple[str, bytes]]) -> None:
        """Ask about values whose records of one kind lie in one area."""
        identity, (_, mark) = self.identity, values[0]
        known = [(value, own) for value, own in values if value in self._known]
        ask = self._groups.append
        if known:
            prompts = self.areas.prompts(identity, mark)
            ask((prompts, [(own + PROMPT, value, "earlier_prompt") for value, own in known]))
        in_memory: list[_Slot] = [(own + ATTESTED, value, "memory") for value, own in known]
        in_memory += [(own + TAINTED, value, "memory_taint") for value, own in values]
        ask((self.areas.memory(identity.tenant, mark), in_memory))
        tainted: list[_Slot] = [(own, value, "taint") for value, own in values]
        for area in self.areas.taints(identity, mark, self.at):
            ask((area, tainted))

    def _repliable(self) -> list[str]:
        return [v for v in self.values if v in self._known and not v.startswith(SAID)]

    def read(
        self, labels: tuple[object, ...]
    ) -> tuple[dict[str, Evidence], Record | None, Record | None]:
        """Return what is known of each value, the session's first untrusted read, the item.

        Raises:
            ValueError: the answer does not fit the question.
        """
        repliable = self._repliable() if self.values else []
        asked = sum([len(slots) for _, slots in self._groups])
        if len(labels) != asked + len(repliable):
            raise ValueError("the store answered other look-ups than were asked")
        places: dict[str, dict[str, Record]] = {}
        there = [index for index, raw in enumerate(labels[:asked]) if raw is not None]
        if there:
            fields = [(area, slot) for area, slots in self._groups for slot in slots]
            for index in there:
                area, (name, value, place) = fields[index]
                record = self.seal.read(area, name, labels[index])
                if record is not None and place == PRIVATE:
                    self.private.append(record)
                elif record is not None:
                    _keep(places.setdefault(value, {}), place, record)
        self._replies(repliable, labels[asked:], places)
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
