"""One HTTP exchange, whichever PEP it came through: hops 1, 2 and 7.

The gate finds the one protocol that claims a request, has it read once, asks the service, and
returns either an :class:`Exchange` (forward it) or an :class:`HttpReply` (answer it, forward
nothing).  On the way back it matches results to calls and tells the service.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError, MessageError
from guard.core.model import ToolCall, ToolResult
from guard.core.verdict import Mode
from guard.identity import NONCE_HEADER, TOKEN_HEADER, Credentials, identify
from guard.protocols import ParsedResult, Refusal
from guard.protocols.content_coding import StreamDecoder
from guard.protocols.sse import EventCutter, read_event, with_data
from guard.protocols.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.model import ClassifiedCall, Json
    from guard.core.ports import AuditLog, Clock, Metrics
    from guard.protocols import ProtocolModule
    from guard.protocols.http_message import HttpReply, HttpRequest
    from guard.service import Guard

BAD_REQUEST: Final = 400
SERVER_ERROR: Final = 500
PENDING_LIMIT: Final = 100_000
"""Calls whose results are awaited outside their own exchange; the oldest is forgotten first and
then simply stays *attempted*, which frees nobody."""


@dataclass(slots=True)
class Exchange:
    """A request that was forwarded, until its answer is complete."""

    protocol: ProtocolModule | None
    server: str
    owner: tuple[str, str] = ("", "")
    """Principal and session: a JSON-RPC id is unique within them and nowhere else."""
    calls: dict[str | None, ClassifiedCall] = field(default_factory=dict)
    """Calls still without a result, by correlation."""
    is_write: bool = False
    """Whether every call of it is a committed memory write: it may carry the write credential."""


class Gate:
    """The road of a message through the guard, without any proxy in it.

    Args:
        guard: judges calls and observes results.
        protocols: from :func:`guard.protocols.discover_protocols`.
        audit: told of requests that could not be read.
        metrics: likewise.
        clock: seconds since the epoch.
        credentials: of the principals; none means everybody is anonymous.
        body_limit: bytes a body, or one event of a stream, may have.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        *,
        guard: Guard,
        protocols: Sequence[ProtocolModule],
        audit: AuditLog,
        metrics: Metrics,
        clock: Clock,
        credentials: Credentials | None = None,
        body_limit: int = 16 * 1024 * 1024,
    ) -> None:
        self._guard = guard
        self._protocols = [p for p in protocols if not p.claims_rest]
        self._rest = next(p for p in protocols if p.claims_rest)
        self._audit = audit
        self._metrics = metrics
        self._clock = clock
        self._credentials = credentials or Credentials()
        self.body_limit = body_limit
        self._pending: OrderedDict[tuple[str, str, str], ClassifiedCall] = OrderedDict()

    @property
    def awaited(self) -> int:
        """Calls forwarded whose result has not come back."""
        return len(self._pending)

    async def on_request(self, request: HttpRequest) -> Exchange | HttpReply:
        """Judge a request.  An :class:`Exchange` means: forward the very bytes that were read.

        Raises nothing; whatever goes wrong is a refusal.  In monitor mode what cannot be read is
        recorded and forwarded.
        """
        decision_id = uuid.uuid4().hex
        protocol = self._rest
        try:
            protocol = self._claimant(request)
            message = protocol.parse(request)
            identity = identify(request, message, self._credentials)
        except MessageError as error:
            return self.refuse_unread(error, protocol, request, decision_id)
        except Exception as error:  # noqa: BLE001  (hop 2 must end in a refusal, whatever it met)
            self._metrics.error("parse")
            unread = MessageError("guard_error", type(error).__name__, status=503)
            return self.refuse_unread(unread, protocol, request, decision_id)
        owner = (identity.principal, identity.session)
        if not message.calls:
            return Exchange(protocol, request.server, owner)
        at = self._clock.now()
        calls = [
            ToolCall(
                id=decision_id if index == 0 else uuid.uuid4().hex,
                identity=identity,
                tool=parsed.tool,
                arguments=parsed.arguments,
                protocol=protocol.name,
                at=at,
                server=request.server,
                nonce=request.header(NONCE_HEADER) or "",
                token=request.header(TOKEN_HEADER) or "",
            )
            for index, parsed in enumerate(message.calls)
        ]
        answers = await self._guard.authorize(calls)
        if not all(verdict.enforced.forwards for _, verdict in answers):
            refusals = [
                None if verdict.enforced.forwards else Refusal(classified.call.id, verdict)
                for classified, verdict in answers
            ]
            return protocol.refuse(message, refusals)
        exchange = Exchange(protocol, request.server, owner)
        exchange.is_write = self._guard.is_committed([classified for classified, _ in answers])
        for parsed, (classified, _) in zip(message.calls, answers, strict=True):
            exchange.calls[parsed.correlation] = classified
            self._remember(owner, parsed.correlation, classified)
        return exchange

    async def on_answer(self, exchange: Exchange, body: bytes, status: int = 200) -> bytes | None:
        """Observe the results in a complete answer body; return another body to send instead."""
        if exchange.protocol is None:
            return None
        try:
            content: Json = parse_json(body) if body else None
        except MessageError:
            content = body.decode("utf-8", "replace")
        withheld = await self._observe(exchange, content, status)
        # An answer that is complete and names no id still ends the calls of its exchange.
        for correlation in list(exchange.calls):
            missing = ParsedResult(correlation, content, is_error=True)
            await self._finish(exchange, missing, is_lost=status < BAD_REQUEST)
        return withheld

    async def on_lost(self, exchange: Exchange) -> None:
        """Note that no answer will come: whether the calls were carried out is not known."""
        for correlation in list(exchange.calls):
            missing = ParsedResult(correlation, None, is_error=True)
            await self._finish(exchange, missing, is_lost=True)

    def event_reader(self, exchange: Exchange, encoding: str = "") -> EventReader:
        """Return the reader of a stream of events; raises MessageError for unknown encodings."""
        return EventReader(self, exchange, StreamDecoder(encoding, limit=self.body_limit))

    async def on_event(self, exchange: Exchange, event: bytes) -> bytes:
        """Observe the results in one event; return what to release: the event, or it withheld.

        Raises:
            MessageError: a protocol that frames its results in events claims the exchange, and
                this one cannot be read one way only: its reader could take it for a result.
        """
        name, data = read_event(event)
        if not data:
            return event
        try:
            content = parse_json(data.encode())
        except MessageError:
            framed = exchange.protocol is not None and exchange.protocol.event_names
            if not framed or name not in framed or self._monitoring():
                return event
            raise
        withheld = await self._observe(exchange, content)
        return event if withheld is None else with_data(event, withheld.decode())

    def _monitoring(self) -> bool:
        policy = self._guard.policy
        return policy is not None and policy.mode is Mode.MONITOR

    def refuse_unread(
        self,
        error: MessageError,
        protocol: ProtocolModule | None,
        request: HttpRequest | None,
        decision_id: str | None = None,
    ) -> Exchange | HttpReply:
        """Record a request that could not be read and return its refusal."""
        protocol = protocol or self._rest
        decision_id = decision_id or uuid.uuid4().hex
        monitor = self._monitoring()
        self._metrics.refusal(error.code)
        try:
            self._audit.event(
                "guard.unreadable",
                {
                    "decision_id": decision_id,
                    "code": error.code,
                    "action": "block",
                    "enforced": "allow" if monitor else "block",
                    "protocol": protocol.name,
                    "server": request.server if request else "",
                },
            )
        except AuditError:
            self._metrics.error("audit")
            self._metrics.fail_closed("audit", active=True)
        if monitor and request is not None and error.code != "bad_credential":
            return Exchange(None, request.server)
        return protocol.unreadable(error, decision_id)

    def _claimant(self, request: HttpRequest) -> ProtocolModule:
        claimants = [p for p in self._protocols if p.claims(request)]
        if len(claimants) > 1:
            raise MessageError("two_protocols", "two protocols claim this request")
        return claimants[0] if claimants else self._rest

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
        if not refusals:
            return None
        return json.dumps(exchange.protocol.withhold(content, refusals)).encode()

    async def _finish(
        self, exchange: Exchange, result: ParsedResult, *, is_lost: bool
    ) -> Refusal | None:
        """Tell the service of one result, once, wherever it came back."""
        correlation = result.correlation
        classified = exchange.calls.pop(correlation, None)
        if correlation is not None:
            pending = self._pending.pop((*exchange.owner, correlation), None)
            classified = classified or pending
        if classified is None:
            return None
        now = self._clock.now()
        verdict = await self._guard.observe(
            ToolResult(classified, result.content, now, result.is_error, is_lost)
        )
        return Refusal(classified.call.id, verdict) if verdict is not None else None

    def _remember(
        self, owner: tuple[str, str], correlation: str | None, classified: ClassifiedCall
    ) -> None:
        if correlation is None:
            return
        self._pending[(*owner, correlation)] = classified
        while len(self._pending) > PENDING_LIMIT:
            self._pending.popitem(last=False)


class EventReader:
    """Lets a stream of server-sent events through, event by event.

    Only an event that carries a result waits, for one round trip to the store.
    """

    def __init__(self, gate: Gate, exchange: Exchange, decoder: StreamDecoder) -> None:
        self._gate = gate
        self._exchange = exchange
        self._decoder = decoder
        self._cutter = EventCutter(gate.body_limit)

    async def feed(self, chunk: bytes) -> list[bytes]:
        """Return the bytes that may be released after a chunk, in order.

        Raises:
            MessageError: the chunk cannot be decoded, or one event is larger than the limit.
        """
        events = self._cutter.feed(self._decoder.feed(chunk))
        return [await self._gate.on_event(self._exchange, event) for event in events]

    async def end(self) -> list[bytes]:
        """Return what is left at the end of the stream."""
        rest = self._cutter.rest()
        if rest:
            rest = await self._gate.on_event(self._exchange, rest)
        return [rest] if rest else []
