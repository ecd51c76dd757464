"""Readers of answers: one for every API that has a table, and that of Chat Completions.

Pure: no I/O.

Events pass until a call starts.  From then on they wait until all calls that have started are
complete.  A text takes the place of a refused call, in the form that the table gives.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import dataclass, field
from string import Template
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import reject_lookalike_keys
from guard.protocols.llm.model_answers import (
    AnswerEvent,
    AnswerReader,
    Held,
    Piece,
    Proposal,
    compact,
    expect_list,
    expect_room,
    expect_text,
    join,
    proposal,
    render_event,
)
from guard.protocols.llm.table import CODE, ApiTable, dig, reject_unknown_members
from guard.protocols.messages import ParsedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from guard.core.model import Json

Slot: TypeAlias = tuple[int, ...]
"""Position of a call in an answer."""
Place: TypeAlias = "tuple[Slot, list[dict[str, Json]], int]"
"""A position, and the list and index at which the unit is."""


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
    """Reader of an answer.

    Args:
        table: the table of its API.
        past: the calls of the request's conversation.
    """

    def __init__(self, table: ApiTable, past: PastCalls | None = None) -> None:
        super().__init__()
        self.table, self.answer = table, table.answer
        self.call_members = frozenset({self.answer["root"]})
        self.sign = self.answer.get("sign", "").encode() or self.sign
        past = past or PastCalls()
        self._past = PastCalls(Counter(past.counts), set(past.programs))
        self.open: dict[Slot, OpenCall] = {}
        self.waiting: set[int] = set()
        """First positions of the open calls that are incomplete."""
        self._classes: dict[Slot, str] = {}
        """Class of each unit that a stream has started."""
        self._judged: dict[str, tuple[ParsedCall, str | None]] = {}
        """Judged calls by correlation, with the text in place of a refused one."""
        self._notices: list[str | None] = []
        """Texts in place of the calls so far, None for those that were released."""

    def chunk(self, name: str, document: dict[str, Json] | None) -> Sequence[Piece]:
        """Read one event."""
        if document is None:
            return self.end()
        pieces = self.on_event(document, name)
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
        """Read a whole answer, or the list of events that a stream without framing is."""
        documents = content if isinstance(content, list) else [content]

        def render(changed: list[Json]) -> bytes:
            return compact(changed if isinstance(content, list) else changed[0]).encode()

        return self._whole(expect_list(documents, "an answer"), raw, render)

    # Events

    def on_event(self, document: dict[str, Json], name: str) -> Sequence[Piece] | None:
        """Read an event as the table says; return its pieces if it does not wait for others."""
        if "index" not in self.answer:
            return [self._repeated(document, name, "")]
        kind = document.get("type")
        fields = self.table.event(kind)
        if name not in {kind, "message"}:
            raise MessageError(CODE, "an event has two types")
        reject_lookalike_keys(document, self.answer["event"])
        if not self.answer["end_repeats"]:
            reject_unknown_members(document, self.answer["event"], "an event")
        if fields["do"] == "pass":
            return self._pass(document, name)
        if fields["do"] == "close":
            return [self._close(document, name)]
        slot = (position(document.get(self.answer["index"])),)
        if fields["do"] in {"start", "finish"}:
            self._start_or_finish(slot, document, is_end=fields["do"] == "finish")
        else:
            self._append(slot, document, fields)
        return None

    def _start_or_finish(self, slot: Slot, document: dict[str, Json], *, is_end: bool) -> None:
        """Start or end a unit.  In some APIs its end repeats it, and its start may be missing."""
        unit = document.get(self.answer["unit"])
        is_repeated = self.answer["end_repeats"]
        call = self.open.get(slot)
        if not is_end or is_repeated:
            if not isinstance(unit, dict) or (slot in self._classes and not is_end):
                raise MessageError(CODE, "a unit must be an object and start once")
            kind = self._call_kind(unit, is_complete=is_end or not is_repeated)
            self._classes[slot] = self.table.units[self.answer["units"]].classes[unit["type"]]
            if call is not None and (kind != call.kind or call.final is not None):
                raise MessageError(CODE, "a unit has two types or ended twice")
            if kind is not None:
                call = call or self.start(slot, unit, kind)
                call.final = unit if is_end else None
        if is_end:
            self.waiting.discard(slot[0])

    def _append(self, slot: Slot, document: dict[str, Json], fields: Mapping[str, str]) -> None:
        """Add a fragment to the arguments of a call, or compare them with their fragments."""
        member, source = fields.get("member", ""), document
        given = self._classes.get(slot, "")
        if self.table.deltas:
            source = document.get("delta") or {}
            kind = str(dig(source, "type"))
            if kind not in self.table.deltas:
                raise MessageError("unknown_kind", f"deltas of type `{kind[:40]}` are not known")
            member = self.table.deltas[kind]
            if given and given != "call" and (not member or given == "inert"):
                return
        if given != "call" or slot[0] not in self.waiting or not member:
            raise MessageError(CODE, "arguments of a call that has not started or has ended")
        text = expect_text(source.get(member), member)
        part = position(document.get(self.answer.get("part", ""), 0))
        if fields["do"] == "append":
            self.open[slot].append(text, part)
        elif self.open[slot].text(part) != text:
            raise MessageError(CODE, "a call has two different arguments")

    def _pass(self, document: dict[str, Json], name: str) -> Sequence[Piece] | None:
        """Pass an event; judge the calls of an answer that it repeats."""
        if self.answer["unit"] in document:
            raise MessageError(CODE, "an event of this type has no unit")
        if self.answer["repeats"] not in document:
            return None
        whole = document[self.answer["repeats"]]
        if self.open or not isinstance(whole, dict):
            raise MessageError(CODE, "an answer must be an object and not end inside a call")
        if not self.answer["end_repeats"] and (whole.get(self.answer["root"]) or self._classes):
            raise MessageError(CODE, "a message must start empty, once")
        return [self._repeated(document, name, self.answer["repeats"])]

    def _repeated(self, document: dict[str, Json], name: str, member: str) -> Piece:
        raw, name = self.release(), "" if name == "message" else name

        def render(changed: list[Json]) -> bytes:
            return render_event({**document, member: changed[0]} if member else changed[0], name)

        return self._whole([document[member] if member else document], raw, render)

    def _close(self, document: dict[str, Json], name: str) -> bytes:
        """Return the event with the reason for the end, true to the calls that were released."""
        if self.open or not isinstance(document.get("delta"), dict):
            raise MessageError(CODE, "the end of a message must be an object outside its calls")
        raw, changed = self.release(), copy.deepcopy(document)
        self._end_without_calls(changed["delta"], self._notices)
        return raw if changed == document else render_event(changed, name)

    def _end_without_calls(self, ended: dict[str, Json], notices: Sequence[str | None]) -> None:
        """Correct the reason for the end if no call was released."""
        member, calls, text = self.answer.get("ends", ("", "", ""))
        if notices and None not in notices and ended.get(member) == calls:
            ended[member] = text

    # Calls

    def start(self, slot: Slot, unit: dict[str, Json], kind: str) -> OpenCall:
        """Open a call.

        Raises:
            MessageError: too many calls are open.
        """
        expect_room(len(self.open))
        self.waiting.add(slot[0])
        self.open[slot] = OpenCall(kind, unit)
        return self.open[slot]

    def _call_kind(self, unit: dict[str, Json], *, is_complete: bool = True) -> str | None:
        """Return the kind of a unit that is a call, None for others; keep results for labels.

        Raises:
            MessageError: the kind is refused or unknown.
        """
        units = self.table.units[self.answer["units"]]
        found: str | None = units.default or None
        for kind, given in units.kinds(unit):
            if given == "result" and is_complete:
                self.found.append(unit)
            if given == "call":
                unless = self.table.calls[kind].get("unless")
                found = found if unless and unless.items() <= unit.items() else kind
            else:
                self._past.programs.update(self.table.programs(kind, unit))
        return found

    def assemble(self, call: OpenCall) -> dict[str, Json]:
        """Return an open call as one unit, if its start, its fragments and its end agree.

        Raises:
            MessageError: they do not.
        """
        fields = self.table.calls[call.kind]
        path = fields.get("arguments") or fields.get("text") or fields.get("streamed") or ""
        if not self.answer["end_repeats"]:
            if call.text() and call.unit.get(path):
                raise MessageError("bad_call", "a tool call has its arguments twice")
            return {**call.unit, path: call.text() or call.unit.get(path)}
        if call.final is None:
            raise MessageError("bad_call", "a call never ended")
        complete = dig(call.final, path)
        whole = dict(enumerate(complete if isinstance(complete, list) else [complete]))
        if any(call.text(part) not in {"", whole.get(part)} for part in call.texts):
            raise MessageError("bad_call", "a call has two different arguments")
        for member in ("name", "call_id", "type"):
            if call.unit.get(member) not in (None, call.final.get(member)):
                raise MessageError("bad_call", f"a call has two different `{member}`")
        return call.final

    def _read(self, kind: str, unit: Mapping[str, Json]) -> Proposal:
        """Return the call that a unit is, or the reason why it cannot be read."""
        fields, inner = self.table.calls[kind], unit.get(kind)
        try:
            if "members" in fields:
                reject_unknown_members(unit, fields["members"], kind)
            reject_lookalike_keys(unit, self.answer.get("call", ()))
            if "closed" in fields and not (
                isinstance(inner, dict) and inner.keys() <= {*fields["closed"]}
            ):
                raise MessageError("bad_call", "a tool call must be complete in one part")
            if not self.table.programs("", unit) <= self._past.programs:
                raise MessageError("bad_call", "a call names a program that does not exist")
        except MessageError as error:
            return error
        return proposal(*self.table.call_parts(kind, unit, self._past.counts))

    def _judge(self) -> Held:
        events, calls = self.take(), self.open
        self.open, self.waiting = {}, set()
        slots = sorted(calls)
        proposals = tuple(self._proposal(calls[slot]) for slot in slots)

        def settle(notices: Sequence[str | None]) -> bytes:
            self._notices += notices
            for call, notice in zip(proposals, notices, strict=True):
                if isinstance(call, ParsedCall) and call.correlation:
                    self._judged[call.correlation] = (call, notice)
            refused = {s: n for s, n in zip(slots, notices, strict=True) if n is not None}
            return b"".join(self.rewrite(events, calls, refused)) if refused else join(events)

        return Held(proposals, settle)

    def _proposal(self, call: OpenCall) -> Proposal:
        try:
            return self._read(call.kind, self.assemble(call))
        except MessageError as error:
            return error

    def rewrite(
        self,
        events: Sequence[AnswerEvent],
        calls: Mapping[Slot, OpenCall],
        refused: Mapping[Slot, str],
    ) -> list[bytes]:
        """Put a text where the first event of a refused call was; drop its other events."""
        out: list[bytes] = []
        replaced: set[int] = set()
        for event in events:
            document = event.document or {}
            index = document.get(self.answer["index"])
            if not isinstance(index, int) or (index,) not in refused:
                out.append(event.raw)
            elif index not in replaced:
                replaced.add(index)
                unit, number = document[self.answer["unit"]], document.get("sequence_number")
                for template in self.answer["text_events"]:
                    made = self._filled(template, unit, index, refused[index,], number)
                    out.append(render_event(made, made["type"]))
        return out

    def _filled(
        self, template: str, unit: Mapping[str, Json], index: int, notice: str, number: Json = 0
    ) -> dict[str, Json]:
        """Return the JSON of a template with a text in place of a unit."""
        identifier = json.dumps(str(unit.get("id") or index))[1:-1]
        values = {"index": index, "number": json.dumps(number), "id": identifier}
        unit_text = Template(self.answer["text_unit"]).substitute(values, notice=json.dumps(notice))
        text = Template(template).substitute(values, notice=json.dumps(notice), unit=unit_text)
        filled: dict[str, Json] = json.loads(text)
        return filled

    # Whole answers

    def places(self, document: dict[str, Json]) -> Iterator[Place]:
        """Yield the units of a whole answer.

        Raises:
            MessageError: its structure is unknown.
        """
        return self._places(document, self.answer["path"], ())

    def has_units(self, document: Mapping[str, Json]) -> bool:
        """Return whether an answer has the member that contains the units.

        Raises:
            MessageError: it has neither this member nor another one that explains it.
        """
        reject_lookalike_keys(document, self.call_members)
        root = self.answer["root"]
        if root not in document and not any(document.get(m) for m in self.answer["rootless"]):
            raise MessageError(CODE, f"an answer must have `{root}`")
        return root in document

    def _places(self, value: dict[str, Json], path: Sequence[str], slot: Slot) -> Iterator[Place]:
        member, is_list = path[0].removesuffix("[]"), path[0].endswith("[]")
        if member == self.answer["root"] and not self.has_units(value):
            return
        reject_unknown_members(value, self.answer["members"].get(member, value), "an answer")
        inner = value.get(member)
        found = expect_list(inner if is_list else [inner] if inner else [], member)
        for index, unit in enumerate(found):
            inside = (*slot, index) if is_list else slot
            if path[1:]:
                yield from self._places(unit, path[1:], inside)
            else:
                yield inside, found, index

    def replace(self, document: dict[str, Json], notices: Mapping[Slot, str | None]) -> None:
        """Put texts in place of the refused calls of a whole answer."""
        for slot, units, index in list(self.places(document)):
            notice = notices.get(slot)
            if notice is not None:
                unit = self._filled(self.answer["text_unit"], units[index], index, notice)
                units[index] = unit
        self._end_without_calls(document, [*notices.values()])
        # Probabilities name the tokens, and so the arguments.
        for candidate in document[self.answer["root"]] if "drop" in self.answer else ():
            candidate.pop(self.answer["drop"], None)

    def _whole(
        self,
        documents: list[dict[str, Json]],
        raw: bytes,
        render: Callable[[list[Json]], bytes],
    ) -> Held:
        """Return whole answers with their new calls, to be rendered where one is refused."""
        verdicts: list[dict[Slot, str | None]] = []
        new: list[tuple[int, Slot]] = []
        calls: list[Proposal] = []
        for number, document in enumerate(documents):
            verdicts.append({})
            units = [(slot, found[index]) for slot, found, index in self.places(document)]
            kinds = [self._call_kind(unit) for _, unit in units]
            for (slot, unit), kind in zip(units, kinds, strict=True):
                if kind is None:
                    continue
                call = self._read(kind, unit)
                key = call.correlation if isinstance(call, ParsedCall) else None
                judged, notice = self._judged.get(key or "", (None, None))
                if slot in verdicts[number]:
                    raise MessageError(CODE, "two calls have the same position")
                verdicts[number][slot] = notice
                if judged is None or judged != call:
                    expect_room(len(calls))
                    new.append((number, slot))
                    calls.append(call)

        def settle(notices: Sequence[str | None]) -> bytes:
            for (number, slot), notice in zip(new, notices, strict=True):
                verdicts[number][slot] = notice
            changed: list[Json] = copy.deepcopy(documents)
            for document, inside in zip(changed, verdicts, strict=True):
                if any(notice is not None for notice in inside.values()):
                    self.replace(document, inside)
            return raw if changed == documents else render(changed)

        return Held(tuple(calls), settle)


def position(value: Json) -> int:
    """Return a position.

    Raises:
        MessageError: the value is not a position.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MessageError(CODE, "an event must have the position of its unit")
    return value


