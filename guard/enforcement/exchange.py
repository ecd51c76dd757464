"""One exchange: who makes it, the forwarded request, and what is known of it until it is answered.

The principal comes from authentication: a client certificate, a signed token or a shared secret,
whichever the operator has set up (``guard/adapters/credentials/client_authentication.py``).  All
unauthenticated traffic of one guard is one principal: an agent reaches its memory by one listener
and its mail by another, and what it read by the first must be known at the second (docs/adr/0007).
An operator may name a listener's own principal.

The session key is taken from the first of ``X-Guard-Session``, ``Mcp-Session-Id``, a session id
in ``_meta`` or ``baggage``, ``traceparent``, and the connection.  A client chooses most of these,
so they separate and never widen: labels and the wider window belong to the principal.

Also what outlives an exchange: the calls in flight, whose results may come back in another one, and
the record of messages that could not be read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from guard.core.errors import AuditError, MessageError
from guard.core.frozen import frozen
from guard.core.metrics import ERRORS, FAIL_CLOSED, REFUSALS
from guard.core.model import Identity, PrincipalRung, SessionRung, ToolCall
from guard.core.policy import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.core.calls import TracedCall
    from guard.core.metrics import Metrics
    from guard.core.model import Json
    from guard.core.policy import Reason
    from guard.core.ports import AuditLog
    from guard.decision.guard import Guard
    from guard.protocols.base import ProtocolModule
    from guard.protocols.http.message import HttpReply, HttpRequest
    from guard.protocols.llm.model_answers import AnswerReader
    from guard.protocols.messages import Message

SESSION_HEADER: Final = "x-guard-session"
NONCE_HEADER: Final = "x-guard-nonce"
TOKEN_HEADER: Final = "x-guard-promotion-token"  # noqa: S105  (the name of a header)
"""For memory stores whose tools have no place for a nonce or a promotion token."""
STRIPPED_PREFIX: Final = "x-guard-"
PROXY_CREDENTIAL: Final = "proxy-authorization"
STRIPPED_HEADERS: Final = frozenset({PROXY_CREDENTIAL, "proxy-connection"})
"""Never sent upstream, nor is anything that starts with ``STRIPPED_PREFIX``."""
MAX_ID: Final = 256
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,256}")


ANONYMOUS: Final = "anonymous"


class Proof(Protocol):
    """One way in which a client can prove who it is."""

    def principal(self, request: HttpRequest) -> str | None:
        """Return the principal that the request proves, None where it proves none this way."""


class Login(Protocol):
    """Logs clients in at the servers behind reverse listeners (OAuth)."""

    binds: bool
    """Whether there is more than one server, so that a token may be for another."""

    def check(self, request: HttpRequest, credential: str) -> None:
        """Refuse a token that is for another server.

        Raises:
            MessageError: it is.
        """

    def challenge(self, request: HttpRequest, said: str) -> str:
        """Return a server's ``WWW-Authenticate`` header as the listener's client must find it."""

    async def answer(self, request: HttpRequest, principal: str, decision_id: str) -> HttpReply:
        """Answer a request of the login.

        Raises:
            MessageError: it is refused.
            AuditError: it could not be recorded.
        """


class SharedSecrets:
    """``Proxy-Authorization`` with a secret: Basic (the user is the principal) or Bearer.

    Args:
        digests: sha256 (hex) of each secret, by principal.
    """

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = dict(digests)

    def principal(self, request: HttpRequest) -> str | None:
        """Return the principal whose secret it is."""
        name, secret = _read_credential(request.header(PROXY_CREDENTIAL))
        digest = hashlib.sha256(secret.encode()).hexdigest()
        for principal, expected in self._digests.items():
            if hmac.compare_digest(digest, expected) and name in {None, principal}:
                return principal
        return None


class Credentials:
    """The proofs that the guard accepts, and who unauthenticated traffic is.

    Args:
        proofs: asked in this order; with any, no unauthenticated call is accepted.
        listeners: principal of a listener's unauthenticated traffic, by its port (and path).
        login: knows whose the tokens are that clients show their servers.
    """

    def __init__(
        self,
        proofs: Sequence[Proof] = (),
        listeners: Mapping[str, str] | None = None,
        login: Login | None = None,
    ) -> None:
        self.proofs = tuple(proofs)
        """How a client can prove who it is."""
        self.login = login if login is not None and login.binds else None
        """Asked about tokens, where there is more than one server."""
        self._listeners = dict(listeners or {})

    def told(self, request: HttpRequest) -> str:
        """Return whom a refusal of a request concerns; empty where its proof does not hold."""
        if not self.proofs:
            return self.unauthenticated(request.server)
        try:
            return self.principal(request) or self.unauthenticated(request.server)
        except MessageError:
            return ""

    def unauthenticated(self, server: str) -> str:
        """Return the principal of traffic that proves none, by the listener it came in by."""
        return self._listeners.get(server.rpartition(":")[2], ANONYMOUS)

    def principal(self, request: HttpRequest) -> str | None:
        """Return the principal that a request proves, None where no proof is asked for.

        Raises:
            MessageError: a proof is required and this request has none that holds.
        """
        if not self.proofs:
            return None
        if (known := request.proved()) is not None:
            return known
        for proof in self.proofs:
            if (name := proof.principal(request)) is not None:
                return request.proved(name)
        message = "a valid proxy credential is required"
        raise MessageError("bad_credential", message, status=407)


def _read_credential(header: str | None) -> tuple[str | None, str]:
    scheme, _, value = (header or "").partition(" ")
    if scheme.lower() == "bearer":
        return None, value.strip()
    if scheme.lower() == "basic":
        try:
            name, _, secret = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None, ""
        return name, secret
    return None, ""


def identify(
    request: HttpRequest, message: Message, credentials: Credentials, *, tenant: str = "default"
) -> Identity:
    """Return who makes a request.

    Raises:
        MessageError: a credential is required and missing, it is a token for another server, or an
            id is malformed or repeated.
    """
    if credentials.login is not None and not request.chosen:
        token = request.header("authorization")
        if token is not None:
            credentials.login.check(request, token)
    principal = credentials.principal(request) if credentials.proofs else None
    name, session, rung = _session(request, message)
    if name and not _VISIBLE.fullmatch(session):
        text = f"`{name}` must be 1 to {MAX_ID} visible ascii characters"
        raise MessageError("bad_session_id", text)
    return Identity(
        principal=principal or credentials.unauthenticated(request.server),
        session=session,
        tenant=tenant,
        principal_rung=PrincipalRung.CREDENTIAL if principal else PrincipalRung.ANONYMOUS,
        session_rung=rung,
    )


def _session(request: HttpRequest, message: Message) -> tuple[str, str, SessionRung]:
    """Return where a client chose its session's id (empty: it did not), the id and its rung."""
    for name, rung in (
        (SESSION_HEADER, SessionRung.GUARD_HEADER),
        ("mcp-session-id", SessionRung.MCP_SESSION),
    ):
        if (value := request.header(name)) is not None:
            return name, value, rung
    if message.session_id is not None:
        return "_meta session id", message.session_id, SessionRung.META
    if (baggage := request.header("baggage")) and (value := _from_baggage(baggage)):
        return "baggage session id", value, SessionRung.META
    if trace := _TRACEPARENT.fullmatch((request.header("traceparent") or "").strip()):
        return "", trace[1], SessionRung.TRACEPARENT
    return "", f"connection:{request.connection}", SessionRung.CONNECTION


