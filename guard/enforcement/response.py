"""What comes back: results matched to their calls, and calls in the answers of models.

Whichever PEP an answer came through, it is read here before it is released: a result is observed,
and a call that a model asks for waits for its verdict.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import MessageError, OversizeError
from guard.core.model import Role
from guard.decision.decision_ids import new_decision_id
from guard.enforcement.model_answers import TASK
from guard.protocols.framing.sse import BOM, EventCutter, read_event, with_data
from guard.protocols.framing.strict_json import parse_json
from guard.protocols.messages import ParsedResult
from guard.protocols.refusals import Refusal

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.core.ports import Clock
    from guard.decision.guard import Guard
    from guard.enforcement.declarations import DeclarationHandler
    from guard.enforcement.exchange import Exchange
    from guard.enforcement.model_answers import CallsInFlight, ModelAnswerHandler, ParseFailures
    from guard.protocols.base import ProtocolModule
    from guard.protocols.framing.content_coding import StreamDecoder
    from guard.protocols.http.message import HttpReply
    from guard.protocols.llm.model_answers import AnswerReader

_CARRIERS: Final = frozenset({"choices", "content", "output", "candidates"})
"""Where the answers of models keep their calls; an error without any of these has none."""
BAD_REQUEST: Final = 400
SERVER_ERROR: Final = 500


class ResponseHandler:
    """The road back.

    Args:
        guard: observes results.
        clock: seconds since the epoch.
        rest: the protocol of what no other claims.
        unread: records what cannot be read one way only.
        pending: forwarded calls whose results may come back in another exchange.
        model_calls: judges the calls in answers of models.
        body_limit: bytes one event, or one call, may have.
        texts: notes what servers say besides results; None where nobody keeps pins.
    """

    def __init__(  # noqa: PLR0913  (the gate passes every part once, by name)
        self,
        *,
        guard: Guard,
        clock: Clock,
        rest: ProtocolModule,
        unread: ParseFailures,
        pending: CallsInFlight,
        model_calls: ModelAnswerHandler,
        body_limit: int,
        texts: DeclarationHandler | None = None,
    ) -> None:
        self._guard = guard
        self._texts = texts
        self._clock = clock
        self._rest = rest
        self._unread = unread
        self._pending = pending
        self._model_calls = model_calls
        self.body_limit = body_limit

    async def on_answer(self, exchange: Exchange, body: bytes, status: int = 200) -> bytes | None:
        """Observe the results in a complete answer body, and judge the calls in it.

        Returns:
            the body to release instead, None where the one that came is released.

        Raises:
            MessageError: it may carry calls and cannot be read one way only.
        """
        if exchange.protocol is None:
            return None
        instead: bytes | None = None
        content: Json = None
        try:
            content = parse_json(body) if body else None
            if exchange.reader is not None and not _is_plain_error(content, status):
                instead = await self._judge_body(exchange, body, content)
        except MessageError:
            if exchange.reader is not None and status < BAD_REQUEST and not self._unread.passes:
                raise
            content = body.decode("utf-8", "replace")
        if exchange.reader is None:
            instead = await self._observe(exchange, content, status)
        # An answer that is complete and names no id still ends the calls of its exchange.
        await self._end_calls(exchange, content, is_lost=status < BAD_REQUEST)
        return instead

    async def on_lost(self, exchange: Exchange) -> None:
        """Note that no answer will come: whether the calls were carried out is not known."""
        await self._end_calls(exchange, None, is_lost=True)

    async def _end_calls(self, exchange: Exchange, content: Json, *, is_lost: bool) -> None:
        for correlation in list(exchange.calls):
            missing = ParsedResult(correlation, content, is_error=True)
            await self._finish(exchange, missing, is_lost=is_lost)

    async def _judge_body(self, exchange: Exchange, body: bytes, content: Json) -> bytes | None:
        if exchange.reader is None or exchange.origin is None or not body:
            return None
        piece = exchange.reader.body(body, content)
        if isinstance(piece, bytes):
            return None
        released = await self._model_calls.settle(exchange.origin, piece)
        return None if released == body else released

    async def on_event(self, exchange: Exchange, event: bytes) -> list[bytes]:
        """Return what may be released after one event, in order.

        A result in it has been observed then; a call in it waits until it is complete and judged.

        Raises:
            MessageError: a protocol that frames its messages in events claims the exchange, and
                this one cannot be read one way only.
        """
        if exchange.reader is not None:
            return await self._answer_event(exchange, exchange.reader, event)
        first, exchange.streams = not exchange.streams, True
        framed = exchange.protocol.event_names if exchange.protocol is not None else frozenset()
        if framed and not first and event.startswith(BOM) and not self._unread.passes:
            raise MessageError("bad_answer", "an event begins with a byte order mark")
        name, data = read_event(event, first=first)
        if not data:
            return [event]
        exchange.join(name, data)
        try:
            content = parse_json(data.encode())
        except MessageError:
            if name in framed and not self._unread.passes:
                raise
            return [event]
        withheld = await self._observe(exchange, content)
        return [event if withheld is None else with_data(event, withheld.decode())]

    async def _answer_event(
        self, exchange: Exchange, reader: AnswerReader, event: bytes | None
    ) -> list[bytes]:
        """Return what is released after an event of a model's answer, or at its end (None)."""
        try:
            pieces = reader.end() if event is None else reader.event(event)
            if reader.size > self.body_limit:
                raise OversizeError(f"a call is larger than {self.body_limit} bytes")
        except MessageError as error:
            if not self._unread.passes:
                raise
            self._record(error, exchange)
            held = reader.release()
            exchange.reader = None
            return [held if event is None or held.endswith(event) else held + event]
        if exchange.origin is None:
            raise MessageError("guard_error", "an answer without an origin")
        return [
            piece
            if isinstance(piece, bytes)
            else await self._model_calls.settle(exchange.origin, piece)
            for piece in pieces
        ]

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

    def refuse(self, error: MessageError, exchange: Exchange) -> HttpReply:
        """Record an answer that could not be read and return what the client gets instead."""
        decision_id = self._record(error, exchange)
        upstream = MessageError(error.code, str(error), status=502)
        return (exchange.protocol or self._rest).unreadable(upstream, decision_id)

    def _record(self, error: MessageError, exchange: Exchange) -> str:
        decision_id = new_decision_id()
        name = (exchange.protocol or self._rest).name
        self._unread.record(error, name, exchange.server, decision_id)
        return decision_id

    async def _observe(self, exchange: Exchange, content: Json, status: int = 200) -> bytes | None:
        """Tell the service of every result; return the body without those that are withheld."""
        if exchange.protocol is None:
            return None
        refusals: dict[str | None, Refusal] = {}
        for result in exchange.protocol.results(content):
            failed = replace(result, is_error=result.is_error or status >= BAD_REQUEST)
            refusal = await self._finish(exchange, failed, is_lost=status >= SERVER_ERROR)
            if refusal is not None:
                refusals[result.correlation] = refusal
        left: Json = None
        if self._texts is not None and exchange.origin is not None:
            for told in exchange.protocol.declarations(content):
                await self._texts.note(exchange.origin, exchange.upstream, told)
            withholds = partial(self._texts.withholds, exchange.origin)
            left = exchange.protocol.without_declarations(content, withholds)
        if refusals:
            left = exchange.protocol.withhold(content if left is None else left, refusals)
        return None if left is None else json.dumps(left).encode()

    async def _finish(
        self, exchange: Exchange, result: ParsedResult, *, is_lost: bool
    ) -> Refusal | None:
        """Tell the service of one result, once, wherever it came back."""
        correlation = result.correlation
        classified = exchange.calls.pop(correlation, None)
        if correlation is not None:
            pending = self._pending.take((*exchange.owner, correlation))
            classified = classified or pending
        if classified is None:
            return None
        protocol = exchange.protocol
        task = protocol.task_of(result.content) if protocol and not result.is_error else None
        if task is not None:
            # Not the result yet: whoever asks for it later gets it judged as that call's.  What
            # comes along is text like any other, and settles nothing.
            self._pending.add((*exchange.owner, TASK, task), classified)
            early = replace(classified.call, id=new_decision_id())
            mapping = classified.classified.mapping
            classified = untraced(ClassifiedCall(early, Role.OTHER, mapping))
        now = self._clock.now()
        verdict = await self._guard.observe(
            ToolResult(classified, result.content, now, result.is_error, is_lost)
        )
        return Refusal(classified.call.id, verdict) if verdict is not None else None


