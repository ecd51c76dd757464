"""One exchange: the forwarded request, and what is known of it until it is answered.

Also what outlives an exchange: tokens that servers issued, and the record of messages that could
not be read.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.core.frozen import frozen
from guard.core.metrics import ERRORS, FAIL_CLOSED, OTHER, REFUSALS, Metrics
from guard.core.model import Identity, Json, SessionRung, ToolCall
from guard.core.policy import Mode, Reason
from guard.pipeline.admission import OVERLOADED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.core.calls import TracedCall
    from guard.core.ports import AuditLog
    from guard.pipeline.guard import Guard
    from guard.pipeline.in_flight import CallKey, StoredExchanges
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.llm.model_answers import AnswerReader
    from guard.protocols.messages import Message


SIGN_SECONDS: Final = 25.0
"""Seconds between two signs to a client whose request waits.

The HTML standard proposes about 15 for server-sent events (9.2.7), proxies commonly give up a
silent connection after 60, and signs are most of the cost of a thousand waiting clients.
"""
TOKEN_LIMIT: Final = 100_000
"""Issued tokens whose digests are kept; the oldest is removed first."""
_ID_BYTES: Final = 16


def refusal_of(error: Exception, metrics: Metrics, stage: str) -> MessageError:
    """Return the refusal of a message that failed; an unexpected error is counted by stage."""
    if isinstance(error, MessageError):
        return error
    metrics.count(ERRORS, stage)
    return MessageError("guard_error", type(error).__name__, status=503)


def new_decision_id() -> str:
    """Return 32 hexadecimal digits that nobody can guess; they name one call everywhere.

    Of the same shape as a UUID's, which costs five times as much to make.
    """
    return secrets.token_hex(_ID_BYTES)


@frozen
class MessageRoute:
    """The route of a message: where one that was refused without being judged was going."""

    server: str = ""
    """The listener it came in by."""
    host: str = ""
    """``host`` or ``host:port`` of its target, empty where it was not known."""
    principal: str = ""
    """Principal of the sender, empty where that was not known."""


@dataclass(frozen=True, slots=True)
class UnparsedExchange:
    """A request that could not be parsed and that monitor mode forwarded all the same.

    Nothing is known of it, so its answer is not read either.
    """

    protocol: ProtocolModule
    """Words what the client is told if its answer cannot be passed on."""
    place: MessageRoute


@dataclass(slots=True)
class Exchange:
    """The facts of a request that was read.  Not frozen: its answer changes them."""

    protocol: ProtocolModule
    server: str
    """The listener it came in by."""
    identity: Identity
    session: str
    """The session in which the ids of its messages are unique."""
    upstream: str = ""
    """The server it went to, as definitions are pinned; empty where none are."""
    reader: AnswerReader | None = None
    """Reads an answer that may carry calls; such an answer is judged before it is released."""
    calls: dict[str | None, TracedCall] = field(default_factory=dict)
    """Calls still without a result, by correlation."""
    plain: dict[str | None, str] = field(default_factory=dict)
    """Methods of requests that are not calls and have no answer yet, by correlation."""
    is_write: bool = False
    """True if every call of it is a committed memory write: it may carry the write credential."""
    rewritten: HttpRequest | None = None
    """The redacted request, where that is what is forwarded."""
    streams: bool = False
    """True if an event of its answer has been read."""
    context: str = ""
    """Digest of the request's lasting facts, for calls that its answer or its WebSocket brings."""
    resumes: bool = False
    """True if its stream has marks by which a client fetches missed events."""
    named: Callable[[str], None] | None = None
    """Told the session id that a server gives its client, where somebody wants to know."""
    hold_seconds: int = 0
    """Seconds for which its client waits for a whole answer in which a call is held open."""
    answers_for: str = ""
    """The session whose requests are answered in its stream (MCP over HTTP+SSE, 2024-11-05)."""

    @property
    def place(self) -> MessageRoute:
        """Route of its messages."""
        host = self.upstream.partition("/")[0]
        return MessageRoute(self.server, host, self.identity.principal)

    def call(  # noqa: PLR0913  (what only the calls of a request have is named)
        self,
        tool: str,
        arguments: Mapping[str, Json],
        at: float,
        *,
        decision_id: str = "",
        protocol: str = "",
        upstream: str = "",
        nonce: str = "",
        token: str = "",
        context: str = "",
        unbound: frozenset[str] = frozenset(),
        trace: str = "",
    ) -> ToolCall:
        """Return a call of this exchange, with a decision id of its own where none is given."""
        return ToolCall(
            id=decision_id or new_decision_id(),
            identity=self.identity,
            tool=tool,
            arguments=arguments,
            protocol=protocol or self.protocol.name,
            at=at,
            server=self.server,
            upstream=upstream,
            nonce=nonce,
            token=token,
            context=context or self.context,
            unbound=unbound,
            trace=trace,
        )

    def message_key(self, correlation: str) -> CallKey:
        """Return the key of a call whose result has the id of its message."""
        return "message", self.server, self.identity.principal, self.session, correlation

    def task_key(self, task: str) -> CallKey:
        """Return the key of a call whose result is fetched by the id of a task."""
        return "task", self.server, self.identity.principal, self.session, task

    def model_key(self, correlation: str) -> CallKey:
        """Return the key of a call in a model's answer, whose result a later request reports."""
        return "model", "", self.identity.principal, "", correlation

    def join(self, name: str, data: str) -> None:
        """Take the endpoint and the session id that an event of an HTTP+SSE stream announces.

        Only a stream that is known by its connection takes the session that its server names.
        """
        path = self.protocol.upstream_of_event(name, data)
        if path is not None:
            self.upstream = self.upstream.partition("/")[0] + path
        session = self.protocol.session_of_event(name, data)
        self.answers_for = session or self.answers_for
        if session and self.identity.session_rung <= SessionRung.TRACEPARENT:
            self.session = session


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """A request whose calls need a person's answer, and nothing else."""

    request: HttpRequest
    reply: HttpReply
    """Its refusal, which says under which id it is asked."""
    protocol: ProtocolModule
    message: Message
    identity: Identity
    policy: str
    """Digest of the policy that asks."""
    decisions: tuple[str, ...]
    """Decision ids of the asked calls; one answer is for all of them."""
    rules: frozenset[str]
    """Ids of the rules that ask."""
    reworded: Callable[[Reason], HttpReply]
    """Gives its refusal for another reason."""

    @property
    def server(self) -> str:
        """The listener it came in by."""
        return self.request.server

    @property
    def size(self) -> int:
        """Bytes that are kept for it."""
        return len(self.request.body)


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call, of a model's answer or a WebSocket, that needs a person's answer."""

    identity: Identity
    server: str
    """The listener it came by."""
    policy: str
    """Digest of the policy that asks."""
    decisions: tuple[str, ...]
    """Its decision id."""
    size: int
    """Bytes that are kept for it."""


def share(shared: StoredExchanges, exchange: Exchange) -> None:
    """Store the open requests of an exchange for every process: another may receive the answers."""
    tenant = exchange.identity.tenant
    for held in (exchange.calls, exchange.plain):
        for correlation, one in held.items():
            if correlation is not None:
                shared.keep(tenant, exchange.message_key(correlation), one)


class IssuedTokens:
    """Tokens that servers issued to their clients: cursors, request states, ids, paths to post to.

    A client that sends such a token back to the server that issued it discloses nothing.

    Args:
        shared: knows what other processes have seen; None where there are none.
    """

    def __init__(self, shared: StoredExchanges | None = None) -> None:
        self._shared = shared
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def add(self, upstream: str, token: str, tenant: str = "") -> None:
        """Remember a token that a server issued; with a tenant, in every process."""
        if tenant and self._shared is not None:
            self._shared.say(tenant, upstream, token)
        digest = _token_digest(upstream, token)
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        while len(self._digests) > TOKEN_LIMIT:
            self._digests.popitem(last=False)

    async def learn(self, tenant: str, upstream: str, tokens: Sequence[Json]) -> None:
        """Look up which of some unknown tokens the server issued by way of other processes."""
        unknown = [one for one in tokens if isinstance(one, str) and not self.holds(upstream, one)]
        if unknown and self._shared is not None:
            for token in await self._shared.said(tenant, upstream, unknown):
                self.add(upstream, token)

    @staticmethod
    def question(principal: str, mark: str) -> str:
        """Return the token of a question that a server asked a principal."""
        return f"{principal}\n{mark}"

    def holds(self, upstream: str, token: Json) -> bool:
        """Return whether the server issued the token."""
        return isinstance(token, str) and _token_digest(upstream, token) in self._digests


def _token_digest(upstream: str, token: str) -> bytes:
    """Return the digest of a token of a host; one host may have many paths for one session."""
    text = f"{upstream.partition('/')[0]}\n{token}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class ParseFailures:
    """Records messages that could not be read one way only.

    Args:
        guard: says whether the policy only watches.
        audit: gets a line.
        metrics: gets a count.
    """

    def __init__(self, guard: Guard, audit: AuditLog, metrics: Metrics) -> None:
        self._guard = guard
        self._audit = audit
        self._metrics = metrics

    @property
    def passes(self) -> bool:
        """True if such a message is recorded and forwarded anyway, as in monitor mode."""
        policy = self._guard.policy
        return policy is not None and policy.mode is Mode.MONITOR

    def record(
        self,
        error: MessageError,
        protocol: str,
        place: MessageRoute,
        decision_id: str = "",
        *,
        stays: bool = False,
    ) -> str:
        """Write the audit line and count; return the decision id.

        Args:
            error: why it was not read.
            protocol: of the message, as far as it is known.
            place: where it was going.
            decision_id: a new one where it is empty.
            stays: whether it is not forwarded in monitor mode either.
        """
        decision_id = decision_id or new_decision_id()
        self._metrics.count(REFUSALS, error.code)
        host, _, port = place.host.rpartition(":")
        fields: dict[str, Json] = {
            "decision_id": decision_id,
            "code": error.code,
            "action": "block",
            "enforced": "allow" if self.passes and not stays else "block",
            "protocol": protocol,
            "server": place.server,
            "principal": place.principal,
            "host": host if port.isdigit() else place.host,
            "port": int(port) if port.isdigit() else None,
        }
        try:
            self._audit.event("guard.unreadable", fields)
        except Exception:  # noqa: BLE001  (it is refused, on record or not)
            self._metrics.count(ERRORS, "audit")
            self._metrics.set(FAIL_CLOSED, 1, "audit")
        return decision_id


EVENT: Final = "guard.connections_refused"
SUMMARY_SECONDS: Final = 10.0
"""Length of the interval that one line is about."""
ADDRESSES: Final = 64
"""Addresses with a line of their own in one interval; the others share one."""


class RefusedConnections:
    """Counts refused connections by the address they came to.

    Args:
        audit: gets one line per address and interval, written by a thread.
        metrics: counts each.
    """

    def __init__(self, audit: AuditLog, metrics: Metrics) -> None:
        self._audit = audit
        self._metrics = metrics
        self._counts: Counter[str] = Counter()

    def add(self, server: str) -> None:
        """Count one."""
        self._metrics.count(REFUSALS, OVERLOADED)
        is_known = server in self._counts or len(self._counts) < ADDRESSES
        self._counts[server if is_known else OTHER] += 1

    async def write(self) -> None:
        """Write what was counted since; what cannot be written stays counted."""
        counts, self._counts = self._counts, Counter()
        for server, count in counts.items():
            fields = {"server": server, "code": OVERLOADED, "action": "block", "count": count}
            try:
                await asyncio.to_thread(self._audit.event, EVENT, fields)
            except Exception:  # noqa: BLE001  (nothing was let in)
                self._metrics.count(ERRORS, "audit")
                self._counts[server] += count

    async def run(self) -> None:
        """Write a summary per interval until cancelled."""
        while True:
            await asyncio.sleep(SUMMARY_SECONDS)
            await self.write()