def _from_baggage(baggage: str) -> str | None:
    """Return ``session.id`` of a W3C baggage header."""
    for member in baggage.split(","):
        key, _, value = member.split(";", 1)[0].partition("=")
        if key.strip() in {"session.id", "session_id"}:
            return value.strip()
    return None


IN_FLIGHT_LIMIT: Final = 100_000
"""Calls in flight; the oldest is forgotten first and then stays *attempted*, which frees nobody."""
_ID_BYTES: Final = 16
Held = TypeVar("Held")

CallKey: TypeAlias = tuple[Literal["message", "task", "model"], str, str, str, str]
"""How a result names its call (the id of its message, of a task, or of a call in a model's answer),
then listener (a server answers its own calls only), principal, session and the id.  Of a model's
calls listener and session are empty: a history may come back in any."""


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
    """Who sent it, empty where that was not known."""


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
    """Methods of requests that are no calls and have no answer yet, by correlation."""
    is_write: bool = False
    """Whether every call of it is a committed memory write: it may carry the write credential."""
    rewritten: HttpRequest | None = None
    """The redacted request, where that is what is forwarded."""
    streams: bool = False
    """Whether an event of its answer has been read."""
    context: str = ""
    """Digest of the request's lasting facts, for calls that its answer or its WebSocket brings."""
    resumes: bool = False
    """Whether its stream has marks by which a client fetches what it missed."""
    named: Callable[[str], None] | None = None
    """Told the session id that a server gives its client, where somebody wants to know."""
    hold_seconds: int = 0
    """Seconds for which its client waits for a whole answer in which a call is held open."""
    answers_for: str = ""
    """The session whose requests are answered in its stream (MCP over HTTP+SSE, 2024-11-05)."""

    @property
    def place(self) -> MessageRoute:
        """Where its messages go."""
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
    """A call that needs a person's answer and is no request: of a model's answer or a WebSocket."""

    identity: Identity
    server: str
    """The listener it came by."""
    policy: str
    """Digest of the policy that asks."""
    decisions: tuple[str, ...]
    """Its decision id."""
    size: int
    """Bytes that are kept for it."""


