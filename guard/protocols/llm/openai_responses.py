"""OpenAI Responses: the history, the tools asked for, and calls in an answer.  Pure: no I/O."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import reject_lookalike_keys
from guard.protocols.llm.model_answers import (
    APPROVAL,
    CODE,
    AnswerEvent,
    AnswerReader,
    Held,
    compact,
    expect_list,
    expect_room,
    expect_text,
    join,
    proposal,
    render_event,
)
from guard.protocols.llm.model_requests import (
    ModelApi,
    fetched,
    hosted,
    objects,
    past_call,
    text_content,
)
from guard.protocols.llm.user_role_claims import claimed_values
from guard.protocols.messages import Echo, Message, ParsedCall, ReportedResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerEvent, Piece, Proposal

CALLS: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
    }
)
"""Items that the agent carries out, or allows the provider to."""
_PASSIVE: Final = frozenset(
    {
        "message",
        "reasoning",
        "compaction",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
    }
)
"""What the provider did itself; asking for such tools was judged in the request."""
_WORDS: Final = frozenset({"message", "reasoning", "compaction"})
"""Those of them that are the model's own words."""
ADDED: Final = "response.output_item.added"
ITEM_DONE: Final = "response.output_item.done"
_ITEM: Final = ("type", "id", "call_id", "name", "arguments", "input", "action", "operation")
_PLAIN: Final = frozenset({"id", "type", "status", "call_id", "caller"})


def read_item(item: Mapping[str, Json]) -> Proposal:
    """Return the call that an item is."""
    try:
        reject_lookalike_keys(item, _ITEM)
    except MessageError as error:
        return error
    kind, key = item["type"], item.get("call_id", item.get("id"))
    if kind == "custom_tool_call":
        return proposal(item.get("name"), {"input": item.get("input", "")}, key)
    if kind == "mcp_approval_request":
        key = f"{APPROVAL}{key}" if isinstance(key, str) and key else key
    if kind in {"function_call", "mcp_approval_request"}:
        return proposal(item.get("name"), item.get("arguments", ""), key)
    return proposal(kind, {k: v for k, v in item.items() if k not in _PLAIN}, key)


class WholeResponse:
    """A response as a whole: what of it was judged, and what is new.

    Args:
        response: the response.
        judged: earlier verdicts by the id of the call.
    """

    def __init__(
        self, response: Mapping[str, Json], judged: Mapping[str, tuple[ParsedCall, str | None]]
    ) -> None:
        self._response = response
        self._judged = judged
        self._old: dict[int, str] = {}
        self._new: list[int] = []
        self.calls: list[Proposal] = []

    def add(self, index: int, call: Proposal) -> None:
        """Take in a call; only one that was judged exactly so is not judged again."""
        known = self._judged.get(call.correlation or "") if isinstance(call, ParsedCall) else None
        if known is None or known[0] != call:
            expect_room(len(self.calls))
            self._new.append(index)
            self.calls.append(call)
        elif known[1] is not None:
            self._old[index] = known[1]

    def __call__(self, notices: Sequence[str | None]) -> dict[str, Json] | None:
        """Return the response without what was refused, None where nothing was."""
        refused = dict(self._old)
        refused |= {i: n for i, n in zip(self._new, notices, strict=True) if n is not None}
        if not refused:
            return None
        document = copy.deepcopy(dict(self._response))
        for index, notice in refused.items():
            old = document["output"][index]
            document["output"][index] = _message(str(old.get("id") or index), notice)
        return document


def kind_of(item: Mapping[str, Json]) -> str:
    """Return the type of an item.

    Raises:
        MessageError: it is not known.
    """
    kind = item.get("type")
    if kind not in CALLS and kind not in _PASSIVE:
        raise MessageError(CODE, f"items of type `{str(kind)[:40]}` are not known")
    return str(kind)


def _message(identifier: str, notice: str, *, whole: bool = True) -> dict[str, Json]:
    return {
        "id": f"msg_{identifier}",
        "type": "message",
        "status": "completed" if whole else "in_progress",
        "role": "assistant",
        "content": [_part(notice)] if whole else [],
    }


def _part(text: str) -> dict[str, Json]:
    return {"type": "output_text", "text": text, "annotations": []}


