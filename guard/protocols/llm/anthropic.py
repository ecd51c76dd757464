"""Anthropic Messages: the history, the tools asked for, and calls in an answer.  Pure: no I/O."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import reject_lookalike_keys
from guard.protocols.llm.model_answers import (
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
    reject_unknown_members,
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
from guard.protocols.messages import Message, ParsedCall, ReportedResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import Piece, Proposal

CALL: Final = "tool_use"
_HOSTED: Final = frozenset({"server_tool_use", "mcp_tool_use"})
"""Calls the provider carried out itself; asking for such tools was judged in the request."""
_PASSIVE: Final = frozenset(
    {
        "text",
        "thinking",
        "redacted_thinking",
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_result",
        "container_upload",
        "compaction",
    }
)
_FOUND: Final = "_tool_result"
"""How the types of what the provider's own tools returned end."""
_EVENTS: Final = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    }
)
_TEXT_DELTAS: Final = frozenset(
    {"text_delta", "thinking_delta", "signature_delta", "citations_delta", "compaction_delta"}
)
_EVENT: Final = frozenset(
    {"type", "index", "message", "content_block", "delta", "usage", "error", "context_management"}
)
_MESSAGE: Final = frozenset(
    {"content", "usage", "container", "context_management", "stop_details", "role", "type"}
)
_BLOCK: Final = frozenset({"type", "id", "name", "input", "caller"})


@dataclass(slots=True)
class _Block:
    """A block of a call as far as it has come."""

    id: Json
    name: Json
    start: Json
    text: list[str] = field(default_factory=list)
    closed: bool = False

    def proposal(self) -> Proposal:
        """Return the call."""
        text = "".join(self.text)
        if text and self.start:
            return MessageError("bad_call", "a tool call has its input twice")
        return proposal(self.name, text or self.start or {}, self.id)


@dataclass(slots=True)
class _Seen:
    """What the message has had so far."""

    kinds: dict[int, str] = field(default_factory=dict)
    """Type of each block that has started."""
    passed: int = 0
    """Calls that went out."""
    refused: int = 0


class MessagesAnswer(AnswerReader):
    """Holds from the start of a call's block until every such block is complete."""

    call_members: ClassVar[frozenset[str]] = frozenset({"content"})

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, _Block] = {}
        self._unclosed = 0
        """How many of them are not complete."""
        self._seen = _Seen()

    def chunk(self, event: AnswerEvent) -> Sequence[Piece]:
        """Take in one event."""
        document = event.document
        kind = document.get("type") if document is not None else None
        if document is None or kind not in _EVENTS or event.name not in {kind, "message"}:
            raise MessageError(CODE, "an event is not one of this api")
        reject_unknown_members(document, _EVENT, "an event")
        if kind == "message_start":
            self._start_message(document)
        elif kind == "content_block_start":
            self._start_block(document)
        elif kind == "content_block_delta":
            self._add(document)
        elif kind == "content_block_stop" and _index(document) in self._open:
            self._unclosed -= not self._open[_index(document)].closed
            self._open[_index(document)].closed = True
        elif kind == "message_delta":
            return [self._last()]
        if not self._open:
            return [self.release()]
        return [] if self._unclosed else [self._judge()]

    def _start_message(self, document: Mapping[str, Json]) -> None:
        message = document.get("message")
        if not isinstance(message, dict) or message.get("content") or self._seen.kinds:
            raise MessageError(CODE, "a message must start empty, once")
        reject_unknown_members(message, _MESSAGE, "a message")

    def _start_block(self, document: Mapping[str, Json]) -> None:
        index, block = _index(document), document.get("content_block")
        if not isinstance(block, dict) or index in self._seen.kinds:
            raise MessageError(CODE, "a content block must be an object and start once")
        kind = _kind(block)
        self._seen.kinds[index] = kind
        if kind.endswith(_FOUND):
            self.found.append(block)
        if kind == CALL:
            expect_room(len(self._open))
            self._unclosed += 1
            self._open[index] = _Block(block.get("id"), block.get("name"), block.get("input"))

    def _add(self, document: Mapping[str, Json]) -> None:
        index, delta = _index(document), document.get("delta")
        kind = self._seen.kinds.get(index)
        if not isinstance(delta, dict) or kind is None:
            raise MessageError(CODE, "a delta must be an object of a block that has started")
        block = self._open.get(index)
        if delta.get("type") == "input_json_delta" and kind in {CALL, *_HOSTED}:
            if block is not None and not block.closed:
                block.text.append(expect_text(delta.get("partial_json"), "partial_json"))
            elif kind == CALL:
                raise MessageError(CODE, "a delta after the end of its block")
        elif delta.get("type") not in _TEXT_DELTAS or kind == CALL:
            raise MessageError(CODE, "a delta does not fit its block")

    def _judge(self) -> Held:
        events, blocks, seen = self.take(), self._open, self._seen
        self._open, self._unclosed = {}, 0
        order = sorted(blocks)

        def settle(notices: Sequence[str | None]) -> bytes:
            refused = {i: n for i, n in zip(order, notices, strict=True) if n is not None}
            seen.passed += len(order) - len(refused)
            seen.refused += len(refused)
            return b"".join(_rewritten(events, refused)) if refused else join(events)

        return Held(tuple(blocks[index].proposal() for index in order), settle)

    def _last(self) -> bytes:
        """Return the event that says why the message ends, true to what was released."""
        if self._open:
            raise MessageError(CODE, "a message ended inside a tool call")
        event = self.take()[-1]
        delta = (event.document or {}).get("delta")
        if not isinstance(delta, dict):
            raise MessageError(CODE, "the delta of a message must be an object")
        if self._seen.passed or not self._seen.refused or delta.get("stop_reason") != CALL:
            return event.raw
        changed = {**(event.document or {}), "delta": {**delta, "stop_reason": "end_turn"}}
        return render_event(changed, event.name)

    def end(self) -> Sequence[Piece]:
        """Judge what is open, release the rest."""
        if self._open:
            return [self._judge()]
        return [self.release()] if self.held else []

    def body(self, raw: bytes, content: Json) -> Piece:
        """Read a whole message; an error carries no call."""
        if not isinstance(content, dict):
            raise MessageError(CODE, "an answer must be an object")
        reject_lookalike_keys(content, self.call_members)
        if content.get("type") == "error" and "content" not in content:
            return raw
        reject_unknown_members(content, _MESSAGE, "a message")
        if not isinstance(content.get("content"), list):
            raise MessageError(CODE, "a message must have content")
        blocks = expect_list(content["content"], "content")
        order = [index for index, block in enumerate(blocks) if _kind(block) == CALL]
        expect_room(len(order) - 1)
        self.found += [block for block in blocks if str(block.get("type")).endswith(_FOUND)]
        calls = tuple(_whole(blocks[index]) for index in order)

        def settle(notices: Sequence[str | None]) -> bytes:
            if not any(notices):
                return raw
            document = copy.deepcopy(content)
            for index, notice in zip(order, notices, strict=True):
                if notice is not None:
                    document["content"][index] = {"type": "text", "text": notice}
            if None not in notices and document.get("stop_reason") == CALL:
                document["stop_reason"] = "end_turn"
            return compact(document).encode()

        return Held(calls, settle)


