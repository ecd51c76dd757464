"""OpenAI Responses, on the way out: the history and the tools asked for.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.protocols import Message, ParsedCall, ReportedResult
from guard.protocols.llm.model_requests import ModelApi, hosted, objects, past_call, text_content
from guard.protocols.llm.openai_responses_answer import ResponsesAnswer
from guard.protocols.llm.openai_responses_parts import CALLS
from guard.protocols.llm.user_role_claims import claimed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerReader

_OWN_TOOLS: Final = frozenset(
    {"function", "custom", "computer", "computer_use_preview", "local_shell", "apply_patch"}
)


class OpenAiResponsesProtocol(ModelApi):
    """``POST …/responses``, and what reads or cancels a stored response."""

    name: ClassVar[str] = "openai_responses"
    shape: ClassVar[str] = "openai"
    known: ClassVar[frozenset[str]] = frozenset(
        {"input", "tools", "stream", "previous_response_id", "conversation"}
    )

    def serves(self, path: str) -> bool:
        """Return whether the path is that of responses."""
        return "responses" in path.split("/")[-3:]

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the history and the provider's tools asked for."""
        tools = objects(body.get("tools"), "tools")
        calls = [hosted(str(tool.get("type")), tool) for tool in tools if not _is_own(tool)]
        history = body.get("input")
        items = [] if isinstance(history, str) else objects(history, "input")
        said = [{"role": "user", "content": history}] if isinstance(history, str) else items
        named = claimed(said, body.get("instructions"))
        return Message(tuple(calls), tuple(_reported(items)), claimed=named)

    def answer_reader(self, message: Message) -> AnswerReader:
        """Return the reader of a response."""
        return ResponsesAnswer()


def _is_own(tool: dict[str, Json]) -> bool:
    """Return whether the agent runs the tool itself."""
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