def rewritten(events: Sequence[AnswerEvent], refused: Mapping[int, tuple[str, str]]) -> list[bytes]:
    """Return the events with an item of text in the place of each refused call."""
    out: list[bytes] = []
    told: set[int] = set()
    for event in events:
        document = event.document or {}
        index = document.get("output_index", -1)
        if index not in refused:
            out.append(event.raw)
        elif index not in told:
            told.add(index)
            out += _replacement(index, *refused[index], document.get("sequence_number", 0))
    return out


def _replacement(index: int, identifier: str, notice: str, number: Json) -> list[bytes]:
    """Return the events of a message; all have the number of the event they replace."""
    item = f"msg_{identifier}"
    place = {"item_id": item, "output_index": index, "content_index": 0}
    started = {"output_index": index, "item": _message(identifier, "", whole=False)}
    ended = {"output_index": index, "item": _message(identifier, notice)}
    events = (
        (ADDED, started),
        ("response.content_part.added", {**place, "part": _part("")}),
        ("response.output_text.delta", {**place, "delta": notice, "logprobs": []}),
        ("response.output_text.done", {**place, "text": notice, "logprobs": []}),
        ("response.content_part.done", {**place, "part": _part(notice)}),
        (ITEM_DONE, ended),
    )
    return [
        render_event({"type": kind, "sequence_number": number, **members}, kind)
        for kind, members in events
    ]


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
    parts: list[str] = field(default_factory=list)
    final: dict[str, Json] | None = None

    def text(self) -> str:
        """Return its arguments as far as they have come."""
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    def proposal(self) -> Proposal:
        """Return the call, if every place that names its arguments agrees."""
        if self.final is None:
            return MessageError("bad_call", "a call never ended")
        spelt = self.final.get("arguments", self.final.get("input", ""))
        if self.text() and self.text() != spelt:
            return MessageError("bad_call", "a call has two different arguments")
        for key in ("name", "call_id", "type"):
            if self.first.get(key) not in {None, self.final.get(key)}:
                return MessageError("bad_call", f"a call has two different `{key}`")
        return read_item(self.final)


class ResponsesAnswer(AnswerReader):
    """Holds from the start of a call's item until every such item is complete."""

    call_members: ClassVar[frozenset[str]] = frozenset({"output"})

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, _Item] = {}
        self._unended = 0
        """How many of them are not complete."""
        self._judged: dict[str, tuple[ParsedCall, str | None]] = {}
        """Calls that were judged by their id, with the words in the place of a refused one."""

    def chunk(self, event: AnswerEvent) -> Sequence[Piece]:
        """Take in one event."""
        document = event.document
        if document is None:
            return self.end()
        reject_lookalike_keys(document, _MEMBERS)
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
        return [] if self._unended else [self._judge()]

    def _take_item(self, document: Mapping[str, Json], *, done: bool) -> None:
        index, item = _index(document), document.get("item")
        if not isinstance(item, dict):
            raise MessageError(CODE, "an item must be an object")
        if kind_of(item) not in CALLS:
            if index in self._open:
                raise MessageError(CODE, "an item has two types")
            if done and item["type"] not in _WORDS:
                self.found.append(item)
            return
        if not done and index in self._open:
            raise MessageError(CODE, "an item started twice")
        held = self._open.get(index)
        if held is None:
            expect_room(len(self._open))
            held = self._open[index] = _Item(item)
            self._unended += 1
        if done and held.final is not None:
            raise MessageError(CODE, "an item ended twice")
        if done:
            held.final = item
            self._unended -= 1

    def _take_text(self, document: Mapping[str, Json]) -> None:
        item, kind = self._open.get(_index(document)), document["type"]
        if item is None or item.final is not None:
            raise MessageError(CODE, "arguments of a call that has not started or has ended")
        if kind in _DELTAS:
            item.parts.append(expect_text(document.get("delta"), "delta"))
        elif expect_text(document.get(_DONES[kind]), _DONES[kind]) != item.text():
            raise MessageError(CODE, "a call has two different arguments")

    def end_items(self) -> list[Piece]:
        """Check that no item is open before the event that was just taken in."""
        if self._open:
            raise MessageError(CODE, "a response ended inside a call")
        return []

    def _judge(self) -> Held:
        events, items = self.take(), self._open
        self._open, self._unended = {}, 0
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
            reject_lookalike_keys(content, ("output",))
            return raw
        held = self._whole(content)

        def settle(notices: Sequence[str | None]) -> bytes:
            changed = held(notices)
            return raw if changed is None else compact(changed).encode()

        return Held(tuple(held.calls), settle)

    def _whole(self, response: Mapping[str, Json]) -> WholeResponse:
        reject_lookalike_keys(response, ("output",))
        if not isinstance(response.get("output"), list):
            raise MessageError(CODE, "a response must have an output")
        whole = WholeResponse(response, self._judged)
        for index, item in enumerate(expect_list(response["output"], "output")):
            if kind_of(item) in CALLS:
                whole.add(index, read_item(item))
            elif item["type"] not in _WORDS:
                self.found.append(item)
        return whole


