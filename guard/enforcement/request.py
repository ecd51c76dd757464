"""One HTTP exchange, whichever PEP it came through: hops 1, 2 and 7.

The gate finds the one protocol that claims a request, has it read once, asks the service, and
returns either an :class:`Exchange` (forward it) or an :class:`HttpReply` (answer it, forward
nothing).  On the way back it matches results to calls and tells the service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import MessageError
from guard.core.model import UNKNOWN_TASK, Role, ToolCall
from guard.decision.decision_ids import new_decision_id
from guard.enforcement.exchange import Exchange
from guard.enforcement.identity import NONCE_HEADER, TOKEN_HEADER, Credentials, identify
from guard.enforcement.model_answers import (
    TASK,
    CallsInFlight,
    ModelAnswerHandler,
    Origin,
    ParseFailures,
)
from guard.enforcement.response import EventReader, ResponseHandler
from guard.enforcement.rewriting import Rewriting
from guard.enforcement.websocket_messages import WebSocketHandler
from guard.protocols.framing.content_coding import StreamDecoder
from guard.protocols.http.metadata import metadata_call
from guard.protocols.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from guard.core.calls import TracedCall
    from guard.core.model import Identity
    from guard.core.ports import AuditLog, Clock, Metrics
    from guard.core.verdict import Verdict
    from guard.decision.guard import Guard
    from guard.enforcement.declarations import DeclarationHandler
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.messages import Message, ParsedCall


class RequestHandler:
    """The road of a message through the guard, without any proxy in it.

    Args:
        guard: judges calls and observes results.
        protocols: from :func:`guard.protocols.discover_protocols`.
        audit: told of requests that could not be read.
        metrics: likewise.
        clock: seconds since the epoch.
        credentials: of the principals; none means everybody is anonymous.
        body_limit: bytes a body, or one event of a stream, may have.
        model_apis: hosts (``host`` or ``host:port``) that the operator declared as model APIs.
        texts: notes what servers say besides results; None where nobody keeps pins.
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
        model_apis: Collection[str] = (),
        texts: DeclarationHandler | None = None,
    ) -> None:
        self._guard = guard
        self._protocols = [p for p in protocols if not p.is_fallback]
        self._rest = next(p for p in protocols if p.is_fallback)
        self._model_apis = frozenset(name.lower() for name in model_apis)
        self._metrics = metrics
        self._clock = clock
        self.credentials = credentials or Credentials()
        self.body_limit = body_limit
        self._pending = CallsInFlight()
        self._unread = ParseFailures(guard, audit, metrics)
        self._model_calls = ModelAnswerHandler(guard, clock, self._unread)
        self.sockets = WebSocketHandler(guard, clock, texts, self._unread)
        self.answers = ResponseHandler(
            guard=guard,
            clock=clock,
            rest=self._rest,
            unread=self._unread,
            pending=self._pending,
            model_calls=self._model_calls,
            body_limit=body_limit,
            texts=texts,
        )

    @property
    def awaited(self) -> int:
        """Calls forwarded whose result has not come back."""
        return len(self._pending)

    async def on_request(self, request: HttpRequest) -> Exchange | HttpReply:
        """Judge a request.  An :class:`Exchange` means: forward the very bytes that were read,
        or the request that stands in it instead.

        Raises nothing; whatever goes wrong is a refusal.  In monitor mode what cannot be read is
        recorded and forwarded.
        """
        decision_id = new_decision_id()
        protocol = self._rest
        try:
            protocol = self._claimant(request)
            message = protocol.parse(request)
            identity = identify(request, message, self.credentials)
            carried = self._carried(request, protocol, message)
        except MessageError as error:
            return self.refuse_unread(error, protocol, request, decision_id)
        except Exception as error:  # noqa: BLE001  (hop 2 must end in a refusal, whatever it met)
            self._metrics.error("parse")
            unread = MessageError("guard_error", type(error).__name__, status=503)
            return self.refuse_unread(unread, protocol, request, decision_id)
        origin = Origin(identity, protocol.name, request.server)
        if message.reported:
            withheld = await self._model_calls.observe_reported(origin, message.reported)
            if withheld is not None:
                return protocol.refuse(message, [withheld])
        if message.user_role_claims:
            await self._guard.note_claims(identity, message.user_role_claims, self._clock.now())
        owner = (identity.principal, identity.session)
        reader = protocol.answer_reader(message)
        exchange = Exchange(protocol, request.server, owner, origin=origin, reader=reader)
        exchange.upstream = protocol.upstream(request)
        self._follow_tasks(message, exchange, identity, self._clock.now())
        if not message.calls and not carried:
            return exchange
        asked = self._asked(request, exchange, (*message.calls, *carried), decision_id)
        rewriting = Rewriting(protocol, request, message)
        return await self._judge(message, asked, exchange, rewriting) or exchange

    def _asked(
        self,
        request: HttpRequest,
        exchange: Exchange,
        parsed: Sequence[ParsedCall],
        decision_id: str,
    ) -> list[ToolCall]:
        """Return the calls of a message; the first bears the id of the decision."""
        if exchange.protocol is None or exchange.origin is None:
            return []
        at = self._clock.now()
        return [
            ToolCall(
                id=decision_id if index == 0 else new_decision_id(),
                identity=exchange.origin.identity,
                tool=one.tool,
                arguments=one.arguments,
                protocol=exchange.protocol.name,
                at=at,
                server=request.server,
                upstream=exchange.upstream,
                nonce=request.header(NONCE_HEADER) or "",
                token=request.header(TOKEN_HEADER) or "",
            )
            for index, one in enumerate(parsed)
        ]

    async def _judge(
        self,
        message: Message,
        asked: Sequence[ToolCall],
        exchange: Exchange,
        rewriting: Rewriting,
    ) -> HttpReply | None:
        """Judge the calls of a message and what it says besides; a reply where it stays here."""
        protocol = exchange.protocol or self._rest
        judged = await self._guard.authorize(asked, rewriting)
        answers, besides = judged[: len(message.calls)], judged[len(message.calls) :]
        if (refusal := _refused(besides)) is not None:
            whole = protocol.refuse_whole(message, refusal)
            return whole or self._rest.refuse(message, [refusal])
        if not all(verdict.enforced.forwards for _, verdict in answers):
            refusals = [
                None if verdict.enforced.forwards else Refusal(classified.call.id, verdict)
                for classified, verdict in answers
            ]
            return protocol.refuse(message, refusals)
        exchange.instead = rewriting.request
        exchange.is_write = self._guard.is_committed([classified for classified, _ in answers])
        for parsed, (classified, _) in zip(message.calls, answers, strict=True):
            exchange.calls[parsed.correlation] = classified
            if parsed.correlation is not None:
                self._pending.add((*exchange.owner, parsed.correlation), classified)
        for classified, _ in besides:
            # Nothing answers it by name: it counts as executed from here on.
            await self._guard.observe(ToolResult(classified, None, classified.call.at))
        return None

    def _carried(
        self, request: HttpRequest, protocol: ProtocolModule, message: Message
    ) -> list[ParsedCall]:
        """Return what a message says besides its calls, as far as the policy has a word on it."""
        if protocol is self._rest:
            return []
        found = [*message.side_content]
        plain: Sequence[ParsedCall] = ()
        if request.chosen and not protocol.names_hosts:
            # The agent chose the host, and nothing in the calls says where they go.
            bare = request if not message.calls else replace(request, body=b"")
            plain = self._rest.parse(bare).calls
        elif not protocol.model_api:
            found += metadata_call(request, reads_query=not protocol.names_hosts)
        policy = self._guard.policy
        return [
            *(call for call in found if policy is not None and policy.mapping(call.tool)),
            *plain,
        ]

    def _follow_tasks(
        self, message: Message, exchange: Exchange, identity: Identity, at: float
    ) -> None:
        """Expect the results of earlier calls in the answers to requests about their tasks."""
        for correlation, task in message.tasks:
            classified = self._pending.take((*exchange.owner, TASK, task))
            if classified is None:
                # Another guard, or this one's predecessor, released the call: its result is
                # labelled, and judged, as that of a tool nobody knows.
                name = exchange.protocol.name if exchange.protocol is not None else ""
                call = ToolCall(
                    new_decision_id(), identity, UNKNOWN_TASK, {}, name, at, exchange.server
                )
                classified = untraced(ClassifiedCall(call, Role.OTHER))
            exchange.calls[correlation] = classified
            if correlation is not None:
                self._pending.add((*exchange.owner, correlation), classified)

    def event_reader(self, exchange: Exchange, encoding: str = "") -> EventReader:
        """Return the reader of a stream of events; raises MessageError for unknown encodings."""
        decoder = StreamDecoder(encoding, limit=self.body_limit)
        return EventReader(self.answers, exchange, decoder)

    def refuse_unread(
        self,
        error: MessageError,
        protocol: ProtocolModule | None,
        request: HttpRequest | None,
        decision_id: str | None = None,
    ) -> Exchange | HttpReply:
        """Record a request that could not be read and return its refusal."""
        protocol = protocol or self._rest
        decision_id = decision_id or new_decision_id()
        server = request.server if request else ""
        self._unread.record(error, protocol.name, server, decision_id)
        if self._unread.passes and request is not None and error.code != "bad_credential":
            return Exchange(None, request.server)
        return protocol.unreadable(error, decision_id)

    def _claimant(self, request: HttpRequest) -> ProtocolModule:
        host = request.host.lower()
        speaks_model = not self._model_apis.isdisjoint({host, host.rpartition(":")[0]})
        asked = (p for p in self._protocols if speaks_model or not p.model_api)
        claimants = [p for p in asked if p.matches(request)]
        if len(claimants) > 1:
            raise MessageError("two_protocols", "two protocols claim this request")
        return claimants[0] if claimants else self._rest


def _refused(answers: Sequence[tuple[TracedCall, Verdict]]) -> Refusal | None:
    """Return why one of some calls is refused: by itself, rather than with the others."""
    refused = [
        Refusal(classified.call.id, verdict)
        for classified, verdict in answers
        if not verdict.enforced.forwards
    ]
    by_itself = (r for r in refused if r.verdict.reasons[0].code != "batch_refused")
    return next(by_itself, None)
