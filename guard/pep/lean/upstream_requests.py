"""Requests as clients send them, and as upstreams receive them.

Options of the lean enforcement point, by side.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.frozen import frozen
from guard.pep.envoy.front import SERVER, Front, Fronted
from guard.pep.lean.connections import ClientConnection, upstream_tls
from guard.pep.lean.messages import NAMES_REMEMBERED, RequestRead, field_name, head_bytes
from guard.pep.message_budget import LIMIT
from guard.pep.routes import ADDRESSES, address_in, address_of
from guard.pipeline.exchange import Exchange, UnparsedExchange
from guard.protocols.http.message import HOP, HttpRequest, is_sent_on
from guard.settings import DECIDE, Listener

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guard.credentials.write_credentials import WriteCredential
    from guard.pep.lean.client_tls import ClientTls
    from guard.pipeline.websocket_messages import WebSocketHandler, WebSocketSession


@frozen
class Inbound:
    """The side of the clients."""

    sockets: Mapping[str, list[socket.socket]] | None = None
    """Sockets that listen already, by ``host:port`` or ``unix:PATH``."""
    tls: ClientTls | None = None
    """TLS of clients that prove by certificates who they are; None where none do."""
    front: Front | None = None
    """Reader of the headers of an Envoy in front; None where clients connect themselves."""
    listen: Sequence[str] = ()
    """Addresses at which that Envoy connects."""
    connections: int = 0
    """Maximum number of open connections of clients; 0: any number."""
    held_limit: int = LIMIT
    """Maximum size of all unfinished messages together, in bytes."""


@frozen
class Outbound:
    """The side of the upstreams."""

    credentials: Mapping[str, WriteCredential] | None = None
    """Write credentials of memory stores, by listener."""
    trust: Path | None = None
    """PEM file of the authorities of upstreams' certificates; None for the public ones."""
    egress: str = ""
    """Path of the socket of an Envoy that forwards requests; empty sends them directly."""


HTTPS_PORT: Final = 443
_FRAMED: Final = HOP | {b"upgrade", b"expect", b"content-length", b"accept-encoding"}
_UNCHANGED: Final = HOP | {b"host", b"content-length"}
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


@frozen
class UpstreamRequest:
    """A judged request on its way."""

    message: HttpRequest
    """The judged request."""
    exchange: Exchange | UnparsedExchange
    data: bytes
    """The bytes for the upstream."""
    place: tuple[str, int]
    tls: ssl.SSLContext | None
    socket: WebSocketSession | None
    """The WebSocket that its answer may open."""
    fresh: bool
    """True for a connection with the certificate of a writer: other requests must not use it."""


