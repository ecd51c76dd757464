"""Anthropic Messages, on the way out: the history and the tools asked for.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.protocols import Message, ParsedCall, ProtocolModule, ReportedResult
from guard.protocols.anthropic_answer import MessagesAnswer
from guard.protocols.model_requests import (
    hosted,
    is_rpc,
    objects,
    past_call,
    path_of,
    read_body,
    refusal_reply,
    text_content,
    unreadable_reply,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.errors import MessageError
    from guard.core.model import Json
    from guard.protocols import Refusal
    from guard.protocols.http_message import HttpReply, HttpRequest
    from guard.protocols.model_answers import AnswerReader

_BODY: Final = frozenset({"messages", "tools", "mcp_servers", "stream", "container"})
_OWN_TOOLS: Final = ("custom", "bash_", "text_editor_", "computer_", "memory_")
"""Types of tools that the agent runs itself, by prefix; no type at all is one of them."""


class AnthropicMessagesProtocol(ProtocolModule):
    """``POST …/v1/messages``."""

    name: ClassVar[str] = "anthropic_messages"
    model_api: ClassVar[bool] = True

    def claims(self, request: HttpRequest) -> bool:
        """Return whether the path is that of messages, and the body not an MCP message."""
        return path_of(request).endswith("/v1/messages") and not is_rpc(request)

    def parse(self, request: HttpRequest) -> Message:
        """Read the history and the tools asked for."""
        body = read_body(request, _BODY)
        calls = [
            hosted(str(tool["type"]), tool)
            for tool in objects(body.get("tools"), "tools")
            if tool.get("type") is not None and not str(tool["type"]).startswith(_OWN_TOOLS)
        ]
        servers = objects(body.get("mcp_servers"), "mcp_servers")
        calls += [hosted("mcp", server) for server in servers]
        return Message(tuple(calls), tuple(_reported(objects(body.get("messages"), "messages"))))

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Return 403."""
        return refusal_reply(refusals, "anthropic")

    def unreadable(self, error: MessageError, decision_id: str) -> HttpReply:
        """Return the error's status."""
        return unreadable_reply(error, decision_id, "anthropic")

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
