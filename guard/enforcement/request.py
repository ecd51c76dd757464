"""A request, whichever enforcement point brought it: hops 1, 2 and 7.

The one protocol that matches a request reads it once; the calls in it are judged; and what comes
out is an :class:`Exchange` (forward it) or an :class:`HttpReply` (answer it, forward nothing).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import MessageError
from guard.core.metrics import ERRORS
from guard.core.model import TRACEPARENT, UNKNOWN_TASK, Role
from guard.core.policy import Action, Reason
from guard.decision.large_work import LARGE
from guard.decision.outcome import JudgeRequest
from guard.enforcement.exchange import (
    AskedRequest,
    Exchange,
    MessageRoute,
    UnparsedExchange,
    new_decision_id,
    share,
)
from guard.enforcement.holding import DENIED
from guard.enforcement.identity import identify
from guard.enforcement.in_flight import text_size
from guard.protocols.http.message import REDACTION_FAILED, HttpReply
from guard.protocols.http.metadata import TOOL as METADATA
from guard.protocols.http.metadata import call_context, metadata_call, request_context
from guard.protocols.http.oauth import LOGIN_PATHS
from guard.protocols.http.oauth import refused as login_refused
from guard.protocols.http.request import TOOL as REQUEST
from guard.protocols.http.sent_headers import NONCE_HEADER, TOKEN_HEADER
from guard.protocols.mcp.elicitation import OWN_ID, OWN_STATE, retried_request
from guard.protocols.refusals import Refusal, unreadable, unreadable_sentence
from guard.provenance.approvals import TOGETHER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from guard.core.calls import TracedCall
    from guard.core.model import Identity, Json, ToolCall
    from guard.core.policy import Verdict
    from guard.enforcement.admission import Admission
    from guard.enforcement.elicitation import ElicitationState, Elicitor
    from guard.enforcement.holding import HeldRequest, Holding, Judge
    from guard.enforcement.identity import Credentials, Login
    from guard.enforcement.model_answers import ModelAnswerHandler
    from guard.enforcement.parts import HandlerParts
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpRequest
    from guard.protocols.messages import Message, ParsedCall


OutcomeT = TypeVar("OutcomeT")
_DECISION: Final = attrgetter("decision_id")
_RULES: Final = attrgetter("verdict.decided_by")
_NOTHING: Final[frozenset[str]] = frozenset()
_HEADERS: Final = frozenset({"headers"})
_UNANSWERED: Final = Reason("approval_required", "", Action.ASK, "a person has yet to approve it")
LOGIN: Final = "oauth"
"""In the place of a protocol, of what the login refuses."""
NOT_FOUND: Final = 404
_HEADED: Final = frozenset({REQUEST, METADATA})
"""Calls whose headers are part of their context."""


@dataclass(slots=True)
class Rewriting:
    """One message that may have to go out with other arguments.

    Satisfies ``guard.decision.redaction.Rewrite``.  The protocol module writes the message anew; it
    is then read as the upstream will read it, and taken only if it says exactly what it should.
    """

    protocol: ProtocolModule
    original: HttpRequest
    message: Message
    request: HttpRequest | None = None
    """What to forward instead, once there is something."""

    def __call__(self, arguments: Sequence[Mapping[str, Json] | None]) -> None:
        """Write the message with other arguments for some of its calls.

        Raises:
            MessageError: it cannot be done exactly.
        """
        calls = self.message.calls
        if any(changed is not None for changed in arguments[len(calls) :]):
            raise MessageError(REDACTION_FAILED, "side content of a message is not rewritten")
        wanted = [
            dict(call.arguments if changed is None else changed)
            for call, changed in zip(calls, arguments[: len(calls)], strict=True)
        ]
        written = self.protocol.rewrite(self.original, wanted)
        read = self.protocol.parse(written)
        if [dict(call.arguments) for call in read.calls] != wanted:
            raise MessageError(REDACTION_FAILED, "the rewritten message says something else")
        self.request = written


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a message is not forwarded, and how that is worded."""

    refusals: Sequence[Refusal | None]
    """Of every call of it."""
    told: Sequence[Refusal | None]
    """What its client is told of."""
    word: Callable[[Sequence[Refusal | None]], HttpReply]


