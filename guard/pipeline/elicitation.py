"""The guard asks the person at an MCP client, where the policy lets that person answer.

By a form the answer comes through the agent's own client, so the policy says for which principals
and rules it counts, and that they may approve in their own name.  By a URL the client only opens
the console's page; the answer is the one that is given there.  What a client says never releases a
call by itself: it becomes a person's answer like any other, under all the checks of one.

A request that comes again (:mod:`guard.protocols.mcp.elicitation`) carries what the guard has to
know of it in a sealed ``requestState``, so any worker takes it up.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol

from guard.core.errors import AuditError, GuardError, MessageError
from guard.core.labels import LabelSet
from guard.core.metrics import ERRORS, Metrics
from guard.protocols.mcp import elicitation as wire
from guard.provenance.approvals import ELICITATION, ApprovalRequest, Approver, Grant
from guard.provenance.questions import questioned

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.core.ports import AuditLog, Clock
    from guard.pipeline.exchange import AskedRequest, Exchange
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.messages import Message
    from guard.provenance.seal import Seal

EVENT: Final = "guard.approval"
CLIENTS: Final = 10_000
"""Clients of which it is remembered how they can be asked; the oldest is forgotten first."""
STATE_LIMIT: Final = 16 * 1024
"""Characters of what a server gave a client, and was answered, that fit into a state of ours."""
_STATE: Final = LabelSet("request-state", ())
_FIELD: Final = b"s"
_PLACE: Final = "{page}/approvals/{tenant}/{decision}"


class ApprovalService(Protocol):
    """Takes people's answers for one tenant."""

    async def asked(self, decision_id: str) -> ApprovalRequest:
        """Return what is asked.

        Raises:
            GuardError: nothing is, under this id.
        """

    async def approve(
        self, decision_id: str, at: float, grant: Grant, by: Approver | None
    ) -> ApprovalRequest:
        """Grant the calls of one message, once.

        Raises:
            GuardError: it is not this person's to grant, or waits no longer.
        """

    async def deny(self, decision_id: str) -> ApprovalRequest:
        """Take a request away.

        Raises:
            GuardError: it waits no longer.
        """


