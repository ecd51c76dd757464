"""Base of the readers of model answers, which hold calls until they are judged.  Pure: no I/O.

An answer contains the calls that an agent will make.  Text passes immediately.  The bytes of a call
are held until the call is complete and judged.  They are then released unchanged, or replaced by a
text that says that the call was refused.  A call that readers could read differently is refused.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.errors import MessageError
from guard.protocols.framing.json_messages import parse_json, reject_lookalike_keys
from guard.protocols.framing.sse import has_unknown_field, read_event
from guard.protocols.messages import ParsedCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guard.core.model import Json

CODE: Final = "bad_answer"
DONE: Final = "[DONE]"
"""The data of the event by which some APIs end a stream."""
APPROVAL: Final = "approval:"
"""Before the id of a call of the provider's own that the agent is asked to approve."""
_FIELD: Final = re.compile(r"\ufeff?(?:data|event)")

Proposal: TypeAlias = "ParsedCall | MessageError"
"""A call that the model requests, or the reason why it is unreadable."""


CALLS_LIMIT: Final = 128
"""Maximum number of calls that an answer holds open, or has as a whole."""


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """One server-sent event of an answer, without its document, which takes many times its text."""

    raw: bytes
    name: str
    """Its type."""

    @property
    def document(self) -> dict[str, Json] | None:
        """Its data; None is the end mark."""
        return _document_of(read_strictly(self.raw)[1])


@dataclass(frozen=True, slots=True)
class Held:
    """A part of an answer that waits for a verdict."""

    calls: tuple[Proposal, ...]
    settle: Callable[[Sequence[str | None]], bytes]
    """Function that returns the bytes to release, unchanged if every call is released.

    Its argument has one entry per call: None for a released call, else the text in its place.
    """


Piece: TypeAlias = "bytes | Held"


class AnswerReader(ABC):
    """Reads one answer, streamed or whole."""

    call_members: frozenset[str] = frozenset()
    """Members, in lower case, under which an answer of this format can carry calls.  An error
    without any of them is released unread.  A format that names none has its errors read like its
    other answers."""
    sign: bytes = b": the egress guard waits for an approval\n"
    """A line between two events that its clients skip: the answer goes on."""

    def __init__(self) -> None:
        self.held: list[AnswerEvent] = []
        """Events that are not yet released."""
        self.size = 0
        """Size of the held events, in bytes."""
        self.found: list[Json] = []
        """Results of the provider's tools since the last label."""

    def event(self, event: bytes) -> Sequence[Piece]:
        """Return the pieces that are complete after one server-sent event.

        Raises:
            MessageError: the event cannot be read one way only.
        """
        name, data = read_strictly(event)
        if not data:
            return [event]
        document = _document_of(data)
        self.size += len(event)
        self.held.append(AnswerEvent(event, name))
        return self.chunk(name, document)

    def is_plain_error(self, body: bytes, content: Json) -> bool:
        """Return whether the body of an error answer cannot carry a call.

        Args:
            body: its bytes.
            content: its JSON; None if the body is not JSON or is ambiguous.
        """
        if content is None:
            # What begins like JSON may be JSON to a more lenient reader.
            return body.lstrip(b" \t\r\n\xef\xbb\xbf")[:1] not in {b"{", b"["}
        if not isinstance(content, dict) or not self.call_members:
            return False
        return self.call_members.isdisjoint(key.casefold() for key in content)

    @abstractmethod
    def chunk(self, name: str, document: dict[str, Json] | None) -> Sequence[Piece]:
        """Return the pieces that are complete after an event, the last one of ``held``.

        Args:
            name: its type.
            document: its data; None is the end mark.

        Raises:
            MessageError: it cannot be read one way only.
        """

    @abstractmethod
    def end(self) -> Sequence[Piece]:
        """Return the rest at the end of the stream."""

    @abstractmethod
    def body(self, raw: bytes, content: Json) -> Piece:
        """Return a whole answer.

        Raises:
            MessageError: it cannot be read one way only.
        """

    def take(self) -> list[AnswerEvent]:
        """Return the held events, and forget them."""
        held, self.held, self.size = self.held, [], 0
        return held

    def release(self) -> bytes:
        """Return the bytes of the held events, and forget them."""
        return join(self.take())


def _document_of(data: str) -> dict[str, Json] | None:
    """Return the data of an event; None for the end mark.

    Raises:
        MessageError: it is anything else.
    """
    document = None if data == DONE else parse_json(data.encode())
    if document is not None and not isinstance(document, dict):
        raise MessageError(CODE, "an event of an answer must be an object")
    return document


def expect_room(calls: int) -> None:
    """Refuse an answer with one call more than may be held.

    Raises:
        MessageError: there are too many.
    """
    if calls >= CALLS_LIMIT:
        raise MessageError("too_many_calls", f"an answer has more than {CALLS_LIMIT} calls")


def join(events: Iterable[AnswerEvent]) -> bytes:
    """Return the bytes of events, unchanged."""
    return b"".join(event.raw for event in events)


def read_strictly(event: bytes) -> tuple[str, str]:
    """Return name and data of an event that every reader reads the same.

    Raises:
        MessageError: it is not UTF-8, has two names, or a reader that splits lines at Unicode's
            other line ends would find fields in it that the standard does not see.
    """
    try:
        text = event.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MessageError(CODE, f"an event is not utf-8 at byte {error.start}") from error
    names = 0
    for line in re.split(r"\r\n|\n|\r", text):
        names += line.partition(":")[0] == "event"
        for inner in line.splitlines()[1:]:
            if _FIELD.match(inner):
                raise MessageError(CODE, "an event has a field behind an unusual line end")
    if names > 1 or "\ufeff" in text[:1] or has_unknown_field(text):
        raise MessageError(CODE, "an event cannot be read one way only")
    return read_event(event)


def render_event(document: Json, name: str = "") -> bytes:
    """Return a server-sent event with JSON data."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {compact(document)}\n\n".encode()


def compact(document: Json) -> str:
    """Return JSON without spaces, as the APIs write it."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def proposal(tool: Json, arguments: Json, correlation: Json) -> Proposal:
    """Return a call from its parts in an answer.

    Args:
        tool: its name.
        arguments: an object, or the text of one (empty text means no arguments).
        correlation: the id its result will carry, None where it will carry none.
    """
    try:
        if not isinstance(tool, str) or not tool:
            raise MessageError("call_without_name", "a tool call must have a name")
        if isinstance(arguments, str):
            arguments = parse_json(arguments.encode()) if arguments.strip() else {}
        if not isinstance(arguments, dict):
            raise MessageError("bad_call", "the arguments of a tool call must be an object")
        if not isinstance(correlation, (str, type(None))) or correlation == "":
            raise MessageError("bad_call", "the id of a tool call must be a string")
        reject_lookalike_keys(arguments, ())
    except MessageError as error:
        return error
    except UnicodeEncodeError:
        return MessageError("bad_json", "the arguments have a lone surrogate")
    return ParsedCall(tool, arguments, correlation)


def expect_list(value: Json, where: str, code: str = CODE) -> list[dict[str, Json]]:
    """Return a list of objects; None is an empty one.

    Raises:
        MessageError: it is anything else.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise MessageError(code, f"`{where}` must be a list of objects")
    return value


def expect_text(value: Json, where: str) -> str:
    """Return a string; None is an empty one.

    Raises:
        MessageError: it is anything else.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MessageError(CODE, f"{where} must be a string")
    return value