class InFlight(Generic[Held]):
    """What was forwarded and whose answer may come back in another exchange."""

    def __init__(self) -> None:
        self._held: OrderedDict[CallKey, Held] = OrderedDict()

    def add(self, key: CallKey, held: Held) -> None:
        """Remember it."""
        self._held[key] = held
        while len(self._held) > IN_FLIGHT_LIMIT:
            self._held.popitem(last=False)

    def holds(self, key: CallKey) -> bool:
        """Return whether it is known."""
        return key in self._held

    def open_in(self, exchange: Exchange) -> list[str]:
        """Return the correlations of the requests whose answers come in an exchange's stream."""
        place = exchange.message_key("")[:-1]
        return [key[-1] for key in self._held if key[:-1] == place]

    def take(self, key: CallKey) -> Held | None:
        """Return it and forget it, None where it is not known."""
        return self._held.pop(key, None)


class CallsInFlight(InFlight["TracedCall"]):
    """Calls that were released and have no result yet."""

    def awaited(self) -> int:
        """Return how many calls were forwarded, rather than released in a model's answer."""
        return sum(key[0] != "model" for key in self._held)


class SharedExchanges(Protocol):
    """Calls in flight and issued tokens, as several processes share them.

    Implemented by :class:`guard.enforcement.shared_exchanges.StoredExchanges`.
    """

    def keep(self, tenant: str, key: CallKey, held: TracedCall | str) -> None:
        """Store a call, or the method of another request, for every process; returns at once."""

    def forget(self, tenant: str, key: CallKey) -> None:
        """Remove an entry that this process stored and that has been answered."""

    async def take(self, tenant: str, key: CallKey) -> TracedCall | str | None:
        """Return and remove an entry of another process; None where there is none."""

    def say(self, tenant: str, upstream: str, token: str) -> None:
        """Store a token that a server issued to its client, for every process; returns at once."""

    async def said(self, tenant: str, upstream: str, tokens: Sequence[str]) -> list[str]:
        """Return which of some tokens the server issued, by way of any process."""


def share(shared: SharedExchanges, exchange: Exchange) -> None:
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

    def __init__(self, shared: SharedExchanges | None = None) -> None:
        self._shared = shared
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def add(self, upstream: str, token: str, tenant: str = "") -> None:
        """Remember a token that a server issued; with a tenant, in every process."""
        if tenant and self._shared is not None:
            self._shared.say(tenant, upstream, token)
        digest = _token_digest(upstream, token)
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        while len(self._digests) > IN_FLIGHT_LIMIT:
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
        """Whether such a message is recorded and forwarded all the same, as in monitor mode."""
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
        except AuditError:
            self._metrics.count(ERRORS, "audit")
            self._metrics.set(FAIL_CLOSED, 1, "audit")
        return decision_id