class UpstreamRequests:
    """Builder of the requests that go to upstreams.

    Args:
        sockets: opens WebSockets.
        credentials: write credentials of memory stores, by listener.
        trust: PEM file of the authorities of upstreams' certificates.
        egress: True if an Envoy forwards requests.
    """

    def __init__(
        self,
        sockets: WebSocketHandler,
        credentials: Mapping[str, WriteCredential],
        trust: str,
        *,
        egress: bool,
    ) -> None:
        self._sockets = sockets
        self._credentials = credentials
        self._trust = trust
        self._egress = egress
        self._tls: dict[str, ssl.SSLContext] = {}

    def build(
        self,
        server: Listener,
        request: RequestRead,
        message: HttpRequest,
        outcome: Exchange | UnparsedExchange,
    ) -> UpstreamRequest:
        """Return the request for the upstream, without fields of the guard or of one hop."""
        fields, body, target = list(request.fields), request.body, message.target
        if isinstance(outcome, Exchange) and outcome.rewritten is not None:
            instead = outcome.rewritten
            kept = [(n, v) for n, v in fields if n.lower() in _UNCHANGED]
            fields = kept + [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in instead.headers
                if name.encode("latin-1") not in _UNCHANGED and name != "content-encoding"
            ]
            body, target = instead.body, instead.target
        fields = [pair for pair in fields if goes_on(pair[0], server.trusts_forwarded)]
        place, tls = address_of(server), None
        if message.scheme == "https":
            tls = self._context("")
            # Behind a shared edge, a Host of the agent's choosing would reach another tenant.
            host = f"[{place[0]}]" if ":" in place[0] else place[0]
            host = host if place[1] == HTTPS_PORT else f"{host}:{place[1]}"
            fields = [(n, v) for n, v in fields if n.lower() != b"host"]
            fields.insert(0, (b"Host", host.encode("idna" if not host.isascii() else "ascii")))
        if self._egress:
            fields.append((SERVER, server.name.encode("ascii")))
        sized = any(name.lower() == b"content-length" for name, _ in request.fields)
        if body or request.method in _WITH_BODY or sized:
            fields.append((b"Content-Length", str(len(body)).encode()))
        # The answer is read too: ask for one the guard never has to decompress.
        fields.append((b"Accept-Encoding", b"identity"))
        socket = None
        if request.opens_socket and isinstance(outcome, Exchange):
            socket = self._sockets.opened(outcome, message.url, message.host)
            fields += [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
            # What is compressed for the upstream would not be what is judged.
            fields = [(n, v) for n, v in fields if n.lower() != b"sec-websocket-extensions"]
        fresh = False
        credential = self._credentials.get(message.server)
        if credential is not None and isinstance(outcome, Exchange) and outcome.is_write:
            target, fields, file = _with_credential(credential, target, fields, place)
            fresh = bool(file)
            tls = self._context(file) if file and tls is not None else tls
        data = head_bytes(f"{request.method} {target} HTTP/1.1", fields) + body
        return UpstreamRequest(message, outcome, data, place, tls, socket, fresh=fresh)

    def _context(self, certificate: str) -> ssl.SSLContext:
        """Return the TLS context for upstreams, with the certificate of a writer if it has one."""
        made = self._tls.get(certificate)
        if made is None:
            made = self._tls[certificate] = upstream_tls(self._trust, certificate)
        return made


@lru_cache(maxsize=NAMES_REMEMBERED)
def goes_on(name: bytes, trusts_forwarded: bool) -> bool:  # noqa: FBT001  (one key of the cache)
    """Return whether a field of a request goes to the upstream as it came."""
    return name.lower() not in _FRAMED and is_sent_on(name, trusts_forwarded=trusts_forwarded)


def client_request(
    client: ClientConnection, server: Listener, request: RequestRead, front: Fronted | None = None
) -> HttpRequest:
    """Return a request as far as it is known before its content coding is undone."""
    front = front or client.shown
    scheme, authority = origin_of(server.upstream)
    headers = [(field_name(n), v.decode("latin-1")) for n, v in request.fields]
    return HttpRequest(
        method=request.method,
        scheme=scheme,
        host=authority,
        target=request.target,
        headers=tuple(headers),
        body=b"" if "content-encoding" in dict(headers) else request.body,
        server=f"{DECIDE}:{server.name}"
        if server.name
        else "{}:{}{}".format(*client.sockname, server.route),
        connection=front.connection or client.id,
        secure=front.secure,
        certificates=front.certificates,
    )


@lru_cache(maxsize=ADDRESSES)
def origin_of(upstream: str) -> tuple[str, str]:
    """Return scheme and authority (``host:port``) of an upstream's URL."""
    host, port = address_in(upstream)
    return urlsplit(upstream).scheme, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _with_credential(
    credential: WriteCredential,
    target: str,
    fields: list[tuple[bytes, bytes]],
    place: tuple[str, int],
) -> tuple[str, list[tuple[bytes, bytes]], str]:
    """Give a committed memory write what its store asks for: target, fields, certificate file."""
    if not credential.is_for(*place):
        return target, fields, ""
    if credential.certificate is not None:
        return target, fields, credential.certificate.file
    if not credential.header:
        return credential.target(target), fields, ""
    name = credential.header.encode("latin-1")
    kept = [(n, v) for n, v in fields if n.lower() != name]
    return target, [*kept, (name, credential.value.encode("latin-1"))], ""
