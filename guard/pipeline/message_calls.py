"""From a request to the protocol that reads it, and to the calls that leave with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from guard.core.calls import ClassifiedCall, TracedCall, untraced
from guard.core.errors import MessageError
from guard.core.model import TRACEPARENT, UNKNOWN_TASK, Identity, Json, Role, ToolCall
from guard.pipeline.exchange import Exchange, MessageRoute, refusal_of
from guard.protocols.http.message import (
    NONCE_HEADER,
    REDACTION_FAILED,
    TOKEN_HEADER,
    HttpReply,
    HttpRequest,
)
from guard.protocols.http.metadata import TOOL as METADATA
from guard.protocols.http.metadata import call_context, metadata_call, request_context
from guard.protocols.http.oauth import LOGIN_PATHS
from guard.protocols.http.oauth import refused as login_refused
from guard.protocols.http.request import TOOL as REQUEST
from guard.protocols.refusals import Refusal, unreadable, unreadable_sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from guard.pipeline.handler_parts import HandlerParts
    from guard.pipeline.identity import Login
    from guard.pipeline.trial import ActivePolicies
    from guard.protocols.base import ProtocolModule
    from guard.protocols.messages import Message, ParsedCall


_NOTHING: Final[frozenset[str]] = frozenset()
_HEADERS: Final = frozenset({"headers"})
_HEADED: Final = frozenset({REQUEST, METADATA})
"""Calls whose headers are part of their context."""


@dataclass(slots=True)
class Rewriting:
    """One message that may have to go out with other arguments.

    Satisfies ``guard.pipeline.outcome.Rewrite``.  The protocol module writes the message anew; it
    is then read as the upstream will read it, and taken only if it says exactly what it should.
    """

    protocol: ProtocolModule
    original: HttpRequest
    message: Message
    request: HttpRequest | None = None
    """Request to forward instead, once there is one."""

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


class MessageCalls:
    """Builder of the calls of a message.

    Args:
        parts: of the handlers.
        fallback: protocol of plain requests.
    """

    def __init__(self, parts: HandlerParts, fallback: ProtocolModule) -> None:
        self._parts = parts
        self._fallback = fallback

    def unknown_task(self, exchange: Exchange) -> TracedCall:
        """Return the call of a task that another guard, or a predecessor, released.

        Its result is labelled, and judged, like that of an unmapped tool.
        """
        call = exchange.call(UNKNOWN_TASK, {}, self._parts.clock.now())
        return untraced(ClassifiedCall(call, Role.OTHER))

    def of(
        self,
        request: HttpRequest,
        exchange: Exchange,
        parsed: Sequence[ParsedCall],
        decision_id: str,
    ) -> list[ToolCall]:
        """Return the calls of a message; the first has the id of the decision."""
        at = self._parts.clock.now()
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

    async def side_content(
        self,
        request: HttpRequest,
        protocol: ProtocolModule,
        message: Message,
        identity: Identity,
        upstream: str,
    ) -> list[ParsedCall]:
        """Return the other content that leaves with a message, as calls to judge.

        Args:
            request: the message on the wire.
            protocol: its format.
            message: as it was read.
            identity: of the client.
            upstream: server whose tokens the client may repeat.

        The request itself is a call as well if the agent chose the host, or if the message does not
        go to an endpoint of its protocol.  Its headers and query are one if the policy maps it.
        """
        if protocol is self._fallback:
            return []
        policy = self._parts.guard.policy
        is_endpoint = protocol.is_endpoint(request)
        echoed: Sequence[Json] = ()
        if message.echoes:
            echoed = [
                self._parts.issued.question(identity.principal, str(e.value))
                if e.answers
                else e.value
                for e in message.echoes
            ]
        if self._parts.shared is not None and (message.echoes or not is_endpoint):
            await self._parts.issued.learn(identity.tenant, upstream, [request.target, *echoed])
        found = [*message.side_content]
        found += (
            echo.call
            for echo, token in zip(message.echoes, echoed, strict=True)
            if not self._parts.issued.holds(upstream, token)
        )
        is_away = request.chosen or not (
            is_endpoint or self._parts.issued.holds(upstream, request.target)
        )
        if is_away and not protocol.names_hosts:
            bare = request if not message.calls else replace(request, body=b"")
            found += self._fallback.parse(bare).calls
        elif not protocol.model_api and policy is not None and policy.mapping(METADATA):
            found += metadata_call(request, reads_query=not protocol.names_hosts)
        return found


_UNDECLARED: Final = (
    "if this host is a model API, the operator declares it: `guard run --model-api {host}`"
)


class ProtocolChoice:
    """Chooses the one protocol that reads a request.

    Args:
        protocols: every wire format, one of them the fallback.
        policies: the policy in force declares plain HTTP tools.
        model_apis: hosts (``host`` or ``host:port``) that the operator declared as model APIs.
    """

    def __init__(
        self,
        protocols: Sequence[ProtocolModule],
        policies: ActivePolicies,
        model_apis: Collection[str],
    ) -> None:
        self._protocols = [p for p in protocols if not p.is_fallback]
        self.fallback = next(p for p in protocols if p.is_fallback)
        """Protocol of plain requests."""
        self._policies = policies
        self._model_apis = frozenset(name.lower() for name in model_apis)

    def of(self, request: HttpRequest) -> ProtocolModule:
        """Return the protocol of a request.

        Raises:
            MessageError: two claim it.
        """
        host, policy = request.host.lower(), self._policies.policy
        speaks_model = not self._model_apis.isdisjoint({host, host.rpartition(":")[0]})
        found: ProtocolModule | None = None
        for protocol in self._protocols:
            if protocol.needs and getattr(policy, protocol.needs, None) is None:
                continue
            if (speaks_model or not protocol.model_api) and protocol.matches(request):
                if found is not None:
                    raise MessageError("two_protocols", "two protocols claim this request")
                found = protocol
        return found or self.fallback

    def refuse_whole(
        self, protocol: ProtocolModule, message: Message, refusals: Sequence[Refusal | None]
    ) -> HttpReply:
        """Word the refusal of a message for its side content."""
        [refusal] = refusals
        whole = None if refusal is None else protocol.refuse_whole(message, refusal)
        return whole or self.fallback.refuse(message, refusals)

    def refuse_plain(
        self, request: HttpRequest, message: Message, refusals: Sequence[Refusal | None]
    ) -> HttpReply:
        """Word the refusal of a plain request; for a model's client, in its vendor's shape."""
        for model in self._protocols:
            if model.model_api and model.matches(request):
                hint = _UNDECLARED.format(host=request.host)
                return model.refuse(message, [r and replace(r, hint=hint) for r in refusals])
        return self.fallback.refuse(message, refusals)


LOGIN: Final = "oauth"
"""Protocol in audit lines of refused login requests."""
NOT_FOUND: Final = 404


def is_login(request: HttpRequest) -> bool:
    """Return True for a request to an endpoint of the login."""
    return request.target.startswith(LOGIN_PATHS) and not request.chosen


async def answer_login(
    parts: HandlerParts, login: Login, request: HttpRequest, route: MessageRoute, decision_id: str
) -> HttpReply:
    """Answer a request of the login; a failure is refused, in every mode."""
    try:
        return await login.answer(request, route.principal, decision_id)
    except Exception as error:  # noqa: BLE001  (it must end in a refusal, whatever it met)
        failure = refusal_of(error, parts.metrics, "hook")
    if failure.status != NOT_FOUND:
        # Clients probe for a login; its absence is an ordinary answer.
        parts.failures.record(failure, LOGIN, route, decision_id)
    sentence = unreadable_sentence(failure, decision_id)
    return login_refused(failure, sentence, unreadable(failure, decision_id))