def _is_plain_error(content: Json, status: int) -> bool:
    """Return whether an answer is an error that cannot carry a call."""
    carries = isinstance(content, dict) and bool(content.keys() & _CARRIERS)
    return status >= BAD_REQUEST and isinstance(content, (dict, type(None))) and not carries


class EventReader:
    """Lets a stream of server-sent events through, event by event.

    Only an event that carries a result waits, for one round trip to the store.
    """

    def __init__(
        self, answers: ResponseHandler, exchange: Exchange, decoder: StreamDecoder
    ) -> None:
        self._answers = answers
        self._exchange = exchange
        self._decoder = decoder
        self._cutter = EventCutter(answers.body_limit)

    async def feed(self, chunk: bytes) -> list[bytes]:
        """Return the bytes that may be released after a chunk, in order.

        Raises:
            MessageError: the chunk cannot be decoded, or one event is larger than the limit.
        """
        released: list[bytes] = []
        for event in self._cutter.feed(self._decoder.feed(chunk)):
            released += await self._answers.on_event(self._exchange, event)
        return released

    async def end(self) -> list[bytes]:
        """Return what is left at the end of the stream.

        Raises:
            MessageError: as for a chunk.
        """
        return await self._answers.on_end(self._exchange, self._cutter.rest())

    def refuse(self, error: MessageError) -> None:
        """Record that the stream ends here."""
        self._answers.refuse(error, self._exchange)
