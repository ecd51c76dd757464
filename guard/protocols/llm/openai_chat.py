"""OpenAI Chat Completions, streaming and not, and what speaks like it.  Pure: no I/O."""

from __future__ import annotations

import copy
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
    arguments: list[str] = field(default_factory=list)
    custom: bool = False

    def add(self, fragment: Mapping[str, Json]) -> None:
        """Take in one fragment; id, type and name come once, the arguments in pieces.

        Raises:
            MessageError: readers would put it together differently.
        """
        reject_unknown_members(fragment, _CALL, "a tool call")
        if "function" in fragment and "custom" in fragment:
            raise MessageError(CODE, "a tool call is a function or custom, not both")
        self.custom = self.custom or "custom" in fragment
        inner = fragment.get("custom" if self.custom else "function") or {}
        if not isinstance(inner, dict):
            raise MessageError(CODE, "the function of a tool call must be an object")
        text = "input" if self.custom else "arguments"
        reject_unknown_members(inner, {"name", text}, "the function of a tool call")
        identifier, name = expect_text(fragment.get("id"), "id"), expect_text(inner.get("name"), "")
        if (identifier and self.id) or (name and self.name):
            raise MessageError(CODE, "a tool call has its id or its name twice")
        self.id = self.id or identifier
        self.name = self.name or name
        self.arguments.append(expect_text(inner.get(text), text))

    def proposal(self, place: int) -> Proposal:
        """Return the call."""
        correlation = f"name:{self.name}" if place == LEGACY else self.id
        text = "".join(self.arguments)
        arguments: Json = {"input": text} if self.custom else text
        return proposal(self.name, arguments, correlation)