def _index(document: Mapping[str, Json]) -> int:
    index = document.get("output_index")
    if not isinstance(index, int) or isinstance(index, bool):
        raise MessageError(CODE, "an event of an item must have its index")
    return index


_OWN_TOOLS: Final = frozenset(
    {"function", "custom", "computer", "computer_use_preview", "local_shell", "apply_patch"}
)


_PARAMETERS: Final = frozenset(
    {
        "background",
        "context_management",
        "include",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""Parameters of the API.  ``prompt`` is none: what it names may bring tools along."""


class OpenAiResponsesProtocol(ModelApi):
    """``POST …/responses``, and what reads or cancels a stored response."""

    name: ClassVar[str] = "openai_responses"
    shape: ClassVar[str] = "openai"
    known: ClassVar[frozenset[str]] = frozenset(
        {"input", "instructions", "tools", "stream", "previous_response_id", "conversation"}
    )
    inert: ClassVar[frozenset[str]] = _PARAMETERS

    def serves(self, path: str) -> bool:
        """Return whether the path is that of responses."""
        return "responses" in path.split("/")[-3:]

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the history and the provider's tools asked for."""
        history = body.get("input")
        items = [] if isinstance(history, str) else objects(history, "input")
        tools = [*objects(body.get("tools"), "tools"), *_brought(items)]
        calls = [hosted(str(tool.get("type")), tool) for tool in tools if not _is_own(tool)]
        said = [{"role": "user", "content": history}] if isinstance(history, str) else items
        named = claimed_values(said, body.get("instructions"))
        calls += fetched(items, body.get("instructions"), body.get("prompt"))
        return Message(
            tuple(calls),
            tuple(_reported(items)),
            echoes=tuple(_approvals(items)),
            user_role_claims=named,
        )

    def answer_reader(self, message: Message) -> AnswerReader:
        """Return the reader of a response."""
        return ResponsesAnswer()


def _brought(items: Sequence[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the tools that items of a history add to those of the request."""
    return [
        tool
        for item in items
        if item.get("type") != "mcp_list_tools"
        for tool in objects(item.get("tools"), "tools")
    ]


def _approvals(items: Sequence[dict[str, Json]]) -> Iterator[Echo]:
    """Yield what says yes to calls that the provider makes: the guard must have released those."""
    for item in items:
        if item.get("type") == "mcp_approval_response" and item.get("approve") is not False:
            mark = f"{APPROVAL}{item.get('approval_request_id')}"
            yield Echo(mark, hosted("mcp_approval_response", item), answers=True)


def _is_own(tool: dict[str, Json]) -> bool:
    """Return whether the agent runs the tool itself."""
    if tool.get("type") == "namespace":
        return all(_is_own(inner) for inner in objects(tool.get("tools"), "tools"))
    if tool.get("type") == "shell":
        environment = tool.get("environment")
        return isinstance(environment, dict) and environment.get("type") == "local"
    return tool.get("type") in _OWN_TOOLS


def _reported(items: Sequence[dict[str, Json]]) -> list[ReportedResult]:
    past: dict[str, ParsedCall] = {}
    found: list[ReportedResult] = []
    for item in items:
        kind, key = str(item.get("type")), item.get("call_id")
        identifier = key if isinstance(key, str) else ""
        if kind in CALLS and identifier:
            arguments = item.get("arguments", item.get("input", item.get("action")))
            past[identifier] = past_call(item.get("name", kind), arguments, identifier)
        elif kind.endswith("_output"):
            call = past.get(identifier) or past_call(None, None, identifier)
            found.append(ReportedResult(call, text_content(item.get("output"))))
    return found