class RequestHandler:
    """Reads requests and has their calls judged.

    Args:
        parts: shared with the other handlers.
        models: takes the results that a request reports to a model.
        protocols: every wire format, one of them the fallback.
        credentials: of the principals, with the login of reverse listeners.
        model_apis: hosts (``host`` or ``host:port``) that the operator declared as model APIs.
        elicitor: asks the people at MCP clients; None without ``parts.holding``.
        admission: lets requests in to be judged.
    """

    def __init__(  # noqa: PLR0913  (`Enforcement` passes every part once, by name)
        self,
        parts: HandlerParts,
        models: ModelAnswerHandler,
        *,
        protocols: Sequence[ProtocolModule],
        credentials: Credentials,
        model_apis: Collection[str],
        elicitor: Elicitor | None,
        admission: Admission,
    ) -> None:
        self._admission = admission
        self._elicitor = elicitor
        self._shared = parts.shared
        self._holding = parts.holding
        self._guard = parts.guard
        self._protocols = [p for p in protocols if not p.is_fallback]
        self._fallback = next(p for p in protocols if p.is_fallback)
        self._metrics = parts.metrics
        self._clock = parts.clock
        self._credentials = credentials
        self._model_apis = frozenset(name.lower() for name in model_apis)
        self._failures = parts.failures
        self._in_flight = parts.in_flight
        self._plain = parts.plain
        self._issued = parts.issued
        self._models = models
        self._login = credentials.login

    async def on_request(self, request: HttpRequest) -> Exchange | UnparsedExchange | HttpReply:
        """Judge a request.

        Raises nothing; whatever goes wrong is a refusal.

        Returns:
            an :class:`Exchange`: forward the very bytes that were read, or its rewritten request;
            an :class:`UnparsedExchange`: forward it, in monitor mode only;
            a reply: answer with it and forward nothing.
        """
        outcome = await self._admitted(request, self._judged)
        return outcome.reply if isinstance(outcome, AskedRequest) else outcome

    async def _admitted(
        self, request: HttpRequest, judge: Callable[[HttpRequest], Awaitable[OutcomeT]]
    ) -> OutcomeT | HttpReply:
        """Judge a request once there is room for it, or refuse it in time."""
        principal, admission = self._credentials.told(request), self._admission
        turn = admission.enter(principal)
        if turn is not None:
            refused = turn if isinstance(turn, MessageError) else await admission.wait(turn)
            if refused is not None:
                return self.refuse(refused, request)
        try:
            return await judge(request)
        except MessageError as error:
            return self.refuse(error, request)
        except Exception as error:  # noqa: BLE001  (what was not judged must not be forwarded)
            self._metrics.count(ERRORS, "hook")
            failure = MessageError("guard_error", type(error).__name__, status=503)
            return self.refuse(failure, request)
        finally:
            admission.leave(principal)

    async def on_holdable_request(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest:
        """As :meth:`on_request`, for an enforcement point that can hold a request open.

        Returns:
            besides, a :class:`HeldRequest`, where the policy says so of what is asked about.
        """
        return await self._admitted(request, self._judged_or_held)

    async def _judged_or_held(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest:
        holding, elicitor = self._holding, self._elicitor
        if holding is None or elicitor is None:
            outcome = await self._judged(request)
            return outcome.reply if isinstance(outcome, AskedRequest) else outcome
        if elicitor.asks and request.method == "POST":
            try:
                taken = await self._taken(holding, elicitor, request)
            except MessageError as error:
                return self.refuse(error, request)
            if taken is not None:
                return taken
        outcome = await self._judged(request)
        if not isinstance(outcome, AskedRequest):
            return outcome
        return await self._asked_or_held(holding, elicitor, outcome, self._judged)

    async def _asked_or_held(
        self, holding: Holding, elicitor: Elicitor, asked: AskedRequest, judge: Judge
    ) -> HttpReply | HeldRequest:
        """Have a person asked, hold the request open, or refuse it."""
        if elicitor.asks:
            instead = await elicitor.instead(asked, holds=holding.hold_seconds(asked) > 0)
            if instead is not None:
                return instead
        return holding.hold(asked, judge, elicitor if elicitor.asks else None) or asked.reply

    async def _taken(
        self, holding: Holding, elicitor: Elicitor, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | HeldRequest | None:
        """Take what answers a question of the guard's own; None for any other request.

        Raises:
            MessageError: it answers none that was asked, or cannot be read one way only.
        """
        principal = self._place(request).principal
        if OWN_ID in request.body and await elicitor.take(request, principal):
            return HttpReply(202, "text/plain", b"")
        again = retried_request(request) if OWN_STATE in request.body else None
        if again is None:
            return None
        state = elicitor.opened(again, principal)
        restored = again.restored(state.state, state.responses)
        is_to_come = await elicitor.brought(state, again.answer)
        fate = await holding.fate(state.tenant, state.decision)
        if fate == "gone":
            outcome = await self._restored(restored)
            if not isinstance(outcome, AskedRequest):
                return outcome
            return await self._asked_or_held(holding, elicitor, outcome, self._restored)
        asked = self._still_asked(restored, state)
        if fate == "denied":
            return asked.reworded(DENIED)
        # The person may have been sent to a page, and not have answered on it yet.
        return (holding.hold(asked, self._restored) if is_to_come else None) or asked.reply

    def _still_asked(self, request: HttpRequest, state: ElicitationState) -> AskedRequest:
        """Return what is asked under an earlier decision; the request is not judged again for it.

        Raises:
            MessageError: it cannot be read one way only.
        """
        protocol, policy = self._matching(request), self._guard.policy
        message = protocol.parse(request)

        def worded(reason: Reason) -> HttpReply:
            return protocol.unreadable(
                MessageError(reason.code, reason.detail), state.decision, request
            )

        return AskedRequest(
            request=request,
            reply=worded(_UNANSWERED),
            protocol=protocol,
            message=message,
            identity=identify(request, message, self._credentials),
            policy=policy.digest if policy is not None else "",
            decisions=(state.decision,),
            rules=_NOTHING,
            reworded=worded,
        )

    async def _restored(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | AskedRequest:
        """Judge a request that differs from the one that came; it is forwarded in its place."""
        outcome = await self._judged(request)
        if isinstance(outcome, Exchange) and outcome.rewritten is None:
            outcome.rewritten = request
        return outcome

    async def _judged(
        self, request: HttpRequest
    ) -> Exchange | UnparsedExchange | HttpReply | AskedRequest:
        """Judge a request, as :meth:`on_request`; one that only needs an answer is no reply yet."""
        decision_id = new_decision_id()
        protocol = self._fallback
        login = self._login
        if login is not None and request.target.startswith(LOGIN_PATHS) and not request.chosen:
            return await self._log_in(login, request, decision_id)
        try:
            if len(request.body) > LARGE:
                # Others are judged meanwhile.
                await self._guard.calls.large.measured(self._place(request).principal, request.body)
                protocol = await self._guard.threads.run(self._matching, request)
                message = await self._guard.threads.run(protocol.parse, request)
            else:
                protocol = self._matching(request)
                message = protocol.parse(request)
            identity = identify(request, message, self._credentials)
            upstream = protocol.upstream(request)
            side_content = await self._side_content(request, protocol, message, identity, upstream)
        except MessageError as error:
            return self._unread(error, protocol, request, decision_id)
        except Exception as error:  # noqa: BLE001  (hop 2 must end in a refusal, whatever it met)
            self._metrics.count(ERRORS, "parse")
            failure = MessageError("guard_error", type(error).__name__, status=503)
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
        calls = self._calls(request, exchange, (*message.calls, *side_content), decision_id)
        rewriting = Rewriting(protocol, request, message)
        refused = await self._judge(message, calls, exchange, rewriting)
        if refused is not None:
            return self._or_asked(refused, exchange, rewriting)
        return exchange if "?" not in request.target else self._forwarded(request, exchange)

    def _expect_calls(self, exchange: Exchange, request: HttpRequest) -> None:
        """Keep what calls in the answer to a request, or over its WebSocket, will need of it."""
        exchange.context = request_context(request)
        if self._holding is not None:
            exchange.hold_seconds = self._holding.silent(exchange.identity, request)

    def _forwarded(self, request: HttpRequest, exchange: Exchange) -> Exchange:
        """Return the exchange of a request that is forwarded."""
        if self._shared is not None and exchange.protocol.answered_in(request):
            # Its answers come in the stream that the client has open, at whichever process.
            share(self._shared, exchange)
        return exchange

    def _note_client(self, holding: Holding, message: Message, exchange: Exchange) -> None:
        """Note the capabilities that a client declares, and the requests that it cancels."""
        if message.plain and self._elicitor is not None and self._elicitor.asks:
            self._elicitor.note(exchange, message)
        if holding.held and (gone := exchange.protocol.cancels(message)):
            holding.cancelled(exchange.identity, exchange.server, gone)

    async def _note_history(self, exchange: Exchange, message: Message) -> HttpReply | None:
        """Take in what a request reports to a model; return its refusal where one withholds it."""
        if message.reported:
            withheld = await self._models.observe_reported(exchange, message.reported)
            if withheld is not None:
                return exchange.protocol.refuse(message, [withheld])
        if message.user_role_claims:
            now = self._clock.now()
            await self._guard.notes.claims(exchange.identity, message.user_role_claims, now)
        return None

    async def _log_in(self, login: Login, request: HttpRequest, decision_id: str) -> HttpReply:
        """Answer a request of the login; what cannot be done is refused, in every mode."""
        place = self._place(request)
        try:
            return await login.answer(request, place.principal, decision_id)
        except MessageError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  (it must end in a refusal, whatever it met)
            self._metrics.count(ERRORS, "hook")
            failure = MessageError("guard_error", type(error).__name__, status=503)
        if failure.status != NOT_FOUND:
            # That there is no login here is an answer, which clients look for.
            self._failures.record(failure, LOGIN, place, decision_id)
        said = unreadable_sentence(failure, decision_id)
        return login_refused(failure, said, unreadable(failure, decision_id))

    def _or_asked(
        self, refused: Refused, exchange: Exchange, rewriting: Rewriting
    ) -> HttpReply | AskedRequest:
        """Return the reply of a refusal, or what is asked where a person's yes would release it."""
        request, protocol, identity = rewriting.original, exchange.protocol, exchange.identity

        def reworded(reason: Reason) -> HttpReply:
            told = [r and replace(r, verdict=r.verdict.blocked(reason)) for r in refused.told]
            return _in_stream(refused.word(told), protocol, request, identity.principal)

        reply = _in_stream(refused.word(refused.told), protocol, request, identity.principal)
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
        decisions = tuple(map(_DECISION, asked))
        message = rewriting.message
        rules = frozenset(chain.from_iterable(map(_RULES, asked)))
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
        protocol, place = self._fallback, MessageRoute()
        if request is not None:
            place = self._place(request)
            try:
                protocol = self._matching(request)
            except Exception:  # noqa: BLE001  (what it looks like decides no more than the wording)
                protocol = self._fallback
        decision_id = decision_id or self._failures.record(
            error, protocol.name, place, stays=bool(error.retry_after)
        )
        reply = protocol.unreadable(error, decision_id, request)
        if error.retry_after:
            again = ("retry-after", str(error.retry_after))
            said, headers = reply.content_type, (*reply.headers, again)
            reply = HttpReply(reply.status, said, reply.body, headers, reply.stream)
        return reply if request is None else _in_stream(reply, protocol, request, place.principal)

    def note(self, error: MessageError, place: MessageRoute) -> str:
        """Record what is refused without a request that could be answered; return its id."""
        return self._failures.record(error, self._fallback.name, place)

    def _place(self, request: HttpRequest) -> MessageRoute:
        return MessageRoute(request.server, request.host, self._credentials.told(request))

    def _unread(
        self,
        error: MessageError,
        protocol: ProtocolModule,
        request: HttpRequest,
        decision_id: str,
    ) -> UnparsedExchange | HttpReply:
        """Record a request that could not be read and return its refusal."""
        place = self._place(request)
        self._failures.record(error, protocol.name, place, decision_id)
        if self._failures.passes and error.code != "bad_credential":
            return UnparsedExchange(protocol, place)
        reply = protocol.unreadable(error, decision_id, request)
        return _in_stream(reply, protocol, request, place.principal)

    def _matching(self, request: HttpRequest) -> ProtocolModule:
        """Return the protocol of a request.

        Raises:
            MessageError: two claim it.
        """
        host, policy = request.host.lower(), self._guard.policy
        speaks_model = not self._model_apis.isdisjoint({host, host.rpartition(":")[0]})
        found: ProtocolModule | None = None
        for protocol in self._protocols:
            if protocol.needs and getattr(policy, protocol.needs, None) is None:
                continue
            if (speaks_model or not protocol.model_api) and protocol.matches(request):
                if found is not None:
                    raise MessageError("two_protocols", "two protocols claim this request")
                found = protocol
        return found or self._fallback

    def _calls(
        self,
        request: HttpRequest,
        exchange: Exchange,
        parsed: Sequence[ParsedCall],
        decision_id: str,
    ) -> list[ToolCall]:
        """Return the calls of a message; the first bears the id of the decision."""
        at = self._clock.now()
        nonce = request.header(NONCE_HEADER) or ""
        token = request.header(TOKEN_HEADER) or ""
        context = request_context(request) if parsed else ""
        traced = request.header("traceparent") or ""
        calls: list[ToolCall] = []
        for one in parsed:
            trace = one.trace or traced
            call = exchange.call(
                one.tool,
                one.arguments,
                at,
                decision_id="" if calls else decision_id,
                upstream=exchange.upstream,
                nonce=nonce,
                token=token,
                context=call_context(context, one.meta) if one.meta else context,
                trace=trace if TRACEPARENT.fullmatch(trace) else "",
                unbound=(_HEADERS if one.tool in _HEADED else _NOTHING) | one.unbound,
            )
            calls.append(call)
        return calls

    async def _side_content(
        self,
        request: HttpRequest,
        protocol: ProtocolModule,
        message: Message,
        identity: Identity,
        upstream: str,
    ) -> list[ParsedCall]:
        """Return what else leaves with a message, as calls that are judged like any other.

        Args:
            request: the message on the wire.
            protocol: its format.
            message: as it was read.
            identity: of the client.
            upstream: whose tokens the client may repeat.

        Where the agent chose the host, or the message goes to no endpoint of its protocol, the
        request itself is a call as well.  Its headers and query are one where the policy maps it.
        """
        if protocol is self._fallback:
            return []
        policy = self._guard.policy
        is_endpoint = protocol.is_endpoint(request)
        echoed: Sequence[Json] = ()
        if message.echoes:
            echoed = [
                self._issued.question(identity.principal, str(e.value)) if e.answers else e.value
                for e in message.echoes
            ]
        if self._shared is not None and (message.echoes or not is_endpoint):
            await self._issued.learn(identity.tenant, upstream, [request.target, *echoed])
        found = [*message.side_content]
        for echo, token in zip(message.echoes, echoed, strict=True):
            if not self._issued.holds(upstream, token):
                found.append(echo.call)
        is_away = request.chosen or not (
            is_endpoint or self._issued.holds(upstream, request.target)
        )
        if is_away and not protocol.names_hosts:
            bare = request if not message.calls else replace(request, body=b"")
            found += self._fallback.parse(bare).calls
        elif not protocol.model_api and policy is not None and policy.mapping(METADATA):
            found += metadata_call(request, reads_query=not protocol.names_hosts)
        return found

    async def _task(self, exchange: Exchange, task: str) -> TracedCall | None:
        """Return the call of a task, whichever process released it."""
        key, tenant = exchange.task_key(task), exchange.identity.tenant
        found: TracedCall | str | None = self._in_flight.take(key)
        if self._shared is not None:
            if found is None:
                found = await self._shared.take(tenant, key)
            else:
                self._shared.forget(tenant, key)
        return None if isinstance(found, str) else found

    async def _expect_others(self, message: Message, exchange: Exchange) -> None:
        """Expect the answers to requests that are no calls: results of earlier ones, and others."""
        for correlation, task in message.tasks:
            classified = await self._task(exchange, task)
            if classified is None:
                # Another guard, or this one's predecessor, released the call: its result is
                # labelled, and judged, as that of a tool nobody knows.
                call = exchange.call(UNKNOWN_TASK, {}, self._clock.now())
                classified = untraced(ClassifiedCall(call, Role.OTHER))
            size = text_size(dict(classified.call.arguments))
            self._expect(exchange, correlation, classified, size)
        for correlation, method in message.plain:
            exchange.plain[correlation] = method
            if correlation is not None:
                self._plain.add(exchange.message_key(correlation), method, len(method))
        if self._holding is not None:
            self._note_client(self._holding, message, exchange)

    def _expect(
        self, exchange: Exchange, correlation: str | None, classified: TracedCall, size: int
    ) -> None:
        exchange.calls[correlation] = classified
        if correlation is not None:
            self._in_flight.add(exchange.message_key(correlation), classified, size)

    async def _judge(
        self,
        message: Message,
        calls: Sequence[ToolCall],
        exchange: Exchange,
        rewriting: Rewriting,
    ) -> Refused | None:
        """Judge the calls and the side content of a message; why it stays here, where it does."""
        if not calls:
            return None
        protocol = exchange.protocol
        judged = await self._guard.judge(JudgeRequest(calls, rewriting))
        own, side_content = judged[: len(message.calls)], judged[len(message.calls) :]
        for refusal in _refusals(side_content):
            if refusal is not None and not _follows(refusal):
                # Refused for itself, not because others are.
                whole = partial(self._refused_whole, protocol, message)
                return Refused(_refusals(judged), [refusal], whole)
        refusals = _refusals(own)
        if refusals.count(None) < len(refusals):
            word = partial(protocol.refuse, message)
            if protocol is self._fallback:
                word = partial(self._refused_plainly, rewriting.original, message)
            return Refused(refusals, refusals, word)
        exchange.rewritten = rewriting.request
        exchange.is_write = bool(own)
        for parsed, (classified, _) in zip(message.calls, own, strict=True):
            exchange.is_write = exchange.is_write and self._guard.is_committed(classified)
            # The calls of a batch share its body.
            size = len(rewriting.original.body) // len(own)
            self._expect(exchange, parsed.correlation, classified, size)
        for classified, _ in side_content:
            # Nothing answers it by name: it counts as executed from here on.
            await self._guard.observe(ToolResult(classified, None, classified.call.at))
        return None

    def _refused_whole(
        self, protocol: ProtocolModule, message: Message, refusals: Sequence[Refusal | None]
    ) -> HttpReply:
        """Word the refusal of a message for its side content."""
        [refusal] = refusals
        whole = None if refusal is None else protocol.refuse_whole(message, refusal)
        return whole or self._fallback.refuse(message, refusals)

    def _refused_plainly(
        self, request: HttpRequest, message: Message, refusals: Sequence[Refusal | None]
    ) -> HttpReply:
        """Word the refusal of a plain request; for a model's client, in its vendor's shape."""
        for model in self._protocols:
            if model.model_api and model.matches(request):
                hint = _UNDECLARED.format(host=request.host)
                return model.refuse(message, [r and replace(r, hint=hint) for r in refusals])
        return self._fallback.refuse(message, refusals)


_UNDECLARED: Final = (
    "if this host is a model API, the operator declares it: `guard run --model-api {host}`"
)


def _in_stream(
    reply: HttpReply, protocol: ProtocolModule, request: HttpRequest, principal: str
) -> HttpReply:
    """Name the event stream in which the client reads its answers, where there is one."""
    session = protocol.answered_in(request) if "?" in request.target else ""
    return replace(reply, stream=(request.server, principal, session)) if session else reply


def _follows(refusal: Refusal) -> bool:
    """Return whether a call is refused only because another of its message is."""
    return refusal.verdict.reasons[0].code == "batch_refused"


def _refusals(answers: Sequence[tuple[TracedCall, Verdict]]) -> list[Refusal | None]:
    """Return why each of some calls is not forwarded, None where it is."""
    found: list[Refusal | None] = []
    for traced, verdict in answers:
        found.append(
            None if verdict.enforced.forwards else Refusal(traced.classified.call.id, verdict)
        )
    return found
