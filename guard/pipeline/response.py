"""An answer, whichever enforcement point brought it: results, declarations, and calls of models.

It is read before it is released: a result is matched to its call and observed, a server's
declarations are labelled, and a call that a model asks for waits for its verdict.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.declarations import Declaration
from guard.core.errors import Fate, MessageError, OversizeError
from guard.core.model import Json, Role
from guard.core.policy import Action, Mode, Reason, Verdict
from guard.pipeline.exchange import SIGN_SECONDS, Exchange, UnparsedExchange, new_decision_id, share
from guard.pipeline.in_flight import StoredExchanges, text_size
from guard.pipeline.large_work import LARGE, is_large, parsed
from guard.protocols.framing.content_coding import StreamDecoder
from guard.protocols.framing.sse import (
    BOM,
    EventCutter,
    message_event,
    read_event,
    text_beside,
    with_data,
)
from guard.protocols.http.message import HttpReply, HttpRequest
from guard.protocols.messages import ParsedResult
from guard.protocols.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from guard.pipeline.declarations import DeclarationHandler
    from guard.pipeline.handler_parts import HandlerParts
    from guard.pipeline.model_answers import ModelAnswerHandler
    from guard.protocols.base import ProtocolModule
    from guard.protocols.llm.model_answers import AnswerReader

ACCEPTED: Final = 202
BAD_REQUEST: Final = 400
SERVER_ERROR: Final = 500
UNMATCHED: Final = "result_unmatched"
"""Refusal code of a result that answers no open request."""
_UNMATCHED_VERDICT: Final = Verdict(
    Action.BLOCK,
    Mode.ENFORCE,
    (Reason(UNMATCHED, "", Action.BLOCK, remedy="go on without this answer"),),
    policy="",
)
_EVENT_ID: Final = re.compile(rb"^id: ?([^\r\n]{1,512})", re.MULTILINE)
FIRST_SIGN_SECONDS: Final = 1.0
"""Delay until a client first learns that a call in a streamed answer is held."""
FOUND: Final = "llm.hosted"
"""Source of what tools of a model's provider returned."""
UNREQUESTED: Final = "http.answer"
"""Source of text that comes in pieces after the first answer to a request."""


SESSION_ID: Final = "mcp-session-id"
LEADING: Final = (
    *("location", "content-location", "refresh", "link"),
    *("content-disposition", "warning"),
)
"""Headers of an answer by which a client goes on somewhere else, or of which it shows its agent
something: where it might, what a file is called, what went wrong."""


