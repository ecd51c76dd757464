"""Anthropic Messages, on the way out: the history and the tools asked for.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.protocols import Message, ParsedCall, ReportedResult
from guard.protocols.llm.anthropic_answer import MessagesAnswer
from guard.protocols.llm.model_requests import ModelApi, hosted, objects, past_call, text_content
from guard.protocols.llm.user_role_claims import claimed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerReader

_OWN_TOOLS: Final = ("custom", "bash_", "text_editor_", "computer_", "memory_")
"""Types of tools that the agent runs itself, by prefix; no type at all is one of them."""


class AnthropicMessagesProtocol(ModelApi):
    """``POST …/v1/messages``."""

    name: ClassVar[str] = "anthropic_messages"
    shape: ClassVar[str] = "anthropic"
    known: ClassVar[frozenset[str]] = frozenset(
        {"messages", "tools", "mcp_servers", "stream", "container"}
    )

    def serves(self, path: str) -> bool:
        """Return whether the path is that of messages."""
        return path.endswith("/v1/messages")

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the history and the provider's tools asked for."""
        calls = [
            hosted(str(tool["type"]), tool)
            for tool in objects(body.get("tools"), "tools")
            if tool.get("type") is not None and not str(tool["type"]).startswith(_OWN_TOOLS)
        ]
        servers = objects(body.get("mcp_servers"), "mcp_servers")
        calls += [hosted("mcp", server) for server in servers]
        history = objects(body.get("messages"), "messages")
        named = claimed(history, body.get("system"))
        return Message(tuple(calls), tuple(_reported(history)), claimed=named)

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
