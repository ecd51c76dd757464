"""A chat completion on its way back: calls held, judged, released or rewritten.  Pure: no I/O."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import (
    CODE,
    AnswerEvent,
    AnswerReader,
    Held,
    compact,
    join,
    render_event,
)
from guard.protocols.llm.openai_chat_parts import LEGACY, PartialCall, calls_in, read_choices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import Piece


_Place = tuple[int, int]
"""Index of the choice, index of the call within it."""


class ChatAnswer(AnswerReader):
    """Holds from the first fragment of a call until every choice with calls has finished."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[_Place, PartialCall] = {}
        self._finished: set[int] = set()

    def chunk(self, event: AnswerEvent) -> Sequence[Piece]:
        """Take in one chunk."""
        if event.document is None:
            return self.end()
        for choice in read_choices(event.document):
            self._take(choice)
        if not self._open:
            return [self.release()]
        waiting = {place[0] for place in self._open} - self._finished
        return [] if waiting else [self._judge()]

    def _take(self, choice: Mapping[str, Json]) -> None:
        if choice.get("message"):
            raise MessageError(CODE, "a chunk must have a delta and no message")
        index, calls = calls_in(choice, choice.get("delta"))
        if calls and index in self._finished:
            raise MessageError(CODE, "a tool call after the end of its choice")
        for place, fragment in calls:
            self._open.setdefault((index, place), PartialCall()).add(fragment)
        if choice.get("finish_reason") is not None:
            self._finished.add(index)

    def end(self) -> Sequence[Piece]:
        """Judge what is open, release the rest."""
        if self._open:
            return [self._judge()]
        return [self.release()] if self.held else []

    def _judge(self) -> Held:
        events, open_calls = self.take(), self._open
        self._open = {}
        places = sorted(open_calls)

        def settle(notices: Sequence[str | None]) -> bytes:
            verdicts = dict(zip(places, notices, strict=True))
            return b"".join(_rewritten(events, verdicts)) if any(notices) else join(events)

        return Held(tuple(open_calls[p].proposal(p[1]) for p in places), settle)

    def body(self, raw: bytes, content: Json) -> Piece:
        """Read a whole completion; one that is an error carries no call."""
        if not isinstance(content, dict):
            raise MessageError(CODE, "an answer must be an object")
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
                partials[index, place] = PartialCall()
                partials[index, place].add(fragment)
        places = sorted(partials)

        def settle(notices: Sequence[str | None]) -> bytes:
            if not any(notices):
                return raw
            document = copy.deepcopy(content)
            verdicts = dict(zip(places, notices, strict=True))
            for choice in document["choices"]:
                _strip(choice, choice["message"], verdicts, whole=True)
            return compact(document).encode()

        return Held(tuple(partials[p].proposal(p[1]) for p in places), settle)


def _rewritten(events: Sequence[AnswerEvent], verdicts: Mapping[_Place, str | None]) -> list[bytes]:
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
    verdicts: Mapping[_Place, str | None],
    *,
    whole: bool,
) -> None:
    """Take the refused calls out of a choice's message or delta; number the others anew."""
    index = choice.get("index", 0)
    refused = {p for (i, p), notice in verdicts.items() if i == index and notice is not None}
    if not refused:
        return
    kept = sorted(p for (i, p), notice in verdicts.items() if i == index and notice is None)
    calls = message.pop("tool_calls", None) or []
    places = [(n if whole else call["index"], call) for n, call in enumerate(calls)]
    left = [
        call if whole else {**call, "index": kept.index(place)}
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
        _add_text(message, _notice(index, verdicts))


def _add_text(message: dict[str, Json], notice: str) -> None:
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = [*content, {"type": "text", "text": notice}]
    else:
        message["content"] = f"{content}\n\n{notice}" if content else notice


def _notice(index: int, verdicts: Mapping[_Place, str | None]) -> str:
    return "\n".join(n for (i, _), n in sorted(verdicts.items()) if i == index and n is not None)


def _told(
    document: Mapping[str, Json], index: int, verdicts: Mapping[_Place, str | None]
) -> list[bytes]:
    """Return the event that says what was refused in one choice."""
    notice = _notice(index, verdicts)
    if not notice:
        return []
    choice = {"index": index, "delta": {"content": notice}, "finish_reason": None}
    return [render_event({**document, "usage": None, "choices": [choice]})]


def _untold(
    events: Sequence[AnswerEvent], verdicts: Mapping[_Place, str | None], told: set[int]
) -> list[bytes]:
    """Return the same for choices that never finished."""
    document = next((e.document for e in events if e.document is not None), {})
    missing = {index for index, _ in verdicts} - told
    told |= missing
    return [event for index in sorted(missing) for event in _told(document, index, verdicts)]


def _says_something(document: Mapping[str, Json]) -> bool:
    choices = document.get("choices") or []
    return bool(document.get("usage")) or any(
        choice.get("delta") or choice.get("finish_reason") is not None for choice in choices
    )
