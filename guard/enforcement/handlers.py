"""The handlers of one guard, joined: what an enforcement point hands its messages to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.enforcement.admission import Admission, Limits
from guard.enforcement.exchange import IssuedTokens, ParseFailures
from guard.enforcement.holding import Holding
from guard.enforcement.identity import Credentials
from guard.enforcement.in_flight import CallsInFlight, InFlight
from guard.enforcement.model_answers import ModelAnswerHandler
from guard.enforcement.request import RequestHandler
from guard.enforcement.response import ResponseHandler
from guard.enforcement.turned_away import TurnedAway
from guard.enforcement.websocket_messages import WebSocketHandler
from guard.protocols.http.message import ACCEPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from guard.core.metrics import Metrics
    from guard.core.ports import AnswerFeed, AuditLog, Clock
    from guard.decision.guard import Guard
    from guard.enforcement.declarations import DeclarationHandler
    from guard.enforcement.elicitation import Elicitor
    from guard.enforcement.exchange import SharedExchanges
    from guard.enforcement.identity import Login
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpReply


class Enforcement:
    """Request, response and WebSocket handlers that share calls in flight and parse failures.

    Args:
        guard: judges calls and observes results.
        protocols: from :func:`guard.protocols.base.discover_protocols`.
        audit: gets a line for what could not be read.
        metrics: gets a count for it.
        clock: seconds since the epoch.
        credentials: of the principals; none means everybody is anonymous.
        body_limit: bytes a body, one event of a stream, or one held call may have.
        model_apis: hosts (``host`` or ``host:port``) that the operator declared as model APIs.
        declarations: pins and labels what servers declare; None where nobody keeps pins.
        login: logs clients in at the servers of reverse listeners; None where there are none.
        answers: tells of people's answers; without it nothing is held open.
        elicitor: asks the people at MCP clients; None with ``answers``.
        shared: what is in flight at other processes; None where there are none.
        limits: how many requests are worked on at once; without them any number.
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
        declarations: DeclarationHandler | None = None,
        login: Login | None = None,
        answers: AnswerFeed | None = None,
        elicitor: Elicitor | None = None,
        shared: SharedExchanges | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.admission = Admission(limits or Limits(judged=0))
        """Lets requests in to be judged."""
        self.login = login
        self.credentials = credentials or Credentials()
        self.body_limit = body_limit
        self.streams: list[Callable[[tuple[str, str, str], bytes], bool]] = []
        """What enforcement points send into the event streams that they have open, where they have
        the one that is meant: by listener, principal and session."""
        self.elsewhere: Callable[[tuple[str, str, str], bytes], None] | None = None
        """Has another process send into its streams; None where there is no other."""
        self.in_flight = CallsInFlight(metrics=metrics)
        """Calls forwarded whose result has not come back."""
        self.holding = None
        if answers is not None:
            self.holding = Holding(answers, guard.policy_for, audit, metrics)
            guard.on_change(self.holding.look_at_policy)
        """What is held open for a person's answer."""
        plain: InFlight[str] = InFlight(metrics=metrics)
        issued = IssuedTokens(shared=shared)
        failures = ParseFailures(guard, audit, metrics)
        self.turned_away = TurnedAway(audit, metrics)
        """Connections for which there was no room."""
        models = ModelAnswerHandler(
            guard, clock, failures, self.in_flight, issued, shared, self.holding
        )
        self.requests = RequestHandler(
            guard=guard,
            protocols=protocols,
            metrics=metrics,
            clock=clock,
            credentials=self.credentials,
            model_apis=model_apis,
            failures=failures,
            in_flight=self.in_flight,
            plain=plain,
            issued=issued,
            models=models,
            shared=shared,
            login=login,
            holding=self.holding,
            elicitor=elicitor,
            admission=self.admission,
        )
        self.responses = ResponseHandler(
            guard=guard,
            clock=clock,
            failures=failures,
            in_flight=self.in_flight,
            plain=plain,
            issued=issued,
            models=models,
            shared=shared,
            body_limit=body_limit,
            declarations=declarations,
        )
        self.sockets = WebSocketHandler(guard, clock, declarations, failures, self.holding)

    def send_into(self, stream: tuple[str, str, str], message: bytes) -> bool:
        """Send a message into an event stream; return whether one of these points has it open."""
        return any(send(stream, message) for send in self.streams)

    def where_it_is_read(
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
