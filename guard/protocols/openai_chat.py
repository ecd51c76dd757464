"""OpenAI Chat Completions, streaming and not, and what speaks like it.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.protocols import Message, ParsedCall, ProtocolModule, ReportedResult
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
from guard.protocols.openai_chat_answer import ChatAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.errors import MessageError
    from guard.core.model import Json
    from guard.protocols import Refusal
    from guard.protocols.http_message import HttpReply, HttpRequest
    from guard.protocols.model_answers import AnswerReader

_BODY: Final = frozenset({"messages", "tools", "functions", "web_search_options", "stream"})


class OpenAiChatProtocol(ProtocolModule):
    """``POST …/chat/completions``."""

    name: ClassVar[str] = "openai_chat"
    model_api: ClassVar[bool] = True

    def claims(self, request: HttpRequest) -> bool:
        """Return whether the path is that of chat completions, or of a stored one."""
        parts = path_of(request).split("/")
        at = [i for i, part in enumerate(parts) if parts[i : i + 2] == ["chat", "completions"]]
        return bool(at) and not is_rpc(request)

    def parse(self, request: HttpRequest) -> Message:
        """Read the history and the tools asked for."""
        body = read_body(request, _BODY)
        calls = [
            hosted(str(tool.get("type")), tool)
            for tool in objects(body.get("tools"), "tools")
            if tool.get("type") not in {"function", "custom"}
        ]
        if body.get("web_search_options") is not None:
            calls.append(hosted("web_search", body["web_search_options"]))
        return Message(tuple(calls), tuple(_reported(objects(body.get("messages"), "messages"))))

    def refuse(self, message: Message, refusals: Sequence[Refusal | None]) -> HttpReply:
        """Return 403."""
        return refusal_reply(refusals, "openai")

    def unreadable(self, error: MessageError, decision_id: str) -> HttpReply:
        """Return the error's status."""
        return unreadable_reply(error, decision_id, "openai")

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
