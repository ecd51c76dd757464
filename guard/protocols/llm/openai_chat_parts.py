"""The parts of a chat completion, read strictly: choices, and calls put together.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import (
    CODE,
    expect_list,
    expect_text,
    proposal,
    refuse_strangers,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import Proposal

_TOP: Final = frozenset(
    {
        "choices",
        "usage",
        "error",
        "prompt_filter_results",
        "service_tier",
        "x_groq",
        "metadata",
        "timings",
        "citations",
        "search_results",
        "images",
        "related_questions",
    }
)
_CHOICE: Final = frozenset(
    {
        "index",
        "delta",
        "message",
        "finish_reason",
        "logprobs",
        "content_filter_results",
        "content_filter_offsets",
    }
)
_DELTA: Final = frozenset(
    {
        "role",
        "content",
        "refusal",
        "tool_calls",
        "function_call",
        "annotations",
        "audio",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "provider_specific_fields",
        "extra_content",
    }
)
_CALL: Final = frozenset({"index", "id", "type", "function", "custom", "extra_content"})
LEGACY: Final = -1
"""The place of a ``function_call`` among the calls of a choice."""


@dataclass(slots=True)
class PartialCall:
    """A call as far as it has come."""

    id: str = ""
    name: str = ""
    arguments: str = ""
    custom: bool = False

    def add(self, fragment: Mapping[str, Json]) -> None:
        """Take in one fragment; id, type and name come once, the arguments in pieces.

        Raises:
            MessageError: readers would put it together differently.
        """
        refuse_strangers(fragment, _CALL, "a tool call")
        if "function" in fragment and "custom" in fragment:
            raise MessageError(CODE, "a tool call is a function or custom, not both")
        self.custom = self.custom or "custom" in fragment
        inner = fragment.get("custom" if self.custom else "function") or {}
        if not isinstance(inner, dict):
            raise MessageError(CODE, "the function of a tool call must be an object")
        text = "input" if self.custom else "arguments"
        refuse_strangers(inner, {"name", text}, "the function of a tool call")
        identifier, name = expect_text(fragment.get("id"), "id"), expect_text(inner.get("name"), "")
        if (identifier and self.id) or (name and self.name):
            raise MessageError(CODE, "a tool call has its id or its name twice")
        self.id = self.id or identifier
        self.name = self.name or name
        self.arguments += expect_text(inner.get(text), text)

    def proposal(self, place: int) -> Proposal:
        """Return the call."""
        correlation = f"name:{self.name}" if place == LEGACY else self.id
        arguments: Json = {"input": self.arguments} if self.custom else self.arguments
        return proposal(self.name, arguments, correlation)


def read_choices(document: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the choices of a completion or of one chunk.

    Raises:
        MessageError: they cannot be read one way only.
    """
    refuse_strangers(document, _TOP, "an answer")
    choices = expect_list(document.get("choices"), "choices")
    for choice in choices:
        refuse_strangers(choice, _CHOICE, "a choice")
    return choices


def calls_in(
    choice: Mapping[str, Json], message: Json
) -> tuple[int, list[tuple[int, dict[str, Json]]]]:
    """Return the index of a choice and the calls in its delta or message, by place.

    Raises:
        MessageError: they cannot be read one way only.
    """
    index, message = choice.get("index", 0), message if message is not None else {}
    if not isinstance(index, int) or isinstance(index, bool) or not isinstance(message, dict):
        raise MessageError(CODE, "a choice must have an index and a message")
    refuse_strangers(message, _DELTA, "a message")
    calls = []
    is_delta = "delta" in choice
    for number, call in enumerate(expect_list(message.get("tool_calls"), "tool_calls")):
        place = call.get("index") if is_delta else number
        if not isinstance(place, int) or isinstance(place, bool) or place < 0:
            raise MessageError(CODE, "a fragment of a tool call must have an index")
        calls.append((place, call))
    legacy = message.get("function_call")
    if legacy is not None:
        calls.append((LEGACY, {"function": legacy}))
    return index, calls
