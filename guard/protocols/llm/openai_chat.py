"""OpenAI Chat Completions, streaming and not, and what speaks like it.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from guard.protocols import Message, ParsedCall, ReportedResult
from guard.protocols.llm.model_requests import ModelApi, hosted, objects, past_call, text_content
from guard.protocols.llm.openai_chat_answer import ChatAnswer
from guard.protocols.llm.user_role_claims import claimed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerReader


class OpenAiChatProtocol(ModelApi):
    """``POST …/chat/completions``."""

    name: ClassVar[str] = "openai_chat"
    shape: ClassVar[str] = "openai"
    known: ClassVar[frozenset[str]] = frozenset(
        {"messages", "tools", "functions", "web_search_options", "stream"}
    )

    def serves(self, path: str) -> bool:
        """Return whether the path is that of chat completions, or of a stored one."""
        parts = path.split("/")
        return any(parts[i : i + 2] == ["chat", "completions"] for i in range(len(parts)))

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the history and the provider's tools asked for."""
        calls = [
            hosted(str(tool.get("type")), tool)
            for tool in objects(body.get("tools"), "tools")
            if tool.get("type") not in {"function", "custom"}
        ]
        if body.get("web_search_options") is not None:
            calls.append(hosted("web_search", body["web_search_options"]))
        history = objects(body.get("messages"), "messages")
        return Message(tuple(calls), tuple(_reported(history)), claimed=claimed(history))

    def answer_reader(self, message: Message) -> AnswerReader:
        """Return the reader of a completion."""
        return ChatAnswer()


def _reported(messages: Sequence[dict[str, Json]]) -> list[ReportedResult]:
    past: dict[str, ParsedCall] = {}
    found: list[ReportedResult] = []
    for message in messages:
        role = message.get("role")
        for call in objects(message.get("tool_calls"), "tool_calls"):
            inner = call.get("function") or call.get("custom")
            if isinstance(inner, dict) and isinstance(call.get("id"), str):
                arguments = inner.get("arguments", inner.get("input"))
                past[call["id"]] = past_call(inner.get("name"), arguments, call["id"])
        if role not in {"tool", "function"}:
            continue
        name = message.get("tool_call_id") if role == "tool" else f"name:{message.get('name')}"
        identifier = name if isinstance(name, str) else ""
        call_made = past.get(identifier) or past_call(message.get("name"), None, identifier)
        found.append(ReportedResult(call_made, text_content(message.get("content"))))
    return found
