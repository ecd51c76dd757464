"""Gemini ``generateContent``, streaming and not, both directions.  Pure: no I/O.

A function call comes whole in one part, so nothing is held beyond the event it stands in.  The API
takes member names in camel case and in snake case, so both are read in requests.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import (
    CODE,
    AnswerEvent,
    AnswerReader,
    Held,
    compact,
    expect_list,
    expect_room,
    proposal,
    reject_unknown_members,
    render_event,
)
from guard.protocols.llm.model_requests import ModelApi, either, fetched, hosted, objects, past_call
from guard.protocols.llm.user_role_claims import claimed_values
from guard.protocols.messages import Message, ParsedCall, ReportedResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import Piece, Proposal

_PATHS: Final = (":generatecontent", ":streamgeneratecontent")
_OWN_TOOLS: Final = frozenset({"functiondeclarations", "computeruse"})
_TOP: Final = frozenset(
    {"candidates", "promptFeedback", "usageMetadata", "modelStatus", "error", "sdkHttpResponse"}
)
_CANDIDATE: Final = frozenset(
    {
        "content",
        "safetyRatings",
        "citationMetadata",
        "groundingMetadata",
        "groundingAttributions",
        "urlContextMetadata",
        "logprobsResult",
    }
)
_PART: Final = frozenset(
    {
        "text",
        "functionCall",
        "inlineData",
        "fileData",
        "executableCode",
        "codeExecutionResult",
        "videoMetadata",
    }
)
_CALL: Final = frozenset({"id", "name", "args"})


_PARAMETERS: Final = frozenset(
    {
        "generationConfig",
        "generation_config",
        "labels",
        "model",
        "safetySettings",
        "safety_settings",
        "serviceTier",
        "service_tier",
        "store",
        "toolConfig",
        "tool_config",
    }
)
"""Parameters of the API.  ``cachedContent`` is none: what it names may bring tools along."""


class GeminiProtocol(ModelApi):
    """``POST …:generateContent`` and ``…:streamGenerateContent``."""

    name: ClassVar[str] = "gemini"
    shape: ClassVar[str] = "gemini"
    known: ClassVar[frozenset[str]] = frozenset(
        {"contents", "tools", "systemInstruction", "system_instruction"}
    )
    inert: ClassVar[frozenset[str]] = _PARAMETERS

    def serves(self, path: str) -> bool:
        """Return whether the path is that of a generation."""
        return path.endswith(_PATHS)

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the history and the provider's tools asked for."""
        calls = [
            hosted(name, value)
            for tool in objects(body.get("tools"), "tools")
            for name, value in tool.items()
            if _plain(name) not in _OWN_TOOLS
        ]
        history = objects(body.get("contents"), "contents")
        reported, counts = _reported(history)
        told = (body.get("systemInstruction"), body.get("system_instruction"))
        return Message(
            (*calls, *fetched(history, *told)),
            tuple(reported),
            user_role_claims=claimed_values(history, *told),
            parsed=counts,
        )

    def answer_reader(self, message: Message) -> AnswerReader:
        """Return the reader of a generation."""
        return GeminiAnswer(message.parsed or Counter())


def _plain(name: str) -> str:
    return name.replace("_", "").casefold()


def _reported(contents: Sequence[dict[str, Json]]) -> tuple[list[ReportedResult], Counter[str]]:
    """Return the results in a history, and how often each function was called in it."""
    past: dict[str, ParsedCall] = {}
    called: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    found: list[ReportedResult] = []
    for content in contents:
        for part in objects(content.get("parts"), "parts"):
            call = either(part, "functionCall", "function_call")
            response = either(part, "functionResponse", "function_response")
            if isinstance(call, dict):
                key = _correlation(call, called)
                past[key] = past_call(call.get("name"), call.get("args"), key)
            if isinstance(response, dict):
                key = _correlation(response, answered)
                made = past.get(key) or past_call(response.get("name"), None, key)
                found.append(ReportedResult(made, response.get("response")))
    return found, called


