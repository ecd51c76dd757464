"""The handlers of one guard, joined: what an enforcement point hands its messages to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.pipeline.admission import Admission, Limits
from guard.pipeline.exchange import IssuedTokens, ParseFailures, RefusedConnections
from guard.pipeline.handler_parts import HandlerParts, Options, People, Telemetry
from guard.pipeline.holding import Holding
from guard.pipeline.identity import Credentials
from guard.pipeline.in_flight import InFlight, StoredExchanges
from guard.pipeline.message_calls import ProtocolChoice
from guard.pipeline.model_answers import ModelAnswerHandler
from guard.pipeline.request import RequestHandler
from guard.pipeline.response import ResponseHandler
from guard.pipeline.websocket_messages import WebSocketHandler
from guard.protocols.http.message import ACCEPTED, HttpReply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.calls import TracedCall
    from guard.pipeline.declarations import DeclarationHandler
    from guard.pipeline.guard import Guard
    from guard.protocols.base import ProtocolModule


class Enforcement:
    """Request, response and WebSocket handlers that share calls in flight and parse failures.

    Args:
        guard: judges calls and observes results.
        protocols: from :func:`guard.protocols.base.discover_protocols`.
        telemetry: gets a line and a count for unreadable messages.
        credentials: of the principals; without them every client is anonymous.
        declarations: pins and labels what servers declare; None where no pins are kept.
        shared: exchanges of other processes; None where there are none.
        people: ways to ask people.
        options: settings.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        guard: Guard,
        protocols: Sequence[ProtocolModule],
        telemetry: Telemetry,
        *,
        credentials: Credentials | None = None,
        declarations: DeclarationHandler | None = None,
        shared: StoredExchanges | None = None,
        people: People | None = None,
        options: Options | None = None,
    ) -> None:
        audit, metrics = telemetry.audit, telemetry.metrics
        people, options = people or People(), options or Options()
        self.admission = Admission(options.limits or Limits(judged=0))
        """Number of requests that are judged at once."""
        self.guard = guard
        self.now = telemetry.clock.now
        self.elicitor = people.elicitor
        """Takes the answers of people at clients; None where nobody can be asked there."""
        self.credentials = credentials or Credentials()
        self.login = self.credentials.login
        self.body_limit = options.body_limit
        self.streams: list[Callable[[tuple[str, str, str], bytes], bool]] = []
        """Functions of enforcement points that send into one of their open event streams, by
        listener, principal and session; they return whether the stream is open there."""
        self.elsewhere: Callable[[tuple[str, str, str], bytes], None] | None = None
        """Sends into the streams of other processes; None where there are none."""
        self.in_flight: InFlight[TracedCall] = InFlight(metrics=metrics)
        """Forwarded calls without a result."""
        self.holding = None
        if people.answers is not None:
            self.holding = Holding(people.answers, guard.policy_for, audit, metrics)
            guard.on_change(self.holding.look_at_policy)
        """Requests held open for a person's answer."""
        self.refused_connections = RefusedConnections(audit, metrics)
        """Connections for which there was no room."""
        parts = HandlerParts(
            guard=guard,
            clock=telemetry.clock,
            metrics=metrics,
            failures=ParseFailures(guard, audit, metrics),
            in_flight=self.in_flight,
            plain=InFlight(metrics=metrics),
            issued=IssuedTokens(shared=shared),
            shared=shared,
            holding=self.holding,
            elicitor=people.elicitor,
            admission=self.admission,
            declarations=declarations,
            body_limit=options.body_limit,
        )
        models = ModelAnswerHandler(parts)
        choice = ProtocolChoice(protocols, guard, options.model_apis)
        self.requests = RequestHandler(parts, models, choice, self.credentials)
        self.responses = ResponseHandler(parts, models)
        self.sockets = WebSocketHandler(parts)

    def send_into(self, stream: tuple[str, str, str], message: bytes) -> bool:
        """Send a message into an event stream; return whether one of these points has it open."""
        return any(send(stream, message) for send in self.streams)

    def in_stream_or_reply(
        self, reply: HttpReply, send: Callable[[tuple[str, str, str], bytes], bool]
    ) -> HttpReply:
        """Send a reply into the open event stream of its client, where that is where it reads.

        Without such a stream the reply is the answer to the request, which nobody else can read.

        Args:
            reply: of a request.
            send: sends a message into a stream of the enforcement point, if it is open there.

        Returns:
            the answer to the request itself.
        """
        if reply.stream is None:
            return reply
        if not send(reply.stream, reply.body):
            if self.elsewhere is None:
                return reply
            self.elsewhere(reply.stream, reply.body)
        return ACCEPTED