def _whole(block: Mapping[str, Json]) -> Proposal:
    return proposal(block.get("name"), block.get("input"), block.get("id"))


def _kind(block: Mapping[str, Json]) -> str:
    kind = block.get("type")
    if kind == CALL:
        reject_unknown_members(block, _BLOCK, "a tool call")
    elif kind not in _PASSIVE and kind not in _HOSTED:
        raise MessageError(CODE, f"content blocks of type `{str(kind)[:40]}` are not known")
    return str(kind)


def _index(document: Mapping[str, Json]) -> int:
    index = document.get("index")
    if not isinstance(index, int) or isinstance(index, bool):
        raise MessageError(CODE, "an event of a block must have its index")
    return index


def _rewritten(events: Sequence[AnswerEvent], refused: Mapping[int, str]) -> list[bytes]:
    """Return the events with a block of text in the place of each refused call."""
    out: list[bytes] = []
    for event in events:
        document = event.document or {}
        index = document.get("index", -1)
        if index not in refused or not str(document.get("type")).startswith("content_block_"):
            out.append(event.raw)
        elif document["type"] == "content_block_start":
            for kind, member in (
                ("content_block_start", {"content_block": {"type": "text", "text": ""}}),
                ("content_block_delta", {"delta": {"type": "text_delta", "text": refused[index]}}),
                ("content_block_stop", {}),
            ):
                out.append(render_event({"type": kind, "index": index, **member}, kind))
    return out


_OWN_TOOLS: Final = re.compile(r"custom|(?:bash|text_editor|computer|memory)_[0-9]{8}")
"""Types of tools that the agent runs itself; no type at all is one of them."""
_PARAMETERS: Final = frozenset(
    {
        "anthropic_beta",
        "anthropic_version",
        "betas",
        "cache_control",
        "context_management",
        "diagnostics",
        "fallback_credit_token",
        "fallbacks",
        "inference_geo",
        "max_tokens",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "service_tier",
        "speed",
        "stop_sequences",
        "temperature",
        "thinking",
        "tool_choice",
        "top_k",
        "top_p",
    }
)


class AnthropicMessagesProtocol(ModelApi):
    """``POST …/v1/messages``."""

    name: ClassVar[str] = "anthropic_messages"
    shape: ClassVar[str] = "anthropic"
    known: ClassVar[frozenset[str]] = frozenset(
        {"messages", "system", "tools", "mcp_servers", "stream", "container"}
    )
    inert: ClassVar[frozenset[str]] = _PARAMETERS

    def serves(self, path: str) -> bool:
        """Return whether the path is that of messages."""
        return path.endswith("/v1/messages")

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the history and the provider's tools asked for."""
        calls = [
            hosted(str(tool["type"]), tool)
            for tool in objects(body.get("tools"), "tools")
            if tool.get("type") is not None and not _OWN_TOOLS.fullmatch(str(tool["type"]))
        ]
        servers = objects(body.get("mcp_servers"), "mcp_servers")
        calls += [hosted("mcp", server) for server in servers]
        if isinstance(body.get("container"), dict | list):
            # Its skills are programs; the name of a container alone brings nothing along.
            calls.append(hosted("container", body["container"]))
        history = objects(body.get("messages"), "messages")
        calls += fetched(history, body.get("system"))
        named = claimed_values(history, body.get("system"))
        return Message(tuple(calls), tuple(_reported(history)), user_role_claims=named)

    def answer_reader(self, message: Message) -> AnswerReader:
        """Return the reader of a message."""
        return MessagesAnswer()


def _reported(messages: Sequence[dict[str, Json]]) -> list[ReportedResult]:
    past: dict[str, ParsedCall] = {}
    found: list[ReportedResult] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            continue
        for block in objects(content, "content"):
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                past[block["id"]] = past_call(block.get("name"), block.get("input"), block["id"])
            elif block.get("type") == "tool_result":
                key = block.get("tool_use_id")
                identifier = key if isinstance(key, str) else ""
                call = past.get(identifier) or past_call(None, None, identifier)
                value = text_content(block.get("content"))
                found.append(ReportedResult(call, value, block.get("is_error") is True))
    return found