def _correlation(call: Mapping[str, Json], counts: Counter[str]) -> str:
    """Return the id of a call; without one, its name and how many came before it."""
    name, identifier = str(call.get("name")), call.get("id")
    counts[name] += 1
    return identifier if isinstance(identifier, str) and identifier else f"{name}#{counts[name]}"


class GeminiAnswer(AnswerReader):
    """Judges the calls of each event by themselves.

    Args:
        called: how often each function was called in the history.
    """

    call_members: ClassVar[frozenset[str]] = frozenset({"candidates"})
    sign = b"\n"
    # The google-genai client takes a comment for data.

    def __init__(self, called: Counter[str]) -> None:
        super().__init__()
        self._called = Counter(called)

    def chunk(self, event: AnswerEvent) -> Sequence[Piece]:
        """Take in one event."""
        raw, document = self.release(), event.document
        if document is None:
            return [raw]
        places = list(_calls(document))

        def settle(notices: Sequence[str | None]) -> bytes:
            if not any(notices):
                return raw
            return render_event(_replaced(document, places, notices), _name(event))

        return [Held(self._read(document, places), settle)]

    def end(self) -> Sequence[Piece]:
        """Return nothing: nothing is ever kept."""
        return []

    def body(self, raw: bytes, content: Json) -> Piece:
        """Read a whole generation, or the list of chunks that a stream without events is."""
        documents = expect_list(content if isinstance(content, list) else [content], "an answer")
        places = [list(_calls(document)) for document in documents]
        calls = [self._read(d, p) for d, p in zip(documents, places, strict=True)]

        def settle(notices: Sequence[str | None]) -> bytes:
            if not any(notices):
                return raw
            left = iter(notices)
            changed = [
                _replaced(document, inside, [next(left) for _ in inside])
                for document, inside in zip(documents, places, strict=True)
            ]
            return compact(changed if isinstance(content, list) else changed[0]).encode()

        return Held(tuple(call for inside in calls for call in inside), settle)

    def _read(
        self, document: Mapping[str, Json], places: Sequence[tuple[int, int]]
    ) -> tuple[Proposal, ...]:
        calls: list[Proposal] = []
        expect_room(len(places) - 1)
        for candidate, part in places:
            call = document["candidates"][candidate]["content"]["parts"][part]["functionCall"]
            if not isinstance(call, dict) or call.keys() - _CALL:
                calls.append(MessageError("bad_call", "a function call must come whole"))
                continue
            key = _correlation(call, self._called)
            calls.append(proposal(call.get("name"), call.get("args") or {}, key))
        return tuple(calls)


def _name(event: AnswerEvent) -> str:
    return "" if event.name == "message" else event.name


def _calls(document: Mapping[str, Json]) -> Iterator[tuple[int, int]]:
    """Yield the place of every function call: candidate and part."""
    reject_unknown_members(document, _TOP, "an answer")
    if not document.keys() & {"candidates", "error", "usageMetadata", "promptFeedback"}:
        raise MessageError(CODE, "an answer must have candidates")
    for number, candidate in enumerate(expect_list(document.get("candidates"), "candidates")):
        reject_unknown_members(candidate, _CANDIDATE, "a candidate")
        content = candidate.get("content") or {}
        if not isinstance(content, dict):
            raise MessageError(CODE, "the content of a candidate must be an object")
        reject_unknown_members(content, ("parts",), "a content")
        for place, part in enumerate(expect_list(content.get("parts"), "parts")):
            reject_unknown_members(part, _PART, "a part")
            if any(_plain(key) == "functioncall" and key != "functionCall" for key in part):
                raise MessageError("ambiguous_key", "`functionCall` is written in another case")
            if "functionCall" in part:
                yield number, place


def _replaced(
    document: Mapping[str, Json],
    places: Sequence[tuple[int, int]],
    notices: Sequence[str | None],
) -> dict[str, Json]:
    """Return the document with a text in the place of each refused call."""
    changed = copy.deepcopy(dict(document))
    for (number, place), notice in zip(places, notices, strict=True):
        if notice is not None:
            candidate = changed["candidates"][number]
            candidate["content"]["parts"][place] = {"text": notice}
            # Probabilities name the tokens, and so the arguments.
            candidate.pop("logprobsResult", None)
    return changed
