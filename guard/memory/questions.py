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
    from collections.abc import Iterable

    from guard.core.model import Identity
    from guard.core.ports import Area
    from guard.core.provenance import Record
    from guard.memory.areas import Areas
    from guard.memory.seal import Seal

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
    complete: bool = True
    """Whether no value was left out."""
    _slots: dict[int, tuple[Area, list[tuple[bytes, str, str]]]] = field(default_factory=dict)
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

    def lookups(self) -> tuple[Lookup, ...]:
        """Return the look-ups, grouped by area."""
        session = self.areas.session(self.identity)
        self._slot(session, READ, "", "read")
        for value, mark in self.values.items():
            self._slots_of(value, mark, session)
        if self.item:
            mark = self.seal.fingerprint(self.item)
            memory = self.areas.memory(self.identity.tenant, mark)
            self._slot(memory, mark + ITEM, "", "item")
        found = [
            Lookup(area, tuple([name for name, _, _ in slots]))
            for area, slots in self._slots.values()
        ]
        names = tuple([self.values[value] + REPLY for value in self._repliable()])
        if names:
            found.append(Lookup(session, names, chained=True))
        return tuple(found)

    def _repliable(self) -> list[str]:
        return [v for v in self.values if v in self._known and not v.startswith(("any:", SAID))]

    def _slots_of(self, value: str, mark: bytes, session: Area) -> None:
        if value.startswith((TITLE, LINK)):
            # It says which message or link; only the user's naming of its place vouches for it.
            return
        if value.startswith(SAID):
            # Words count for the session that they were said in; nothing taints them.
            self._slot(session, mark + PROMPT, value, "prompt")
            return
        memory = self.areas.memory(self.identity.tenant, mark)
        if value in self._known and not value.startswith("any:"):
            self._slot(session, mark + PROMPT, value, "prompt")
            self._slot(session, mark + ATTESTED, value, "field")
            prompts = self.areas.prompts(self.identity, mark)
            self._slot(prompts, mark + PROMPT, value, "earlier_prompt")
            self._slot(memory, mark + ATTESTED, value, "memory")
        self._slot(memory, mark + TAINTED, value, "memory_taint")
        for epoch in self.areas.epochs(self.at):
            self._slot(self.areas.taint(self.identity, mark, epoch), mark, value, "taint")

    def _slot(self, area: Area, name: bytes, value: str, place: str) -> None:
        slots = self._slots.get(id(area))
        if slots is None:
            self._slots[id(area)] = slots = (area, [])
        slots[1].append((name, value, place))

    def read(
        self, labels: tuple[tuple[object, ...], ...]
    ) -> tuple[dict[str, Evidence], Record | None, Record | None]:
        """Return what is known of each value, the session's first untrusted read, the item.

        Raises:
            ValueError: the answer does not fit the question.
        """
        groups = list(self._slots.values())
        chained = len(labels) == len(groups) + 1
        if not chained and len(labels) != len(groups):
            raise ValueError("the store answered other look-ups than were asked")
        places: dict[str, dict[str, Record]] = {}
        for (area, slots), answer in zip(groups, labels[: len(groups)], strict=True):
            for (name, value, place), raw in zip(slots, answer, strict=True):
                record = None if raw is None else self.seal.read(area, name, raw)
                if record is not None:
                    _keep(places.setdefault(value, {}), place, record)
        if chained:
            self._replies(labels[-1], places)
        whole = places.pop("", {})
        evidence = {value: Evidence(**found) for value, found in places.items()}
        return evidence, whole.get("read"), whole.get("item")

    def _replies(self, answers: tuple[object, ...], places: dict[str, dict[str, Record]]) -> None:
        """Keep the sender of each message that the user has named in this session."""
        session = self.areas.session(self.identity)
        for value, answer in zip(self._repliable(), answers, strict=True):
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
