"""OpenAI Chat Completions: fragments of calls, and the text in place of a refused one.

Pure: no I/O.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import expect_list, expect_text, render_event
from guard.protocols.llm.table import CODE, ApiTable, dig, load_table, reject_unknown_members
from guard.protocols.llm.table_answers import OpenCall, PastCalls, TableAnswer
from guard.protocols.llm.table_requests import TableApi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerEvent
    from guard.protocols.llm.table_answers import Slot
    from guard.protocols.messages import Message

TABLE: Final = load_table("openai_chat")
LEGACY: Final = -1
"""The position of a ``function_call`` among the calls of a choice."""


class ChatAnswer(TableAnswer):
    """Reader of a completion: a list of choices, whose calls come in fragments."""

    table: ClassVar[ApiTable] = TABLE

    def __init__(self, past: PastCalls | None = None) -> None:
        super().__init__(past)
        self._finished: set[int] = set()

    def on_event(self, document: dict[str, Json], event: AnswerEvent) -> None:
        """Read the fragments of a chunk."""
        del event
        for index, choice, fragments in self._choices(document, "delta"):
            if fragments and index in self._finished:
                raise MessageError(CODE, "a tool call after the end of its choice")
            for place, fragment in fragments:
                call = self.open.get((index, place)) or self.start((index, place), {}, "")
                self._merge(call, fragment)
            if choice.get("finish_reason") is not None:
                self._finished.add(index)
                self.waiting.discard(index)

    def _choices(
        self, document: dict[str, Json], member: str
    ) -> Iterator[tuple[int, dict[str, Json], list[tuple[int, dict[str, Json]]]]]:
        """Yield index, choice and calls by position.

        Args:
            document: a completion or a chunk of it.
            member: the member of a choice with the calls.
        """
        if not self.has_units(document):
            return
        reject_unknown_members(document, self.table.members["answer"], "an answer")
        for choice in expect_list(document["choices"], "choices"):
            reject_unknown_members(choice, self.table.members["choice"], "a choice")
            index, message = _position(choice.get("index", 0)), choice.get(member)
            message = {} if message is None else message
            if not isinstance(message, dict) or choice.get(_OTHER[member]):
                raise MessageError(CODE, f"a choice must have a `{member}` and not the other one")
            reject_unknown_members(message, self.table.members["message"], "a message")
            calls = [
                (_position(call.get("index")) if member == "delta" else number, call)
                for number, call in enumerate(expect_list(message.get("tool_calls"), "tool_calls"))
            ]
            if (legacy := message.get("function_call")) is not None:
                name = dig(legacy, "name")
                call = {"id": f"name:{name}"} if name else {}
                calls.append((LEGACY, {**call, "function": legacy}))
            yield index, choice, calls

    def _merge(self, call: OpenCall, fragment: dict[str, Json]) -> None:
        """Add a fragment: id, kind and name come once, the arguments in pieces."""
        kind = self.call_kind(fragment) or call.kind or "function"
        if (call.kind and kind != call.kind) or {*self.table.calls} <= fragment.keys():
            raise MessageError(CODE, "a tool call is a function or custom, not both")
        call.kind, fields = kind, self.table.calls[kind]
        argument = (fields.arguments or fields.text).partition(".")[2]
        inner = fragment.get(kind) or {}
        if not isinstance(inner, dict):
            raise MessageError(CODE, "the function of a tool call must be an object")
        reject_unknown_members(inner, {"name", argument}, "the function of a tool call")
        known = call.unit.setdefault(kind, {"name": ""})
        for whole, part, member in ((call.unit, fragment, "id"), (known, inner, "name")):
            text = expect_text(part.get(member), member)
            if text and whole.get(member):
                raise MessageError(CODE, f"a tool call has its {member} twice")
            whole[member] = whole.get(member) or text
        call.append(expect_text(inner.get(argument), argument))
        known[argument] = ""
        call.unit = {**fragment, **call.unit}

    def assemble(self, call: OpenCall) -> dict[str, Json]:
        """Return the call with all its arguments."""
        fields = self.table.calls[call.kind]
        argument = (fields.arguments or fields.text).partition(".")[2]
        return {**call.unit, call.kind: {**call.unit[call.kind], argument: call.text()}}

    def rewrite(
        self,
        events: Sequence[AnswerEvent],
        calls: Mapping[Slot, OpenCall],
        refused: Mapping[Slot, str],
    ) -> list[bytes]:
        """Drop the fragments; the first one gives way to the text and the calls that are kept."""
        out: list[bytes] = []
        units = {slot: self.assemble(call) for slot, call in calls.items()}
        pending = {slot[0] for slot in refused}
        touched = {*pending}
        for event in events:
            document = copy.deepcopy(event.document) or {}
            for choice in document.get("choices") or []:
                index, message = choice.get("index", 0), choice.get("delta") or {}
                if index in touched:
                    parts = _of_choice(index, units, refused)
                    if _strip(choice, message, is_empty=not parts[1]) and index in pending:
                        pending.remove(index)
                        _add(message, *parts, is_delta=True)
            if document == (event.document or {}):
                out.append(event.raw)
            elif _says_something(document):
                out.append(render_event(document))
        return out

    def units(self, document: dict[str, Json]) -> Iterator[tuple[Slot, dict[str, Json]]]:
        """Yield the calls."""
        seen: set[Slot] = set()
        for index, _, calls in self._choices(document, "message"):
            for place, fragment in calls:
                if (index, place) in seen:
                    raise MessageError(CODE, "two choices have the same index")
                seen.add((index, place))
                call = OpenCall("", {})
                self._merge(call, fragment)
                yield (index, place), self.assemble(call)

    def replace(self, document: dict[str, Json], refused: Mapping[Slot, str], calls: int) -> None:
        """Take the refused calls out of their choices, and add the texts."""
        del calls
        units = dict(self.units(document))
        for choice in document["choices"]:
            texts, kept = _of_choice(choice.get("index", 0), units, refused)
            if texts:
                _strip(choice, choice["message"], is_empty=not kept)
                _add(choice["message"], texts, kept, is_delta=False)


def _of_choice(
    index: int, units: Mapping[Slot, Json], refused: Mapping[Slot, str]
) -> tuple[list[str], dict[int, Json]]:
    """Return the texts for the refused calls of a choice, and its other calls by position."""
    texts = [notice for slot, notice in sorted(refused.items()) if slot[0] == index]
    kept = {slot[1]: u for slot, u in units.items() if slot[0] == index and slot not in refused}
    return texts, kept


_OTHER: Final = {"delta": "message", "message": "delta"}


def _position(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MessageError(CODE, "a choice and a tool call must have a position")
    return value


def _strip(choice: dict[str, Json], message: dict[str, Json], *, is_empty: bool) -> bool:
    """Take all calls out of a choice; return whether it had any."""
    found = [message.pop(member, None) for member in ("tool_calls", "function_call")]
    # Probabilities name the tokens, and so the arguments.
    if "logprobs" in choice:
        choice["logprobs"] = None
    if choice.get("finish_reason") is not None and is_empty:
        choice["finish_reason"] = "stop"
    return any(found)


def _add(
    message: dict[str, Json], texts: list[str], kept: Mapping[int, Json], *, is_delta: bool
) -> None:
    """Add texts and calls to a message or a delta."""
    content, notice = message.get("content"), "\n".join(texts)
    if isinstance(content, list):
        message["content"] = [*content, {"type": "text", "text": notice}]
    else:
        message["content"] = f"{content}\n\n{notice}" if content else notice
    if LEGACY in kept:
        message["function_call"] = kept[LEGACY]["function"]
    calls = [kept[place] for place in sorted(kept) if place != LEGACY]
    if calls:
        numbered = [{**call, "index": number} for number, call in enumerate(calls)]
        message["tool_calls"] = numbered if is_delta else calls


def _says_something(document: Mapping[str, Json]) -> bool:
    choices = document.get("choices") or []
    return bool(document.get("usage")) or any(
        choice.get("delta") or choice.get("finish_reason") is not None for choice in choices
    )


class OpenAiChatProtocol(TableApi):
    """``POST …/chat/completions``."""

    name: ClassVar[str] = TABLE.name
    table: ClassVar[ApiTable] = TABLE

    def answer_reader(self, message: Message) -> ChatAnswer:
        """Return the reader of a completion."""
        return ChatAnswer(message.parsed)