class ResponseHandler:
    """Observes the results in answers and has the calls in them judged.

    Args:
        parts: shared with the other handlers.
        models: judges the calls in answers of models.
    """

    def __init__(self, parts: HandlerParts, models: ModelAnswerHandler) -> None:
        self._parts = parts
        self._models = models
        self.body_limit = parts.body_limit

    async def on_answer(self, exchange: Exchange, body: bytes, status: int = 200) -> bytes | None:
        """Observe the results in a complete answer body, and judge the calls in it.

        Returns:
            the body to release instead, None where the one that came is released.

        Raises:
            MessageError: it may carry calls and cannot be read one way only.
        """
        content = await self._read(exchange, body)
        if exchange.reader is not None:
            instead = await self._judge_body(exchange, exchange.reader, body, content, status)
        if isinstance(content, MessageError):
            content = body.decode("utf-8", "replace")
        if exchange.reader is None:
            instead = await self._observe(exchange, content, status)
        if status != ACCEPTED or not exchange.protocol.answers_by_id:
            # An answer that is complete and names no id still ends the calls of its exchange.
            # Where the message was only accepted, its result comes in another one.
            await self._end_calls(exchange, content, is_lost=status < BAD_REQUEST)
        elif self._parts.shared is not None:
            share(self._parts.shared, exchange)
        return instead

    async def _read(self, exchange: Exchange, body: bytes) -> Json | MessageError:
        """Return the JSON of a body, or why it has none; a large one does not delay others.

        Raises:
            MessageError: its structure takes more work than one message may.
        """
        if len(body) > LARGE:
            # In an idle turn of the event loop: what is done before would hold up others as well.
            await asyncio.sleep(0)
        return await self._parts.guard.calls.large.json(exchange.identity.principal, body)

    def on_offers(self, tell: Callable[[str, Sequence[str]], Awaitable[None]]) -> None:
        """Report the tools of a server to other processes, before its listing is released."""
        if self._parts.declarations is not None:
            self._parts.declarations.offered = tell

    @property
    def passes(self) -> bool:
        """True if unreadable answers are recorded and released anyway (monitor mode)."""
        return self._parts.failures.passes

    async def on_head(self, exchange: Exchange, values: Callable[[str], Sequence[str]]) -> None:
        """Take in what the head of an answer gives its client: a session's id, where to go on.

        Args:
            exchange: whose answer it is.
            values: of a header, by its name in lower case.

        Raises:
            MessageError: what it says cannot be labelled, or is withheld.
        """
        tokens = values(SESSION_ID)
        if tokens:
            token = ", ".join(tokens)
            self._parts.issued.add(exchange.upstream, token, exchange.identity.tenant)
            if exchange.named is not None:
                exchange.named(token)
        leads = [value for name in LEADING for value in values(name)]
        if leads and self._parts.declarations is not None:
            await self._parts.declarations.note(exchange, Declaration(UNREQUESTED, leads))

    async def on_message(self, exchange: Exchange, frame: bytes) -> bytes | None:
        """Observe one message of a server's that speaks by a pipe; as for a whole answer.

        Raises:
            MessageError: it cannot be read one way only.
        """
        content = await self._read(exchange, frame)
        if isinstance(content, MessageError):
            if not self._parts.failures.passes:
                raise content
            content = frame.decode("utf-8", "replace")
        return await self._observe(exchange, content)

    async def on_lost(self, exchange: Exchange, *, is_unsent: bool = False) -> None:
        """Note that no answer will come: whether the calls were carried out is not known.

        Where the stream has marks by which a client fetches the rest, it may come yet.

        Args:
            exchange: the request.
            is_unsent: true if the server provably received nothing: people's answers hold again.
        """
        if is_unsent:
            await self._parts.guard.give_back(exchange.calls.values())
        if exchange.resumes and not exchange.is_write:
            return
        await self._end_calls(exchange, None, is_lost=True)

    async def _end_calls(self, exchange: Exchange, content: Json, *, is_lost: bool) -> None:
        for correlation in list(exchange.calls):
            missing = ParsedResult(correlation, content, is_error=True)
            await self._finish(exchange, missing, is_lost=is_lost)

    async def _judge_body(
        self, exchange: Exchange, reader: AnswerReader, body: bytes, content: Json, status: int
    ) -> bytes | None:
        """Judge the calls in a model's answer; return what is released instead, if anything."""
        known = None if isinstance(content, MessageError) else content
        if not body or (status >= BAD_REQUEST and reader.is_plain_error(body, known)):
            return None
        try:
            if isinstance(content, MessageError):
                raise content
            piece = reader.body(body, content)
        except MessageError as error:
            if not self._parts.failures.passes:
                raise
            self._parts.failures.record(error, exchange.protocol.name, exchange.place)
            return None
        await self._note_found(exchange, reader)
        if isinstance(piece, bytes):
            return None
        released = await self._models.settle(exchange, piece, exchange.hold_seconds)
        return None if released == body else released

    async def on_event(self, exchange: Exchange, event: bytes) -> list[bytes]:
        """Return what may be released after one event, in order.

        A result in it has been observed then; a call in it waits until it is complete and judged.

        Raises:
            MessageError: the protocol frames its messages in events, and this one cannot be read
                one way only.
        """
        if exchange.reader is not None:
            return await self._answer_event(exchange, exchange.reader, event)
        first, exchange.streams = not exchange.streams, True
        framed = exchange.protocol.event_names
        if framed and not first and event.startswith(BOM) and not self._parts.failures.passes:
            raise MessageError("bad_answer", "an event begins with a byte order mark")
        name, data = read_event(event, first=first)
        self._note_marks(exchange, event)
        beside = text_beside(event)
        if beside and self._parts.declarations is not None:
            await self._parts.declarations.note(exchange, Declaration(UNREQUESTED, beside))
        if not data:
            return [event]
        exchange.join(name, data)
        if exchange.protocol.upstream_of_event(name, data) is not None:
            place = urlsplit(data)
            query = f"?{place.query}" if place.query else ""
            self._parts.issued.add(exchange.upstream, place.path + query, exchange.identity.tenant)
        content = await self._read(exchange, data.encode())
        if isinstance(content, MessageError):
            if name in framed and not self._parts.failures.passes:
                raise content
            if exchange.protocol.upstream_of_event(name, data) is not None:
                return [_reached(exchange.server, event, data)]
            content = data
        changed = await self._observe(exchange, content)
        return [event if changed is None else with_data(event, changed.decode())]

    def _note_marks(self, exchange: Exchange, event: bytes) -> None:
        """Note the marks by which a client may fetch the rest of a stream, at any process."""
        for found in _EVENT_ID.finditer(event):
            if not exchange.resumes and self._parts.shared is not None:
                share(self._parts.shared, exchange)
            exchange.resumes = True
            mark = found[1].decode("utf-8", "replace")
            self._parts.issued.add(exchange.upstream, mark, exchange.identity.tenant)

    async def _answer_event(
        self, exchange: Exchange, reader: AnswerReader, event: bytes | None
    ) -> list[bytes]:
        """Return what is released after an event of a model's answer, or at its end (None)."""
        try:
            pieces = reader.end() if event is None else reader.event(event)
            if reader.size > self.body_limit:
                raise OversizeError(f"a call is larger than {self.body_limit} bytes")
        except MessageError as error:
            if not self._parts.failures.passes:
                raise
            self._parts.failures.record(error, exchange.protocol.name, exchange.place)
            held = reader.release()
            exchange.reader = None
            return [held if event is None or held.endswith(event) else held + event]
        await self._note_found(exchange, reader)
        hold_seconds = self.hold_seconds(exchange)
        return [
            piece
            if isinstance(piece, bytes)
            else await self._models.settle(exchange, piece, hold_seconds)
            for piece in pieces
        ]

    async def _note_found(self, exchange: Exchange, reader: AnswerReader) -> None:
        """Label what tools of a model's provider returned, before the calls that follow from it."""
        found, reader.found = reader.found, []
        if found and self._parts.declarations is not None:
            await self._parts.declarations.note(exchange, Declaration(FOUND, found))

    def hold_seconds(self, exchange: Exchange) -> int:
        """Return for how many seconds events of a streamed answer may wait for a person."""
        return 0 if exchange.reader is None else self._models.hold_seconds(exchange)

    async def on_end(self, exchange: Exchange, rest: bytes) -> list[bytes]:
        """Return what is released at the end of a stream.

        Args:
            exchange: whose stream ended.
            rest: an event that was never finished, which a lenient client reads all the same.

        Raises:
            MessageError: as for an event.
        """
        released = await self.on_event(exchange, rest) if rest else []
        if exchange.reader is not None:
            released += await self._answer_event(exchange, exchange.reader, None)
            await self._end_calls(exchange, None, is_lost=True)
        return released

    def event_reader(self, exchange: Exchange, encoding: str = "") -> EventReader:
        """Return the reader of a stream of events; raises MessageError for unknown encodings."""
        return EventReader(self, exchange, StreamDecoder(encoding, limit=self.body_limit))

    def refuse(
        self,
        error: MessageError,
        exchange: Exchange | UnparsedExchange,
        request: HttpRequest | None = None,
    ) -> HttpReply:
        """Record an answer that could not be read, or did not come; return the reply.

        Args:
            error: why.
            exchange: whose answer it is.
            request: the request that it answers, as far as it is known.
        """
        protocol, failure = exchange.protocol, _bad_gateway(error)
        decision_id = self._parts.failures.record(failure, protocol.name, exchange.place)
        return protocol.unreadable(failure, decision_id, request)

    def in_events(
        self, exchange: Exchange | UnparsedExchange, request: HttpRequest, body: bytes, status: int
    ) -> HttpReply:
        """Return a whole answer as the message of a stream of events that has begun already.

        What is not a message (an error page, an empty answer) gives way to words that say so.
        """
        content = parsed(body)
        items = content if isinstance(content, list) else [content]
        if items and all(isinstance(one, dict) and "jsonrpc" in one for one in items):
            # On one line, as an event has it.
            return HttpReply(status, "application/json", json.dumps(content).encode())
        error = MessageError("bad_answer", f"the tool server answered with status {status}")
        return self.refuse(error, exchange, request)

    def end_open(self, error: MessageError, exchange: Exchange) -> list[bytes]:
        """Return the messages that end requests whose answers a stream will not bring any more.

        Nothing, and no record, where nobody waits for one, or where the stream has marks by which
        a client fetches the rest from its server itself.
        """
        if exchange.resumes:
            return []
        open_calls = {key: True for key in exchange.calls if key is not None}
        open_calls |= {key: False for key in exchange.plain if key is not None}
        if exchange.answers_for:
            stream = exchange.message_key("")
            open_calls |= dict.fromkeys(self._parts.in_flight.open_in(stream), True)
            open_calls |= dict.fromkeys(self._parts.plain.open_in(stream), False)
        failure, decision_id = _bad_gateway(error, Fate.UNKNOWN), new_decision_id()
        notices = exchange.protocol.lost(open_calls, failure, decision_id)
        if notices:
            self._parts.failures.record(
                failure, exchange.protocol.name, exchange.place, decision_id
            )
        return [json.dumps(one).encode() for one in notices]

    async def _observe(self, exchange: Exchange, content: Json, status: int = 200) -> bytes | None:
        """Label results; replace results that cannot be labelled by a notice.

        Raises:
            MessageError: something that answers no request cannot be labelled.
        """
        try:
            return await self._labelled(exchange, content, status)
        except MessageError as error:
            protocol = exchange.protocol
            answered = {
                result.correlation: isinstance(result.content, dict) and "content" in result.content
                for result in protocol.results(content)
                if result.correlation is not None
            }
            failure, decision_id = _bad_gateway(error), new_decision_id()
            notices = protocol.lost(answered, failure, decision_id)
            if not notices:
                raise
            self._parts.failures.record(failure, protocol.name, exchange.place, decision_id)
            return json.dumps(notices if isinstance(content, list) else notices[0]).encode()

    async def _labelled(self, exchange: Exchange, content: Json, status: int) -> bytes | None:
        """Observe every result and label everything else; return the body without what is withheld.

        INVARIANT (read = labelled): whatever of the content is released has been labelled before.
        """
        protocol = exchange.protocol
        refusals: dict[str | None, Refusal] = {}
        parts: list[tuple[Json, Json]] = []
        for result in protocol.results(content):
            refusal = await self._settle(exchange, result, status)
            if refusal is not None and refusal.verdict.enforced is Action.REDACT:
                parts.append((result.content, refusal.verdict.instead))
            elif refusal is not None:
                refusals[result.correlation] = refusal
        released: Json = None
        for whole, part in parts:
            released = content = _with_part(content, whole, part)
        if not protocol.is_bare_result(content):
            released = await self._declared(exchange, content) or released
        if refusals:
            released = protocol.withhold(content if released is None else released, refusals)
        if released is None:
            return None
        return released.encode() if isinstance(released, str) else json.dumps(released).encode()

    async def _declared(self, exchange: Exchange, content: Json) -> Json:
        """Label what a server declares, note what its client will repeat.

        Returns:
            the content without the declarations that are withheld; None where none are.
        """
        protocol = exchange.protocol
        released: Json = None
        if self._parts.declarations is not None:
            for declaration in await self._declared_in(protocol, content):
                await self._parts.declarations.note(exchange, declaration)
            released = await self._without_withheld(exchange, self._parts.declarations, content)
        marks = protocol.asked(content)
        asked = [self._parts.issued.question(exchange.identity.principal, mark) for mark in marks]
        for token in (*protocol.said(content), *asked):
            self._parts.issued.add(exchange.upstream, token, exchange.identity.tenant)
        return released

    async def _without_withheld(
        self, exchange: Exchange, declarations: DeclarationHandler, content: Json
    ) -> Json:
        """Return the content without the entries that a rule withholds; None: none are."""
        entries: list[tuple[str, Json]] = []

        def listed(source: str, entry: Json) -> bool:
            entries.append((source, entry))
            return False

        exchange.protocol.without_declarations(content, listed)
        withheld = await declarations.withheld(exchange, entries)
        # The protocol asks about the entries in the same order again.
        positions = count()
        return (
            exchange.protocol.without_declarations(content, lambda *_: next(positions) in withheld)
            if withheld
            else None
        )

    async def _declared_in(self, protocol: ProtocolModule, content: Json) -> list[Declaration]:
        """Return what a server declares; a large listing is read while others are judged."""
        return await self._parts.guard.threads.run_if(
            is_large(content), lambda: list(protocol.declarations(content))
        )

    async def _settle(
        self, exchange: Exchange, result: ParsedResult, status: int
    ) -> Refusal | None:
        """Observe the result of a call, or label another answer; return why it is withheld."""
        is_lost = status >= SERVER_ERROR
        if status >= BAD_REQUEST and not result.is_error:
            result = replace(result, is_error=True)
        correlation, protocol = result.correlation, exchange.protocol
        if self._parts.shared is not None and correlation is not None and protocol.answers_by_id:
            await self._fetch(self._parts.shared, exchange, correlation)
        if correlation in exchange.calls or self._is_awaited(exchange, correlation):
            return await self._finish(exchange, result, is_lost=is_lost)
        method = exchange.plain.pop(correlation, None)
        if correlation is not None:
            method = self._parts.plain.take(exchange.message_key(correlation)) or method
        if method is None and protocol.answers_by_id:
            error = MessageError(UNMATCHED, "the answer names no request that is open")
            decision_id = self._parts.failures.record(error, protocol.name, exchange.place)
            if not self._parts.failures.passes:
                return Refusal(decision_id, _UNMATCHED_VERDICT, fate=Fate.WITHHELD)
        text = protocol.unlisted(result)
        if text is not None and self._parts.declarations is not None:
            source = method or UNREQUESTED
            await self._parts.declarations.note(exchange, Declaration(source, text))
        return None

    async def _fetch(self, shared: StoredExchanges, exchange: Exchange, correlation: str) -> None:
        """Take over an open request of another process; of this one's, no other need know now."""
        key, tenant = exchange.message_key(correlation), exchange.identity.tenant
        open_here = correlation in exchange.calls or correlation in exchange.plain
        if open_here or self._parts.in_flight.holds(key) or self._parts.plain.holds(key):
            shared.forget(tenant, key)
            return
        held = await shared.take(tenant, key)
        if isinstance(held, str):
            exchange.plain[correlation] = held
        elif held is not None:
            self._parts.guard.adopt(held)
            exchange.calls[correlation] = held

    def _is_awaited(self, exchange: Exchange, correlation: str | None) -> bool:
        return correlation is not None and self._parts.in_flight.holds(
            exchange.message_key(correlation)
        )

    async def _finish(
        self, exchange: Exchange, result: ParsedResult, *, is_lost: bool
    ) -> Refusal | None:
        """Observe one result, once, whichever exchange it came back in."""
        correlation = result.correlation
        classified = exchange.calls.pop(correlation, None)
        if correlation is not None:
            pending = self._parts.in_flight.take(exchange.message_key(correlation))
            classified = classified or pending
        if classified is None:
            return None
        task = None if result.is_error else exchange.protocol.task_of(result.content)
        if task is not None:
            # Not the result yet: whoever asks for it later gets it judged as that call's.  What
            # comes along is text like any other, and settles nothing.
            size = text_size(dict(classified.call.arguments))
            self._parts.in_flight.add(exchange.task_key(task), classified, size)
            if self._parts.shared is not None:
                tenant = exchange.identity.tenant
                self._parts.shared.keep(tenant, exchange.task_key(task), classified)
            early = replace(classified.call, id=new_decision_id())
            mapping = classified.classified.mapping
            classified = untraced(ClassifiedCall(early, Role.OTHER, mapping))
        now = self._parts.clock.now()
        verdict = await self._parts.guard.observe(
            ToolResult(classified, result.content, now, result.is_error, is_lost)
        )
        if verdict is None:
            return None
        fate = Fate.UNKNOWN if is_lost else Fate.WITHHELD
        return Refusal(classified.call.id, verdict, fate=fate)


