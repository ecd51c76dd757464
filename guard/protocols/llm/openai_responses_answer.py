"""A Responses answer on its way back: calls held, judged, replaced.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols import ParsedCall
from guard.protocols.framing.jsonrpc import refuse_lookalikes
from guard.protocols.llm.model_answers import (
    CODE,
    AnswerEvent,
    AnswerReader,
    Held,
    compact,
    expect_list,
    expect_text,
    join,
    render_event,
)
from guard.protocols.llm.openai_responses_parts import (
    ADDED,
    CALLS,
    ITEM_DONE,
    WholeResponse,
    kind_of,
    read_item,
    rewritten,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import Piece, Proposal

_DELTAS: Final = {
    "response.function_call_arguments.delta": "delta",
    "response.custom_tool_call_input.delta": "delta",
}
_DONES: Final = {
    "response.function_call_arguments.done": "arguments",
    "response.custom_tool_call_input.done": "input",
}
_OTHER: Final = (
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.completed",
    "response.failed",
    "response.incomplete",
    "response.content_part.",
    "response.output_text.",
    "response.refusal.",
    "response.reasoning",
    "response.audio.",
    "response.web_search_call.",
    "response.file_search_call.",
    "response.code_interpreter_call",
    "response.image_generation_call.",
    "response.mcp_call",
    "response.mcp_list_tools.",
    "error",
    "keepalive",
)
"""Beginnings of the types of events that carry no call, but for the items of their response."""
_MEMBERS: Final = ("type", "response", "item", "output_index", "delta", "arguments", "input")


@dataclass(slots=True)
class _Item:
    """An item that is a call, as far as it has come."""

    first: Mapping[str, Json]
    text: str = ""
    final: dict[str, Json] | None = None

    def proposal(self) -> Proposal:
        """Return the call, if every place that names its arguments agrees."""
        if self.final is None:
            return MessageError("bad_call", "a call never ended")
        spelt = self.final.get("arguments", self.final.get("input", ""))
        if self.text and self.text != spelt:
            return MessageError("bad_call", "a call has two different arguments")
        for key in ("name", "call_id", "type"):
            if self.first.get(key) not in {None, self.final.get(key)}:
                return MessageError("bad_call", f"a call has two different `{key}`")
        return read_item(self.final)


class ResponsesAnswer(AnswerReader):
    """Holds from the start of a call's item until every such item is complete."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, _Item] = {}
        self._judged: dict[str, tuple[ParsedCall, str | None]] = {}
        """Calls that were judged by their id, with the words in the place of a refused one."""

    def chunk(self, event: AnswerEvent) -> Sequence[Piece]:
        """Take in one event."""
        document = event.document
        if document is None:
            return self.end()
        refuse_lookalikes(document, _MEMBERS)
        kind = document.get("type")
        if event.name not in {kind, "message"}:
            raise MessageError(CODE, "an event has two types")
        if kind in {ADDED, ITEM_DONE}:
            self._take_item(document, done=kind == ITEM_DONE)
        elif kind in _DELTAS or kind in _DONES:
            self._take_text(document)
        elif not str(kind).startswith(_OTHER) or "item" in document:
            raise MessageError(CODE, "an event is not one of this api")
        elif "response" in document:
            return [*self.end_items(), self._snapshot(event)]
        if not self._open:
            return [self.release()]
        return [] if any(i.final is None for i in self._open.values()) else [self._judge()]

    def _take_item(self, document: Mapping[str, Json], *, done: bool) -> None:
        index, item = _index(document), document.get("item")
        if not isinstance(item, dict):
            raise MessageError(CODE, "an item must be an object")
        if kind_of(item) not in CALLS:
            if index in self._open:
                raise MessageError(CODE, "an item has two types")
            return
        if not done and index in self._open:
            raise MessageError(CODE, "an item started twice")
        held = self._open.setdefault(index, _Item(item))
        if done and held.final is not None:
            raise MessageError(CODE, "an item ended twice")
        if done:
            held.final = item

    def _take_text(self, document: Mapping[str, Json]) -> None:
        item, kind = self._open.get(_index(document)), document["type"]
        if item is None or item.final is not None:
            raise MessageError(CODE, "arguments of a call that has not started or has ended")
        if kind in _DELTAS:
            item.text += expect_text(document.get("delta"), "delta")
        elif expect_text(document.get(_DONES[kind]), _DONES[kind]) != item.text:
            raise MessageError(CODE, "a call has two different arguments")

    def end_items(self) -> list[Piece]:
        """Check that no item is open before the event that was just taken in."""
        if self._open:
            raise MessageError(CODE, "a response ended inside a call")
        return []

    def _judge(self) -> Held:
        events, items = self.take(), self._open
        self._open = {}
        order = sorted(items)
        calls = tuple(items[index].proposal() for index in order)

        def settle(notices: Sequence[str | None]) -> bytes:
            refused: dict[int, tuple[str, str]] = {}
            for index, call, notice in zip(order, calls, notices, strict=True):
                self._note(call, notice)
                if notice is not None:
                    refused[index] = (str(items[index].first.get("id") or index), notice)
            return b"".join(rewritten(events, refused)) if refused else join(events)

        return Held(calls, settle)

    def _note(self, call: Proposal, notice: str | None) -> None:
        if isinstance(call, ParsedCall) and call.correlation is not None:
            self._judged[call.correlation] = (call, notice)

    def _snapshot(self, event: AnswerEvent) -> Piece:
        """Return an event that repeats the response so far."""
        document = event.document or {}
        raw = self.release()
        response = document.get("response")
        if not isinstance(response, dict):
            raise MessageError(CODE, "a response must be an object")
        held = self._whole(response)

        def settle(notices: Sequence[str | None]) -> bytes:
            changed = held(notices)
            return (
                raw
                if changed is None
                else render_event({**document, "response": changed}, event.name)
            )

        return Held(tuple(held.calls), settle)

    def end(self) -> Sequence[Piece]:
        """Judge what is open, release the rest."""
        if self._open:
            return [self._judge()]
        return [self.release()] if self.held else []

    def body(self, raw: bytes, content: Json) -> Piece:
        """Read a whole response; an error carries no call."""
        if not isinstance(content, dict):
            raise MessageError(CODE, "an answer must be an object")
        if "output" not in content and (content.get("error") or content.get("deleted")):
            refuse_lookalikes(content, ("output",))
            return raw
        held = self._whole(content)

        def settle(notices: Sequence[str | None]) -> bytes:
            changed = held(notices)
            return raw if changed is None else compact(changed).encode()

        return Held(tuple(held.calls), settle)

    def _whole(self, response: Mapping[str, Json]) -> WholeResponse:
        refuse_lookalikes(response, ("output",))
        if not isinstance(response.get("output"), list):
            raise MessageError(CODE, "a response must have an output")
        whole = WholeResponse(response, self._judged)
        for index, item in enumerate(expect_list(response["output"], "output")):
            if kind_of(item) in CALLS:
                whole.add(index, read_item(item))
        return whole


def _index(document: Mapping[str, Json]) -> int:
    index = document.get("output_index")
    if not isinstance(index, int) or isinstance(index, bool):
        raise MessageError(CODE, "an event of an item must have its index")
    return index