LEGACY: Final = -1
"""The position of a ``function_call`` among the calls of a choice."""
_OTHER: Final = {"delta": "message", "message": "delta"}


class ChatAnswer(TableAnswer):
    """Reader of a completion or of its chunks."""

    def on_event(self, document: dict[str, Json], name: str) -> None:
        """Read the fragments of a chunk."""
        for index, choice, fragments in self._choices(document, "delta"):
            if fragments and (index,) in self._classes:
                raise MessageError(CODE, "a tool call after the end of its choice")
            for place, fragment in fragments:
                call = self.open.get((index, place)) or self.start((index, place), {}, "")
                self._merge(call, fragment)
            if choice.get("finish_reason") is not None:
                self._classes[index,] = "finished"
                self.waiting.discard(index)

    def _choices(
        self, document: dict[str, Json], member: str
    ) -> Iterator[tuple[int, dict[str, Json], list[tuple[int, dict[str, Json]]]]]:
        """Yield index, choice and calls by position.

        Args:
            document: a completion or a chunk of it.
            member: the member of a choice with the calls.
        """
        if member == "message" and not self.has_units(document):
            return
        members = self.answer["members"]
        reject_unknown_members(document, members["choices"], "an answer")
        for choice in expect_list(document.get("choices"), "choices"):
            reject_unknown_members(choice, members["choice"], "a choice")
            index, message = position(choice.get("index", 0)), choice.get(member)
            message = {} if message is None else message
            if not isinstance(message, dict) or choice.get(_OTHER[member]):
                raise MessageError(CODE, f"a choice must have a `{member}` and not the other one")
            reject_unknown_members(message, members["message"], "a message")
            calls = [
                (position(call.get("index")) if member == "delta" else number, call)
                for number, call in enumerate(expect_list(message.get("tool_calls"), "tool_calls"))
            ]
            if (legacy := message.get("function_call")) is not None:
                name = dig(legacy, "name")
                calls.append((LEGACY, {"id": f"name:{name}" if name else "", "function": legacy}))
            for _, call in calls:
                kinds = self.table.calls.keys() & call.keys()
                inner = (call[min(kinds)] if kinds else None) or {}
                if len(kinds) > 1 or not isinstance(inner, dict):
                    raise MessageError(CODE, "a tool call must be one object")
                reject_unknown_members(inner, members["function"], "a tool call")
            yield index, choice, calls

    def _merge(self, call: OpenCall, fragment: dict[str, Json]) -> None:
        """Add a fragment: id, kind and name come once, the arguments in pieces."""
        kind = next((one for one in self.table.calls if one in fragment), call.kind) or "function"
        self._call_kind(fragment)
        if call.kind not in {"", kind}:
            raise MessageError(CODE, "a tool call is of two kinds")
        call.kind, inner = kind, fragment.get(kind) or {}
        known = call.unit.setdefault(kind, {})
        for whole, part, member in ((call.unit, fragment, "id"), (known, inner, "name")):
            text = expect_text(part.get(member), member)
            if text and whole.get(member):
                raise MessageError(CODE, f"a tool call has its {member} twice")
            whole[member] = whole.get(member) or text
        argument = self._argument(kind)
        call.append(expect_text(inner.get(argument), argument))
        call.unit = {**fragment, **call.unit}

    def _argument(self, kind: str) -> str:
        fields = self.table.calls[kind]
        return str(fields.get("arguments") or fields["text"]).removeprefix(f"{kind}.")

    def assemble(self, call: OpenCall) -> dict[str, Json]:
        """Return a call with all its arguments."""
        inner = {**call.unit[call.kind], self._argument(call.kind): call.text()}
        return {**call.unit, call.kind: inner}

    def rewrite(
        self,
        events: Sequence[AnswerEvent],
        calls: Mapping[Slot, OpenCall],
        refused: Mapping[Slot, str],
    ) -> list[bytes]:
        """Drop the fragments; the first one gives way to the texts and the other calls."""
        out: list[bytes] = []
        units = {slot: self.assemble(call) for slot, call in calls.items()}
        done: set[int] = set()
        for event in events:
            document = event.document or {}
            for choice in document.get("choices") or ():
                index = choice.get("index", 0)
                if _replace_calls(choice, "delta", units, refused, is_first=index not in done):
                    done.add(index)
            if document == (event.document or {}):
                out.append(event.raw)
            elif document.get("usage") or any(
                choice.get("delta") or choice.get("finish_reason") is not None
                for choice in document["choices"]
            ):
                out.append(render_event(document))
        return out

    def places(self, document: dict[str, Json]) -> Iterator[Place]:
        """Yield the calls."""
        for index, _, calls in self._choices(document, "message"):
            for place, call in calls:
                yield (index, place), [call], 0

    def replace(self, document: dict[str, Json], notices: Mapping[Slot, str | None]) -> None:
        """Take the refused calls out of their choices, and add the texts."""
        units = {slot: found[index] for slot, found, index in self.places(document)}
        refused = {slot: notice for slot, notice in notices.items() if notice is not None}
        for choice in document["choices"]:
            _replace_calls(choice, "message", units, refused, is_first=True)