def read_choices(document: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the choices of a completion or of one chunk.

    Raises:
        MessageError: they cannot be read one way only.
    """
    reject_unknown_members(document, _TOP, "an answer")
    choices = expect_list(document.get("choices"), "choices")
    for choice in choices:
        reject_unknown_members(choice, _CHOICE, "a choice")
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
    reject_unknown_members(message, _DELTA, "a message")
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


_Place = tuple[int, int]
"""Index of the choice, index of the call within it."""


class _Verdicts:
    """What became of the calls of an answer, by choice.

    Args:
        notices: the words in the place of each refused call, None for one that goes out.
    """

    def __init__(self, notices: Mapping[_Place, str | None]) -> None:
        self.refused: dict[int, set[int]] = {}
        self.kept: dict[int, dict[int, int]] = {}
        """The new number of each call that goes out, by its place."""
        words: dict[int, list[str]] = {}
        for (index, place), notice in sorted(notices.items()):
            if notice is None:
                numbers = self.kept.setdefault(index, {})
                numbers[place] = len(numbers)
            else:
                self.refused.setdefault(index, set()).add(place)
                words.setdefault(index, []).append(notice)
        self.notices = {index: "\n".join(lines) for index, lines in words.items()}
        """What is said of each choice."""


class ChatAnswer(AnswerReader):
    """Holds from the first fragment of a call until every choice with calls has finished."""

    call_members: ClassVar[frozenset[str]] = frozenset({"choices"})

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[_Place, PartialCall] = {}
        self._waiting: set[int] = set()
        """Choices with calls that have not finished."""
        self._finished: set[int] = set()

    def chunk(self, event: AnswerEvent) -> Sequence[Piece]:
        """Take in one chunk."""
        if event.document is None:
            return self.end()
        for choice in read_choices(event.document):
            self._take(choice)
        if not self._open:
            return [self.release()]
        return [] if self._waiting else [self._judge()]

    def _take(self, choice: Mapping[str, Json]) -> None:
        if choice.get("message"):
            raise MessageError(CODE, "a chunk must have a delta and no message")
        index, calls = calls_in(choice, choice.get("delta"))
        if calls and index in self._finished:
            raise MessageError(CODE, "a tool call after the end of its choice")
        for place, fragment in calls:
            self._waiting.add(index)
            call = self._open.get((index, place))
            if call is None:
                expect_room(len(self._open))
                call = self._open[index, place] = PartialCall()
            call.add(fragment)
        if choice.get("finish_reason") is not None:
            self._finished.add(index)
            self._waiting.discard(index)

    def end(self) -> Sequence[Piece]:
        """Judge what is open, release the rest."""
        if self._open:
            return [self._judge()]
        return [self.release()] if self.held else []

    def _judge(self) -> Held:
        events, open_calls = self.take(), self._open
        self._open, self._waiting = {}, set()
        places = sorted(open_calls)

        def settle(notices: Sequence[str | None]) -> bytes:
            if not any(notices):
                return join(events)
            verdicts = _Verdicts(dict(zip(places, notices, strict=True)))
            return b"".join(_rewritten(events, verdicts))

        return Held(tuple(open_calls[p].proposal(p[1]) for p in places), settle)

    def body(self, raw: bytes, content: Json) -> Piece:
        """Read a whole completion; one that is an error carries no call."""
        if not isinstance(content, dict):
            raise MessageError(CODE, "an answer must be an object")
        reject_lookalike_keys(content, self.call_members)
        if "choices" not in content and content.keys() & {"error", "deleted", "detail"}:
            return raw
        partials: dict[_Place, PartialCall] = {}
        if not isinstance(content.get("choices"), list):
            raise MessageError(CODE, "an answer must have choices")
        for choice in read_choices(content):
            index, calls = calls_in(choice, choice.get("message"))
            for place, fragment in calls:
                if (index, place) in partials:
                    raise MessageError(CODE, "two choices have the same index")
                expect_room(len(partials))
                partials[index, place] = PartialCall()
                partials[index, place].add(fragment)
        places = sorted(partials)

        def settle(notices: Sequence[str | None]) -> bytes:
            if not any(notices):
                return raw
            document = copy.deepcopy(content)
            verdicts = _Verdicts(dict(zip(places, notices, strict=True)))
            for choice in document["choices"]:
                _strip(choice, choice["message"], verdicts, whole=True)
            return compact(document).encode()

        return Held(tuple(partials[p].proposal(p[1]) for p in places), settle)


def _rewritten(events: Sequence[AnswerEvent], verdicts: _Verdicts) -> list[bytes]:
    """Return the events without the refused calls, and with a text in their place."""
    out: list[bytes] = []
    told: set[int] = set()
    for event in events:
        if event.document is None:
            out += _untold(events, verdicts, told)
            out.append(event.raw)
            continue
        document = copy.deepcopy(event.document)
        for choice in document.get("choices") or []:
            index = choice.get("index", 0)
            _strip(choice, choice.get("delta") or {}, verdicts, whole=False)
            if choice.get("finish_reason") is not None and index not in told:
                out += _told(document, index, verdicts)
                told.add(index)
        if document == event.document:
            out.append(event.raw)
        elif _says_something(document):
            out.append(render_event(document))
    return out + _untold(events, verdicts, told)


def _strip(
    choice: dict[str, Json],
    message: dict[str, Json],
    verdicts: _Verdicts,
    *,
    whole: bool,
) -> None:
    """Take the refused calls out of a choice's message or delta; number the others anew."""
    index = choice.get("index", 0)
    refused, kept = verdicts.refused.get(index), verdicts.kept.get(index, {})
    if not refused:
        return
    calls = message.pop("tool_calls", None) or []
    places = [(n if whole else call["index"], call) for n, call in enumerate(calls)]
    left = [
        call if whole else {**call, "index": kept[place]}
        for place, call in places
        if place not in refused
    ]
    if left:
        message["tool_calls"] = left
    if LEGACY in refused:
        message.pop("function_call", None)
    # Probabilities name the tokens, and so the arguments.
    if "logprobs" in choice:
        choice["logprobs"] = None
    if choice.get("finish_reason") is not None and not kept:
        choice["finish_reason"] = "stop"
    if whole:
        _add_text(message, verdicts.notices[index])


def _add_text(message: dict[str, Json], notice: str) -> None:
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [*content, {"type": "text", "text": notice}]
    else:
        message["content"] = f"{content}\n\n{notice}" if content else notice


def _told(document: Mapping[str, Json], index: int, verdicts: _Verdicts) -> list[bytes]:
    """Return the event that says what was refused in one choice."""
    notice = verdicts.notices.get(index)
    if not notice:
        return []
    choice = {"index": index, "delta": {"content": notice}, "finish_reason": None}
    return [render_event({**document, "usage": None, "choices": [choice]})]


def _untold(events: Sequence[AnswerEvent], verdicts: _Verdicts, told: set[int]) -> list[bytes]:
    """Return the same for choices that never finished."""
    document = next((e.document for e in events if e.document is not None), {})
    missing = verdicts.notices.keys() - told
    told |= missing
    return [event for index in sorted(missing) for event in _told(document, index, verdicts)]


def _says_something(document: Mapping[str, Json]) -> bool:
    choices = document.get("choices") or []
    return bool(document.get("usage")) or any(
        choice.get("delta") or choice.get("finish_reason") is not None for choice in choices
    )


_PARAMETERS: Final = frozenset(
    {
        "audio",
        "best_of",
        "chat_template_kwargs",
        "echo",
        "enable_thinking",
        "frequency_penalty",
        "function_call",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "ignore_eos",
        "include_reasoning",
        "keep_alive",
        "length_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "metadata",
        "min_p",
        "min_tokens",
        "modalities",
        "model",
        "moderation",
        "n",
        "options",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "random_seed",
        "reasoning",
        "reasoning_effort",
        "reasoning_format",
        "repetition_penalty",
        "response_format",
        "safe_prompt",
        "safety_identifier",
        "seed",
        "service_tier",
        "skip_special_tokens",
        "stop",
        "stop_token_ids",
        "store",
        "stream_options",
        "structured_outputs",
        "suffix",
        "temperature",
        "think",
        "thinking",
        "tool_choice",
        "top_a",
        "top_k",
        "top_logprobs",
        "top_p",
        "typical_p",
        "usage",
        "use_beam_search",
        "user",
        "verbosity",
    }
)
"""Parameters of the API, and those that servers which speak like it have added for sampling."""


class OpenAiChatProtocol(ModelApi):
    """``POST …/chat/completions``."""

    name: ClassVar[str] = "openai_chat"
    shape: ClassVar[str] = "openai"
    known: ClassVar[frozenset[str]] = frozenset(
        {"messages", "tools", "functions", "web_search_options", "stream"}
    )
    inert: ClassVar[frozenset[str]] = _PARAMETERS

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
        return Message(
            (*calls, *fetched(history)),
            tuple(_reported(history)),
            user_role_claims=claimed_values(history),
        )

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