def _bad_gateway(error: MessageError, fate: Fate = Fate.WITHHELD) -> MessageError:
    """Return an error of an answer, as its client sees it."""
    fate = error.fate if error.fate is Fate.UNKNOWN else fate
    return MessageError(error.code, str(error), status=502, fate=fate)


class EventReader:
    """Lets a stream of server-sent events through, event by event.

    Only an event that carries a result waits, for one round trip to the store; and a call of a
    model that is held open for a person's answer.  Then ``feed`` and ``end`` return before all is
    judged, :attr:`waits` is true, and :meth:`go_on` returns what comes next.
    """

    def __init__(
        self, responses: ResponseHandler, exchange: Exchange, decoder: StreamDecoder
    ) -> None:
        self._responses = responses
        self._exchange = exchange
        self._decoder = decoder
        self._cutter = EventCutter(responses.body_limit)
        self._released: list[bytes] = []
        self._work: asyncio.Task[None] | None = None
        self._signs = 0
        """Number of signs that its client has received."""
        self.is_closed = False
        """True if the waiting data were given up: nothing more is released."""

    @property
    def held(self) -> int:
        """Bytes of the stream that wait: of an unfinished event, or of calls of a model."""
        reader = self._exchange.reader
        return self._cutter.held + (0 if reader is None else reader.size)

    @property
    def waits(self) -> bool:
        """True while a part of the stream waits for a person's answer."""
        return self._work is not None

    async def feed(self, chunk: bytes) -> list[bytes]:
        """Return the bytes that may be released after a chunk, in order.

        Raises:
            MessageError: the chunk cannot be decoded, or one event is larger than the limit.
        """
        return await self._through(self._feed(chunk))

    async def end(self) -> list[bytes]:
        """Return what is left at the end of the stream.

        Raises:
            MessageError: as for a chunk.
        """
        return await self._through(self._end())

    async def go_on(self) -> list[bytes]:
        """Return what may be released next; or else, after a while, what says that it waits.

        Raises:
            MessageError: as for a chunk.
        """
        work = self._work
        if work is not None:
            await asyncio.wait([work], timeout=SIGN_SECONDS if self._signs else FIRST_SIGN_SECONDS)
            if self.is_closed:
                self._work = None
            elif work.done():
                self._work, self._signs = None, 0
                work.result()
            else:
                self._signs += 1
                reader = self._exchange.reader
                self._released += [] if reader is None else [reader.sign]
        released, self._released = self._released, []
        return released

    def close(self) -> None:
        """Give up what waits: its client has left."""
        self.is_closed = True
        if self._work is not None:
            self._work.cancel()

    async def _through(self, work: Coroutine[Any, Any, None]) -> list[bytes]:
        if self._responses.hold_seconds(self._exchange):
            self._work = asyncio.get_running_loop().create_task(work)
            return await self.go_on()
        await work
        released, self._released = self._released, []
        return released

    async def _feed(self, chunk: bytes) -> None:
        for event in self._cutter.feed(self._decoder.feed(chunk)):
            # The list may be another one after the wait.
            pieces = await self._responses.on_event(self._exchange, event)
            self._released += pieces

    async def _end(self) -> None:
        pieces = await self._responses.on_end(self._exchange, self._cutter.rest())
        self._released += pieces

    def refuse(self, error: MessageError) -> list[bytes]:
        """Record that the stream ends here; return the events that say so to who waits."""
        notices = self._responses.end_open(error, self._exchange)
        if not notices:
            self._responses.refuse(error, self._exchange)
        return [message_event(one) for one in notices]


def _reached(server: str, event: bytes, data: str) -> bytes:
    """Return an event that says where to post: under the server's path, where it has one."""
    _, slash, route = server.partition("/")
    if not slash:
        return event
    place = urlsplit(data)
    query = f"?{place.query}" if place.query else ""
    return with_data(event, f"/{route}/{place.path.removeprefix('/')}{query}")


def _with_part(document: Json, whole: Json, part: Json) -> Json:
    """Return a document in which one value, that very object, has given way to another."""
    if document is whole:
        return part
    if isinstance(document, dict):
        return {name: _with_part(inner, whole, part) for name, inner in document.items()}
    if isinstance(document, list):
        return [_with_part(inner, whole, part) for inner in document]
    return document
