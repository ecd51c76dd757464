"""Identity of a request: its principal, and its session.

The principal comes from authentication: a client certificate, a signed token or a shared secret,
whichever the operator has set up (``guard/credentials/client_authentication.py``).  All
unauthenticated traffic of one guard is one principal: an agent reaches its memory by one listener
and its mail by another, and what it read by the first must be known at the second (docs/adr/0007).
An operator may name a listener's own principal.

The session key is taken from the first of ``X-Guard-Session``, ``Mcp-Session-Id``, a session id
in ``_meta`` or ``baggage``, ``traceparent``, and the connection.  A client chooses most of these,
so they separate and never widen: labels and the wider window belong to the principal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final, Protocol

from guard.core.errors import MessageError
from guard.core.model import DEFAULT_TENANT, TRACEPARENT, Identity, PrincipalRung, SessionRung
from guard.protocols.http.message import PROXY_CREDENTIAL, SESSION_HEADER, HttpReply, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.protocols.messages import Message

MAX_ID: Final = 256
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,256}")
ANONYMOUS: Final = "anonymous"


class Proof(Protocol):
    """One way in which a client can prove who it is."""

    def principal(self, request: HttpRequest) -> str | None:
        """Return the principal that the request proves, None where it proves none this way."""


class Login(Protocol):
    """Logs clients in at the servers behind reverse listeners (OAuth)."""

    binds: bool
    """True if there is more than one server, so that a token may be for another."""

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
        login: logs clients in at the servers of reverse listeners; knows the owners of tokens.
        tenant_of: returns the tenant of a principal; None where all are of one.
    """

    def __init__(
        self,
        proofs: Sequence[Proof] = (),
        listeners: Mapping[str, str] | None = None,
        login: Login | None = None,
        tenant_of: Callable[[str], str] | None = None,
    ) -> None:
        self.tenant_of = tenant_of
        self.proofs = tuple(proofs)
        """Proofs of identity that a client can give."""
        self.login = login
        """Logs clients in at the servers of reverse listeners; None where there are none."""
        self.binding = login if login is not None and login.binds else None
        """The login, where a token belongs to one of several servers."""
        self._listeners = dict(listeners or {})

    def claimed(self, request: HttpRequest) -> str:
        """Return the principal for a refusal of a request; empty if its proof is not valid."""
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
        raise MessageError("bad_credential", "a valid proxy credential is required", status=407)


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


def identify(request: HttpRequest, message: Message, credentials: Credentials) -> Identity:
    """Return who makes a request.

    Raises:
        MessageError: a credential is required and missing, it is a token for another server, or an
            id is malformed or repeated.
    """
    if credentials.binding is not None and not request.chosen:
        token = request.header("authorization")
        if token is not None:
            credentials.binding.check(request, token)
    principal = credentials.principal(request) if credentials.proofs else None
    name, session, rung = _session(request, message)
    if name and not _VISIBLE.fullmatch(session):
        text = f"`{name}` must be 1 to {MAX_ID} visible ascii characters"
        raise MessageError("bad_session_id", text)
    tenant_of = credentials.tenant_of
    return Identity(
        principal=principal or credentials.unauthenticated(request.server),
        session=session,
        tenant=DEFAULT_TENANT if principal is None or tenant_of is None else tenant_of(principal),
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
    if trace := TRACEPARENT.fullmatch((request.header("traceparent") or "").strip()):
        return "", trace[1], SessionRung.TRACEPARENT
    return "", f"connection:{request.connection}", SessionRung.CONNECTION


def _from_baggage(baggage: str) -> str | None:
    """Return ``session.id`` of a W3C baggage header."""
    for member in baggage.split(","):
        key, _, value = member.split(";", 1)[0].partition("=")
        if key.strip() in {"session.id", "session_id"}:
            return value.strip()
    return None
