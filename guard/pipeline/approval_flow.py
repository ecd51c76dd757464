"""Approval by a person, wrapped around the judgement of a request: elicit, hold, or refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.core.policy import Action, Reason
from guard.pipeline.exchange import AskedRequest, Exchange
from guard.pipeline.holding import DENIED
from guard.pipeline.identity import identify
from guard.protocols.http.message import HttpReply
from guard.protocols.mcp.elicitation import OWN_ID, OWN_STATE, retried_request

if TYPE_CHECKING:
    from guard.pipeline.elicitation import ElicitationState, Elicitor
    from guard.pipeline.exchange import UnparsedExchange
    from guard.pipeline.handler_parts import HandlerParts
    from guard.pipeline.holding import HeldRequest, Holding, Judge
    from guard.pipeline.identity import Credentials
    from guard.pipeline.message_calls import ProtocolChoice
    from guard.protocols.http.message import HttpRequest
    from guard.protocols.messages import Message

_UNANSWERED: Final = Reason("approval_required", "", Action.ASK, "a person has yet to approve it")


class ApprovalFlow:
    """Asks a person about a request, or holds it open, if its verdict is an ask.

    Args:
        parts: of the handlers.
        judge: judges a request.
        protocols: read a request whose approval is still open.
        credentials: of the principals.
    """

    def __init__(
        self,
        parts: HandlerParts,
        judge: Judge,
        protocols: ProtocolChoice,
        credentials: Credentials,
    ) -> None:
        self._parts = parts
        self._judge = judge
        self._protocols = protocols
        self._credentials = credentials

    async def judge(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest:
        """Judge a request; elicit an answer or hold the request open if the policy says so.

        Raises:
            MessageError: it answers a question that was not asked, or cannot be read one way only.
        """
        holding, elicitor = self._parts.holding, self._parts.elicitor
        if holding is None or elicitor is None:
            outcome = await self._judge(request)
            return outcome.reply if isinstance(outcome, AskedRequest) else outcome
        if elicitor.asks and request.method == "POST":
            answered = await self._answered(holding, elicitor, request)
            if answered is not None:
                return answered
        outcome = await self._judge(request)
        if not isinstance(outcome, AskedRequest):
            return outcome
        return await self._elicit_or_hold(holding, elicitor, outcome, self._judge)

    def note(self, message: Message, exchange: Exchange) -> None:
        """Note the capabilities that a client declares, and the requests that it cancels."""
        if self._parts.holding is None:
            return
        if message.plain and self._parts.elicitor is not None and self._parts.elicitor.asks:
            self._parts.elicitor.note(exchange, message)
        if self._parts.holding.held and (cancelled := exchange.protocol.cancels(message)):
            self._parts.holding.cancelled(exchange.identity, exchange.server, cancelled)

    async def _elicit_or_hold(
        self, holding: Holding, elicitor: Elicitor, asked: AskedRequest, judge: Judge
    ) -> HttpReply | HeldRequest:
        """Ask the person at the client, hold the request open, or refuse it."""
        if elicitor.asks:
            reply = await elicitor.instead(asked, holds=holding.hold_seconds(asked) > 0)
            if reply is not None:
                return reply
        return holding.hold(asked, judge, elicitor if elicitor.asks else None) or asked.reply

    async def _answered(
        self, holding: Holding, elicitor: Elicitor, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest | None:
        """Take an answer to a question of the guard; return None for any other request.

        Raises:
            MessageError: the question was not asked, or the answer cannot be read one way only.
        """
        principal = self._credentials.claimed(request)
        if OWN_ID in request.body and await elicitor.take(request, principal):
            return HttpReply(202, "text/plain", b"")
        retried = retried_request(request) if OWN_STATE in request.body else None
        if retried is None:
            return None
        state = elicitor.opened(retried, principal)
        restored = retried.restored(state.state, state.responses)
        is_to_come = await elicitor.answered(state, retried.answer)
        fate = await holding.fate(state.tenant, state.decision)
        if fate == "gone":
            outcome = await self._judge_restored(restored)
            if not isinstance(outcome, AskedRequest):
                return outcome
            return await self._elicit_or_hold(holding, elicitor, outcome, self._judge_restored)
        asked = self._still_asked(restored, state)
        if fate == "denied":
            return asked.reworded(DENIED)
        # The person may have been sent to a page, and not have answered on it yet.
        held = holding.hold(asked, self._judge_restored) if is_to_come else None
        return held or asked.reply

    def _still_asked(self, request: HttpRequest, state: ElicitationState) -> AskedRequest:
        """Return a request that waits under an earlier decision, without a new judgement.

        Raises:
            MessageError: it cannot be read one way only.
        """
        protocol, policy = self._protocols.of(request), self._parts.guard.policy
        message = protocol.parse(request)

        def worded(reason: Reason) -> HttpReply:
            error = MessageError(reason.code, reason.detail)
            return protocol.unreadable(error, state.decision, request)

        return AskedRequest(
            request=request,
            reply=worded(_UNANSWERED),
            protocol=protocol,
            message=message,
            identity=identify(request, message, self._credentials),
            policy=policy.digest if policy is not None else "",
            decisions=(state.decision,),
            rules=frozenset(),
            reworded=worded,
        )

    async def _judge_restored(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | AskedRequest:
        """Judge a restored request; it is forwarded in place of the one that the client sent."""
        outcome = await self._judge(request)
        if isinstance(outcome, Exchange) and outcome.rewritten is None:
            outcome.rewritten = request
        return outcome
