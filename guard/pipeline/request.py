"""A request, whichever enforcement point brought it: hops 1, 2 and 7.

The one protocol that matches a request reads it once; the calls in it are judged; and what comes
out is an :class:`Exchange` (forward it) or an :class:`HttpReply` (answer it, forward nothing).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from guard.core.calls import ToolResult, TracedCall
from guard.core.errors import MessageError
from guard.core.policy import Action, Reason
from guard.core.work import is_json
from guard.pipeline.exchange import (
    AskedRequest,
    Exchange,
    MessageRoute,
    UnparsedExchange,
    new_decision_id,
    refusal_of,
    share,
)
from guard.pipeline.holding import ApprovalFlow, HeldRequest
from guard.pipeline.identity import Credentials, identify
from guard.pipeline.in_flight import text_size
from guard.pipeline.large_work import LARGE
from guard.pipeline.message_calls import (
    MessageCalls,
    ProtocolChoice,
    Rewriting,
    answer_login,
    is_login,
)
from guard.pipeline.outcome import JudgedCall, JudgeRequest
from guard.protocols.http.metadata import request_context
from guard.protocols.refusals import Refusal
from guard.provenance.approvals import TOGETHER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guard.pipeline.handler_parts import HandlerParts
    from guard.pipeline.model_answers import ModelAnswerHandler
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.messages import Message


OutcomeT = TypeVar("OutcomeT")


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """The refusals of a message that is not forwarded, and their wording."""

    refusals: Sequence[Refusal | None]
    """Refusals of every call of the message."""
    shown: Sequence[Refusal | None]
    """Refusals that its client sees."""
    word: Callable[[Sequence[Refusal | None]], HttpReply]


class RequestHandler:
    """Reads requests and has their calls judged.

    Args:
        parts: shared with the other handlers.
        models: takes the results that a request reports to a model.
        protocols: choose the protocol of a request.
        credentials: of the principals, with the login of reverse listeners.
    """

    def __init__(
        self,
        parts: HandlerParts,
        models: ModelAnswerHandler,
        protocols: ProtocolChoice,
        credentials: Credentials,
    ) -> None:
        self._parts = parts
        self._models = models
        self._protocols = protocols
        self._credentials = credentials
        self._calls = MessageCalls(parts, protocols.fallback)
        self._approval: ApprovalFlow | None = None
        """Asks people about requests; None where nobody can be asked."""
        if parts.holding is not None and parts.elicitor is not None:
            self._approval = ApprovalFlow(
                parts.holding, parts.elicitor, self.judge, protocols.of, credentials
            )

    async def on_request(self, request: HttpRequest) -> Exchange | UnparsedExchange | HttpReply:
        """Judge a request.

        Raises nothing; a failure is a refusal.

        Returns:
            an :class:`Exchange`: forward the very bytes that were read, or its rewritten request;
            an :class:`UnparsedExchange`: forward it, in monitor mode only;
            a reply: answer with it and forward nothing.
        """
        outcome = await self._admitted(request, self.judge)
        return outcome.reply if isinstance(outcome, AskedRequest) else outcome

    async def on_holdable_request(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest:
        """Judge a request of an enforcement point that can hold requests open.

        Returns:
            an outcome of :meth:`on_request`, or a :class:`HeldRequest` that waits for a person.
        """
        if self._approval is None:
            return await self.on_request(request)
        return await self._admitted(request, self._approval.judge)

    async def _admitted(
        self, request: HttpRequest, judge: Callable[[HttpRequest], Awaitable[OutcomeT]]
    ) -> OutcomeT | HttpReply:
        """Judge a request once there is room for it, or refuse it in time."""
        principal, admission = self._credentials.claimed(request), self._parts.admission
        turn = admission.enter(principal)
        if turn is not None:
            refused = turn if isinstance(turn, MessageError) else await admission.wait(turn)
            if refused is not None:
                return self.refuse(refused, request)
        try:
            return await judge(request)
        except Exception as error:  # noqa: BLE001  (what was not judged must not be forwarded)
            return self.refuse(refusal_of(error, self._parts.metrics, "hook"), request)
        finally:
            admission.leave(principal)

    async def judge(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | AskedRequest:
        """Judge a request; an ask that a person could answer is an :class:`AskedRequest`."""
        decision_id = new_decision_id()
        protocol = self._protocols.fallback
        login = self._credentials.login
        if login is not None and is_login(request):
            route = self._route(request)
            return await answer_login(self._parts, login, request, route, decision_id)
        try:
            is_large, threads = len(request.body) > LARGE, self._parts.guard.threads
            if is_large and is_json(request.body):
                # Others are judged meanwhile.
                principal = self._route(request).principal
                request.parsed(await self._parts.guard.calls.large.json(principal, request.body))
            protocol = await threads.run_if(is_large, self._protocols.of, request)
            message = await threads.run_if(is_large, protocol.parse, request)
            identity = identify(request, message, self._credentials)
            upstream = protocol.upstream(request)
            side_content = await self._calls.side_content(
                request, protocol, message, identity, upstream
            )
        except Exception as error:  # noqa: BLE001  (hop 2 must end in a refusal, whatever it met)
            failure = refusal_of(error, self._parts.metrics, "parse")
            return self._unread(failure, protocol, request, decision_id)
        reader = protocol.answer_reader(message) if protocol.model_api else None
        exchange = Exchange(protocol, request.server, identity, identity.session, upstream, reader)
        if reader is not None or "upgrade" in request.names:
            self._expect_calls(exchange, request)
        if message.reported or message.user_role_claims:
            withheld = await self._note_history(exchange, message)
            if withheld is not None:
                return withheld
        if message.tasks or message.plain or not message.calls:
            await self._expect_others(message, exchange)
        calls = self._calls.of(request, exchange, (*message.calls, *side_content), decision_id)
        rewriting = Rewriting(protocol, request, message)
        refused = await self._judge(message, JudgeRequest(calls, rewriting), exchange, rewriting)
        if refused is not None:
            return self._or_asked(refused, exchange, rewriting)
        return exchange if "?" not in request.target else self._forwarded(request, exchange)

    def _expect_calls(self, exchange: Exchange, request: HttpRequest) -> None:
        """Keep what calls in the answer to a request, or over its WebSocket, will need of it."""
        exchange.context = request_context(request)
        if self._parts.holding is not None:
            exchange.hold_seconds = self._parts.holding.silent(exchange.identity, request)

    def _forwarded(self, request: HttpRequest, exchange: Exchange) -> Exchange:
        """Return the exchange of a request that is forwarded."""
        if self._parts.shared is not None and exchange.protocol.answered_in(request):
            # Its answers come in the stream that the client has open, at whichever process.
            share(self._parts.shared, exchange)
        return exchange

    async def _note_history(self, exchange: Exchange, message: Message) -> HttpReply | None:
        """Take in what a request reports to a model; return its refusal where one withholds it."""
        if message.reported:
            withheld = await self._models.observe_reported(exchange, message.reported)
            if withheld is not None:
                return exchange.protocol.refuse(message, [withheld])
        if message.user_role_claims:
            now = self._parts.clock.now()
            await self._parts.guard.notes.claims(exchange.identity, message.user_role_claims, now)
        return None

    def _or_asked(
        self, refused: RefusedMessage, exchange: Exchange, rewriting: Rewriting
    ) -> HttpReply | AskedRequest:
        """Return the reply of a refusal, or what is asked where a person's yes would release it."""
        request, protocol, identity = rewriting.original, exchange.protocol, exchange.identity

        def reworded(reason: Reason) -> HttpReply:
            shown = [r and replace(r, verdict=r.verdict.blocked(reason)) for r in refused.shown]
            return _in_stream(refused.word(shown), protocol, request, identity.principal)

        reply = _in_stream(refused.word(refused.shown), protocol, request, identity.principal)
        asked: list[Refusal] = []
        for refusal in refused.refusals:
            if refusal is not None and refusal.verdict.action is Action.ASK:
                asked.append(refusal)
            elif refusal is not None and not _follows(refusal):
                # No answer would release the message.
                return reply
        if not 0 < len(asked) <= TOGETHER:
            return reply
        policy = asked[0].verdict.policy
        decisions = tuple(one.decision_id for one in asked)
        message = rewriting.message
        rules = frozenset(rule for one in asked for rule in one.verdict.decided_by)
        return AskedRequest(
            request, reply, protocol, message, identity, policy, decisions, rules, reworded
        )

    def refuse(
        self, error: MessageError, request: HttpRequest | None = None, decision_id: str = ""
    ) -> HttpReply:
        """Record a message that the enforcement point itself refuses and return the reply.

        Args:
            error: why.
            request: the request as far as it is known.
            decision_id: where the refusal is on record already.
        """
        protocol, route = self._protocols.fallback, MessageRoute()
        if request is not None:
            route = self._route(request)
            try:
                protocol = self._protocols.of(request)
            except Exception:  # noqa: BLE001  (what it looks like decides no more than the wording)
                protocol = self._protocols.fallback
        decision_id = decision_id or self._parts.failures.record(
            error, protocol.name, route, stays=bool(error.retry_after)
        )
        reply = protocol.unreadable(error, decision_id, request)
        if error.retry_after:
            again = ("retry-after", str(error.retry_after))
            reply = replace(reply, headers=(*reply.headers, again))
        return reply if request is None else _in_stream(reply, protocol, request, route.principal)

    def note(self, error: MessageError, place: MessageRoute) -> str:
        """Record what is refused without a request that could be answered; return its id."""
        return self._parts.failures.record(error, self._protocols.fallback.name, place)

    def _route(self, request: HttpRequest) -> MessageRoute:
        return MessageRoute(request.server, request.host, self._credentials.claimed(request))

    def _unread(
        self,
        error: MessageError,
        protocol: ProtocolModule,
        request: HttpRequest,
        decision_id: str,
    ) -> UnparsedExchange | HttpReply:
        """Record a request that could not be read and return its refusal."""
        route = self._route(request)
        stays = error.code == "bad_credential"
        self._parts.failures.record(error, protocol.name, route, decision_id, stays=stays)
        if self._parts.failures.passes and not stays:
            return UnparsedExchange(protocol, route)
        reply = protocol.unreadable(error, decision_id, request)
        return _in_stream(reply, protocol, request, route.principal)

    async def _task(self, exchange: Exchange, task: str) -> TracedCall | None:
        """Return the call of a task, whichever process released it."""
        key, tenant = exchange.task_key(task), exchange.identity.tenant
        found: TracedCall | str | None = self._parts.in_flight.take(key)
        if self._parts.shared is not None:
            if found is None:
                found = await self._parts.shared.take(tenant, key)
            else:
                self._parts.shared.forget(tenant, key)
        return None if isinstance(found, str) else found

    async def _expect_others(self, message: Message, exchange: Exchange) -> None:
        """Expect the answers to requests other than calls: results of earlier ones, and others."""
        for correlation, task in message.tasks:
            classified = await self._task(exchange, task)
            if classified is None:
                classified = self._calls.unknown_task(exchange)
            size = text_size(dict(classified.call.arguments))
            self._expect(exchange, correlation, classified, size)
        for correlation, method in message.plain:
            exchange.plain[correlation] = method
            if correlation is not None:
                self._parts.plain.add(exchange.message_key(correlation), method, len(method))
        if self._approval is not None:
            self._approval.note(message, exchange)

    def _expect(
        self, exchange: Exchange, correlation: str | None, classified: TracedCall, size: int
    ) -> None:
        exchange.calls[correlation] = classified
        if correlation is not None:
            self._parts.in_flight.add(exchange.message_key(correlation), classified, size)

    async def _judge(
        self,
        message: Message,
        asked: JudgeRequest,
        exchange: Exchange,
        rewriting: Rewriting,
    ) -> RefusedMessage | None:
        """Judge the calls and the side content of a message; why it stays here, where it does."""
        if not asked.calls:
            return None
        protocol = exchange.protocol
        judged = await self._parts.guard.judge(asked)
        own, side_content = judged[: len(message.calls)], judged[len(message.calls) :]
        for refusal in _refusals(side_content):
            if refusal is not None and not _follows(refusal):
                # Refused for itself, not because others are.
                whole = partial(self._protocols.refuse_whole, protocol, message)
                return RefusedMessage(_refusals(judged), [refusal], whole)
        refusals = _refusals(own)
        if refusals.count(None) < len(refusals):
            word = partial(protocol.refuse, message)
            if protocol is self._protocols.fallback:
                word = partial(self._protocols.refuse_plain, rewriting.original, message)
            return RefusedMessage(refusals, refusals, word)
        exchange.rewritten = rewriting.request
        exchange.is_write = bool(own)
        for parsed, (classified, _) in zip(message.calls, own, strict=True):
            exchange.is_write = exchange.is_write and self._parts.guard.is_committed(classified)
            # The calls of a batch share its body.
            size = len(rewriting.original.body) // len(own)
            self._expect(exchange, parsed.correlation, classified, size)
        for classified, _ in side_content:
            # Nothing answers it by name: it counts as executed from here on.
            await self._parts.guard.observe(ToolResult(classified, None, classified.call.at))
        return None


def _in_stream(
    reply: HttpReply, protocol: ProtocolModule, request: HttpRequest, principal: str
) -> HttpReply:
    """Name the event stream in which the client reads its answers, where there is one."""
    session = protocol.answered_in(request) if "?" in request.target else ""
    return replace(reply, stream=(request.server, principal, session)) if session else reply


def _follows(refusal: Refusal) -> bool:
    """Return whether a call is refused only because another of its message is."""
    return refusal.verdict.reasons[0].code == "batch_refused"


def _refusals(answers: Sequence[JudgedCall]) -> list[Refusal | None]:
    """Return why each of some calls is not forwarded, None where it is."""
    return [
        None if verdict.enforced.forwards else Refusal(traced.classified.call.id, verdict)
        for traced, verdict in answers
    ]
