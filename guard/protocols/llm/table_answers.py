"""Reader of answers for every API that has a table.  Pure: no I/O.

Events pass until a call starts.  From then on they wait until all calls that have started are
complete.  The subclasses in the API modules contribute what differs: the structure of an answer,
the treatment of events, and the form of the text that replaces a refused call.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import reject_lookalike_keys
from guard.protocols.llm.model_answers import (
    AnswerReader,
    Held,
    compact,
    expect_list,
    expect_room,
    join,
    proposal,
)
from guard.protocols.llm.table import CODE, ApiTable, reject_unknown_members
from guard.protocols.messages import ParsedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerEvent, Piece, Proposal
    from guard.protocols.llm.table import EventFields

Slot: TypeAlias = tuple[int, ...]
"""Position of a call in an answer."""


@dataclass(frozen=True, slots=True)
class PastCalls:
    """Facts about the calls of a conversation that later calls refer to."""

    counts: Counter[str] = field(default_factory=Counter)
    """Number of calls of each tool."""
    programs: set[str] = field(default_factory=set)
    """Ids of the programs that may make calls."""


@dataclass(slots=True)
class OpenCall:
    """A call of a stream that is not yet judged."""

    kind: str
    unit: dict[str, Json]
    """The call as it started."""
    texts: dict[int, list[str]] = field(default_factory=dict)
    """Fragments of its arguments, by position."""
    final: dict[str, Json] | None = None
    """The call as it ended."""

    def append(self, text: str, part: int = 0) -> None:
        """Add a fragment."""
        self.texts.setdefault(part, []).append(text)

    def text(self, part: int = 0) -> str:
        """Return the text so far."""
        self.texts[part] = ["".join(self.texts.get(part, ()))]
        return self.texts[part][0]


class TableAnswer(AnswerReader):
    """Reader of the answers of one API.

    Args:
        past: the calls of the request's conversation.
    """

    table: ClassVar[ApiTable]

    def __init__(self, past: PastCalls | None = None) -> None:
        super().__init__()
        self.call_members = frozenset({self.table.root})
        past = past or PastCalls()
        self.past = PastCalls(Counter(past.counts), set(past.programs))
        self.open: dict[Slot, OpenCall] = {}
        self.waiting: set[int] = set()
        """First positions of the open calls that are incomplete."""
        self.judged: dict[str, tuple[ParsedCall, str | None]] = {}
        """Judged calls by correlation, with the text in place of a refused one."""
        self.released = self.refused = 0
        """Numbers of calls that the client received and did not receive."""

    @abstractmethod
    def on_event(self, document: dict[str, Json], event: AnswerEvent) -> Sequence[Piece] | None:
        """Read an event; return its pieces if it does not wait for others."""

    @abstractmethod
    def units(self, document: dict[str, Json]) -> Iterable[tuple[Slot, dict[str, Json]]]:
        """Yield the units of a whole answer.

        Raises:
            MessageError: its structure is unknown.
        """

    @abstractmethod
    def rewrite(
        self,
        events: Sequence[AnswerEvent],
        calls: Mapping[Slot, OpenCall],
        refused: Mapping[Slot, str],
    ) -> list[bytes]:
        """Return events with a text in place of each refused call."""

    @abstractmethod
    def replace(self, document: dict[str, Json], refused: Mapping[Slot, str], calls: int) -> None:
        """Replace refused calls of a whole answer; ``calls`` is the number of all its calls."""

    def assemble(self, call: OpenCall) -> Mapping[str, Json]:
        """Return an open call as one unit.

        Raises:
            MessageError: its fragments can be read in two ways.
        """
        return call.unit

    def chunk(self, event: AnswerEvent) -> Sequence[Piece]:
        """Read one event."""
        document = event.document
        if document is None:
            return self.end()
        pieces = self.on_event(document, event)
        if pieces is not None:
            return pieces
        if not self.open:
            return [self.release()]
        return [] if self.waiting else [self._judge()]

    def end(self) -> Sequence[Piece]:
        """Judge the open calls, release the rest."""
        if self.open:
            return [self._judge()]
        return [self.release()] if self.held else []

    def body(self, raw: bytes, content: Json) -> Piece:
        """Read a whole answer."""
        documents = content if isinstance(content, list) else [content]
        calls, settle = self.whole(expect_list(documents, "an answer"))

        def settled(notices: Sequence[str | None]) -> bytes:
            changed = settle(notices)
            if changed is None:
                return raw
            return compact(changed if isinstance(content, list) else changed[0]).encode()

        return Held(calls, settled)

    def has_units(self, document: Mapping[str, Json]) -> bool:
        """Return whether an answer has the member that contains the units.

        Raises:
            MessageError: it has neither this member nor another one that explains it.
        """
        reject_lookalike_keys(document, self.call_members)
        if self.table.root in document:
            return True
        if not any(document.get(member) for member in self.table.rootless):
            raise MessageError(CODE, f"an answer must have `{self.table.root}`")
        return False

    def start(self, slot: Slot, unit: dict[str, Json], kind: str) -> OpenCall:
        """Open a call.

        Raises:
            MessageError: too many calls are open.
        """
        expect_room(len(self.open))
        self.waiting.add(slot[0])
        call = self.open[slot] = OpenCall(kind, unit)
        return call

    def call_kind(self, unit: dict[str, Json], *, is_complete: bool = True) -> str | None:
        """Return the kind of a unit that is a call, None for others; keep results for labels.

        Raises:
            MessageError: the kind is refused or unknown.
        """
        found = None
        for kind, given in self.table.units[self.table.answer].kinds(unit):
            if given == "result" and is_complete:
                self.found.append(unit)
            if given != "call":
                self.past.programs.update(self.table.programs(kind, unit))
            if given == "call" and not self.table.calls[kind].is_of_provider(unit):
                found = kind
        return found

    def read(self, kind: str, unit: Mapping[str, Json]) -> Proposal:
        """Return the call that a unit is, or the reason why it cannot be read."""
        fields = self.table.calls[kind]
        try:
            reject_lookalike_keys(unit, self.table.members.get("call", ()))
            if fields.members:
                reject_unknown_members(unit, fields.members, kind)
            inner = unit.get(kind)
            if fields.closed and (not isinstance(inner, dict) or inner.keys() - {*fields.closed}):
                raise MessageError("bad_call", "a tool call must be complete in one part")
            if not self.table.programs("", unit) <= self.past.programs:
                raise MessageError("unknown_caller", "a call names a program that does not exist")
        except MessageError as error:
            return error
        return proposal(*self.table.call_parts(kind, unit, self.past.counts))

    def whole(
        self, documents: list[dict[str, Json]]
    ) -> tuple[tuple[Proposal, ...], Callable[[Sequence[str | None]], list[Json] | None]]:
        """Return the new calls of whole answers, and the function that applies their verdicts."""
        old: list[dict[Slot, str]] = []
        new: list[tuple[int, Slot]] = []
        calls: list[Proposal] = []
        counts: list[int] = []
        for number, document in enumerate(documents):
            old.append({})
            units = [(slot, unit, self.call_kind(unit)) for slot, unit in self.units(document)]
            made = [(slot, unit, kind) for slot, unit, kind in units if kind is not None]
            counts.append(len(made))
            for slot, unit, kind in made:
                call = self.read(kind, unit)
                key = call.correlation if isinstance(call, ParsedCall) else None
                judged = self.judged.get(key or "")
                if judged is None or judged[0] != call:
                    expect_room(len(calls))
                    new.append((number, slot))
                    calls.append(call)
                elif judged[1] is not None:
                    old[number][slot] = judged[1]

        def settle(notices: Sequence[str | None]) -> list[Json] | None:
            refused = [dict(known) for known in old]
            for (number, slot), notice in zip(new, notices, strict=True):
                if notice is not None:
                    refused[number][slot] = notice
            if not any(refused):
                return None
            changed = copy.deepcopy(documents)
            for document, inside, count in zip(changed, refused, counts, strict=True):
                self.replace(document, inside, count)
            return list(changed)

        return tuple(calls), settle

    def _proposal(self, call: OpenCall) -> Proposal:
        try:
            unit = self.assemble(call)
        except MessageError as error:
            return error
        return self.read(call.kind, unit)

    def _judge(self) -> Held:
        events, calls = self.take(), self.open
        self.open, self.waiting = {}, set()
        slots = sorted(calls)
        proposals = tuple(self._proposal(calls[slot]) for slot in slots)

        def settle(notices: Sequence[str | None]) -> bytes:
            for call, notice in zip(proposals, notices, strict=True):
                self.released += notice is None
                self.refused += notice is not None
                if isinstance(call, ParsedCall) and call.correlation:
                    self.judged[call.correlation] = (call, notice)
            refused = {s: n for s, n in zip(slots, notices, strict=True) if n is not None}
            return b"".join(self.rewrite(events, calls, refused)) if refused else join(events)

        return Held(proposals, settle)


class IndexedAnswer(TableAnswer):
    """Reader of streams whose events name the position of their unit."""

    @abstractmethod
    def replacement(self, document: dict[str, Json], notice: str) -> list[bytes]:
        """Return the events of a text in place of the unit that an event starts."""

    def on_event(self, document: dict[str, Json], event: AnswerEvent) -> Sequence[Piece] | None:
        """Read an event as the table says."""
        kind = document.get("type")
        fields = self.table.event(kind)
        if event.name not in {kind, "message"}:
            raise MessageError(CODE, "an event has two types")
        reject_lookalike_keys(document, self.table.members["event"])
        read: Callable[[dict[str, Json], EventFields, str], Sequence[Piece] | None]
        read = getattr(self, f"on_{fields.do}")
        return read(document, fields, event.name)

    def slot(self, document: Mapping[str, Json]) -> Slot:
        """Return the position of an event's unit.

        Raises:
            MessageError: it has none.
        """
        return (_position(document.get(self.table.index)),)

    def part(self, document: Mapping[str, Json]) -> int:
        """Return the position of an event's text in its unit."""
        return _position(document.get(self.table.part, 0))

    def rewrite(
        self,
        events: Sequence[AnswerEvent],
        calls: Mapping[Slot, OpenCall],
        refused: Mapping[Slot, str],
    ) -> list[bytes]:
        """Put the text where the first event of a refused call was, drop its other events."""
        del calls
        out: list[bytes] = []
        replaced: set[Json] = set()
        for event in events:
            document = event.document or {}
            index = document.get(self.table.index)
            if not isinstance(index, int) or (index,) not in refused:
                out.append(event.raw)
            elif index not in replaced:
                replaced.add(index)
                out += self.replacement(document, refused[index,])
        return out


def _position(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise MessageError(CODE, "an event must have the position of its unit")
    return value