def _replace_calls(
    choice: dict[str, Json],
    member: str,
    units: Mapping[Slot, dict[str, Json]],
    refused: Mapping[Slot, str],
    *,
    is_first: bool,
) -> bool:
    """Take all calls out of a choice with a refused one; add texts and other calls at the first.

    Returns:
        whether it had calls.
    """
    index, message = choice.get("index", 0), choice.get(member) or {}
    texts = [notice for slot, notice in sorted(refused.items()) if slot[0] == index]
    if not texts:
        return False
    had_calls = any([message.pop("tool_calls", None), message.pop("function_call", None)])
    kept = [(s[1], units[s]) for s in sorted(units) if s[0] == index and s not in refused]
    # Probabilities name the tokens, and so the arguments.
    if "logprobs" in choice:
        choice["logprobs"] = None
    if choice.get("finish_reason") is not None and not kept:
        choice["finish_reason"] = "stop"
    if had_calls and is_first:
        content, notice = message.get("content"), "\n".join(texts)
        if isinstance(content, list):
            message["content"] = [*content, {"type": "text", "text": notice}]
        else:
            message["content"] = f"{content}\n\n{notice}" if content else notice
        if kept and kept[0][0] == LEGACY:
            message["function_call"] = kept.pop(0)[1]["function"]
        if kept:
            is_delta = member == "delta"
            numbers = ({"index": number} if is_delta else {} for number in range(len(kept)))
            message["tool_calls"] = [
                {**unit, **number} for (_, unit), number in zip(kept, numbers, strict=True)
            ]
    return had_calls