@dataclass(frozen=True, slots=True)
class ElicitationState:
    """The sealed ``requestState`` of a request that is retried."""

    tenant: str
    principal: str
    decision: str
    mode: str
    state: Json = None
    """The server's own state that the request had."""
    responses: Json = None
    """The answers to the server that it had."""


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question that was asked in a stream."""

    question: wire.ElicitationRequest
    tenant: str
    principal: str
    server: str
    cancelled: Callable[[], None]
    """Ends the wait without an answer."""


class Elicitor:
    """Asks people at MCP clients.

    Args:
        approvals: takes the answers for a tenant.
        seal: the deployment's key.
        policy: returns the policy in force.
        clock: seconds since the epoch.
        audit: gets a line for each answer.
        metrics: counts what fails.
        page: begin of the console's URLs; empty where nobody can open one.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        *,
        approvals: Callable[[str], ApprovalService],
        seal: Seal,
        policy: Callable[[], Policy | None],
        clock: Clock,
        audit: AuditLog,
        metrics: Metrics,
        page: str = "",
    ) -> None:
        self._approvals = approvals
        self._seal = seal
        self._policy = policy
        self._clock = clock
        self._audit = audit
        self._metrics = metrics
        self._page = page.rstrip("/")
        self._modes: OrderedDict[tuple[str, str, str], frozenset[str]] = OrderedDict()
        self._open: dict[str, OpenQuestion] = {}

    @property
    def asks(self) -> bool:
        """True if the policy lets anybody be asked this way."""
        policy = self._policy()
        return policy is not None and bool(policy.ask.elicit)

    # --- who can be asked ------------------------------------------------------------------------

    def note(self, exchange: Exchange, message: Message) -> None:
        """Remember how the client of a session can be asked, where a message says so."""
        found = wire.modes(message) if exchange.protocol.name == "mcp" else None
        if found is None:
            return

        def named(session: str) -> None:
            key = exchange.server, exchange.identity.principal, session
            self._modes[key] = found
            self._modes.move_to_end(key)
            while len(self._modes) > CLIENTS:
                self._modes.popitem(last=False)

        named(exchange.session)
        exchange.named = named

    async def question(self, asked: AskedRequest) -> wire.ElicitationRequest | None:
        """Return what to ask the person at a client, None where it is not to be asked."""
        policy, identity = self._policy(), asked.identity
        if policy is None or asked.protocol.name != "mcp":
            return None
        able = wire.modes(asked.message)
        if able is None:
            key = asked.request.server, identity.principal, identity.session
            able = self._modes.get(key, frozenset())
        for mode in policy.ask.elicits(identity.principal, asked.rules):
            if mode not in able or (mode == wire.URL and not self._page):
                continue
            decision = asked.decisions[0]
            page = _PLACE.format(page=self._page, tenant=identity.tenant, decision=decision)
            with suppress(GuardError):
                shown = await self.words(identity.tenant, decision)
                return wire.ElicitationRequest(
                    mode, shown, decision, page if mode == wire.URL else ""
                )
        return None

    async def words(self, tenant: str, decision: str) -> str:
        """Return the question about a request for approval.

        Raises:
            GuardError: none waits under this id.
        """
        return questioned([await self._approvals(tenant).asked(decision)]).text()

    # --- in an open stream -----------------------------------------------------------------------

    def ask(
        self, asked: AskedRequest, question: wire.ElicitationRequest, cancelled: Callable[[], None]
    ) -> tuple[str, bytes]:
        """Return the id and the message that asks a question in a stream."""
        identifier = f"guard-elicit-{secrets.token_hex(16)}"
        identity = asked.identity
        self._open[identifier] = OpenQuestion(
            question, identity.tenant, identity.principal, asked.request.server, cancelled
        )
        return identifier, wire.create(identifier, question)

    def forget(self, identifier: str) -> None:
        """Take no answer to a question any more."""
        self._open.pop(identifier, None)

    async def take(self, request: HttpRequest, principal: str) -> bool:
        """Take a client's answer to a question of the guard's; False for any other message.

        Raises:
            MessageError: nobody was asked so, or somebody else was.
        """
        answer = wire.answer_in(request)
        if answer is None:
            return False
        opened = self._open.get(str(answer.id))
        if opened is None or (opened.principal, opened.server) != (principal, request.server):
            raise MessageError("unasked_answer", "this answers no question of the guard's")
        self.forget(str(answer.id))
        state = ElicitationState(
            opened.tenant, principal, opened.question.decision, opened.question.mode
        )
        if not await self.answered(state, answer.result):
            opened.cancelled()
        return True

    async def answered(self, state: ElicitationState, answer: Json) -> bool:
        """Take a person's answer; return whether it is one, or is still to come."""
        members = answer if isinstance(answer, dict) else {}
        action, content = members.get("action"), members.get("content")
        if state.mode == wire.URL:
            # That the page was opened says nothing: the answer is given on it.
            return action == wire.ACCEPT
        approve = content.get("approve") if isinstance(content, dict) else None
        if action == wire.ACCEPT and approve is True:
            return await self._give(state, granted=True)
        if action == wire.DECLINE or (action == wire.ACCEPT and approve is False):
            return await self._give(state, granted=False)
        return False

    async def _give(self, state: ElicitationState, *, granted: bool) -> bool:
        """Answer a request for approval as the person at the client; False where it may not."""
        approvals, at = self._approvals(state.tenant), self._clock.now()
        by = Approver(state.principal, ELICITATION, state.principal)
        fields = {
            "answer": "granted" if granted else "denied",
            "how": "elicitation",
            "decision_id": state.decision,
            "principal": state.principal,
            "tenant": state.tenant,
            "by": f"the person at the client of {state.principal}",
        }
        try:
            self._audit.event(EVENT, fields)
        except AuditError:
            self._metrics.count(ERRORS, "audit")
            return False
        try:
            if granted:
                await approvals.approve(state.decision, at, Grant(), by)
            else:
                await approvals.deny(state.decision)
        except GuardError as error:
            with suppress(AuditError):
                self._audit.event(EVENT, {**fields, "answer": "failed", "error": str(error)[:200]})
            return False
        return True

    # --- without an open stream ------------------------------------------------------------------

    async def instead(self, asked: AskedRequest, *, holds: bool) -> HttpReply | None:
        """Return an answer that has the client ask its person and retry the request, if it can.

        Args:
            asked: the request.
            holds: whether it could be held open instead.
        """
        if asked.protocol.name != "mcp" or asked.request.method != "POST":
            return None
        again = wire.may_be_retried(asked.message)
        if not again and holds:
            return None
        question = await self.question(asked)
        if question is None:
            return None
        if not again:
            is_url = question.mode == wire.URL
            return wire.url_required(asked.message, question) if is_url else None
        state, responses = wire.waiting_on(asked.message)
        if len(json.dumps([state, responses])) > STATE_LIMIT:
            return None
        identity = asked.identity
        brought = ElicitationState(
            identity.tenant, identity.principal, question.decision, question.mode, state, responses
        )
        body = json.dumps(asdict(brought)).encode()
        sealed = base64.urlsafe_b64encode(self._seal.enciphered(_STATE, _FIELD, body)).decode()
        return wire.input_required(asked.message, question, wire.MARK + sealed)

    def opened(self, again: wire.RetriedRequest, principal: str) -> ElicitationState:
        """Return the state that a retried request carries.

        Raises:
            MessageError: the guard has not made it, or for somebody else.
        """
        try:
            raw = base64.urlsafe_b64decode(again.state.removeprefix(wire.MARK))
        except ValueError:
            raw = b""
        body = self._seal.deciphered(_STATE, _FIELD, raw)
        state = None if body is None else ElicitationState(**json.loads(body))
        if state is None or state.principal != principal:
            raise MessageError("bad_request_state", "the request state is not this client's")
        return state
