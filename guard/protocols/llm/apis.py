"""The four model APIs.  Each is a table and the reader that its answers need.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from guard.protocols.llm.chat_answers import ChatAnswer
from guard.protocols.llm.model_answers import APPROVAL
from guard.protocols.llm.model_requests import hosted
from guard.protocols.llm.table import load_table
from guard.protocols.llm.table_requests import TableApi
from guard.protocols.messages import Echo

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json
    from guard.protocols.llm.table_answers import TableAnswer
    from guard.protocols.messages import Message


class OpenAiChatProtocol(TableApi):
    """``POST …/chat/completions``."""

    table = load_table("openai_chat")
    name: ClassVar[str] = table.name
    shape: ClassVar[str] = "openai"

    def answer_reader(self, message: Message) -> TableAnswer:
        """Return the reader of a completion."""
        return ChatAnswer(self.table, message.parsed)


class OpenAiResponsesProtocol(TableApi):
    """``POST …/responses``, and what reads or cancels a stored response."""

    table = load_table("openai_responses")
    name: ClassVar[str] = table.name
    shape: ClassVar[str] = "openai"

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the reported results, the tools of the provider, and approvals of its calls."""
        echoes = tuple(
            Echo(
                f"{APPROVAL}{item.get('approval_request_id')}",
                hosted("mcp_approval_response", item),
                answers=True,
            )
            for item in self.turns(body)
            if item.get("type") == "mcp_approval_response" and item.get("approve") is not False
        )
        return replace(super().message(body), echoes=echoes)


class AnthropicMessagesProtocol(TableApi):
    """``POST …/v1/messages``."""

    table = load_table("anthropic")
    name: ClassVar[str] = table.name
    shape: ClassVar[str] = "anthropic"


class GeminiProtocol(TableApi):
    """``POST …:generateContent`` and ``…:streamGenerateContent``."""

    table = load_table("gemini")
    name: ClassVar[str] = table.name
    shape: ClassVar[str] = "gemini"
