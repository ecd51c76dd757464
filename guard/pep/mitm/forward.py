"""Forward listeners: who may open a tunnel, its permitted protocols and destinations.

A tunnel is opened for nothing but TLS and HTTP.  Its TLS ends here, and every request in it is
judged like any other; until one is allowed no name is resolved and no upstream is connected.
Where the policy says ``egress.passthrough``, TLS for that very host is not opened, and the tunnel
itself is judged as one ``http.connect`` call.

Names are resolved here, once, and the address that was checked is the one that is connected to.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from mitmproxy.net.http.url import parse_authority
from mitmproxy.proxy.mode_specs import RegularMode, UpstreamMode

from guard.core.errors import MessageError
from guard.core.metrics import ERRORS, Metrics
from guard.core.model import Destination
from guard.core.network_addresses import refused_address
from guard.pep.mitm.translation import answer, outline, read_request
from guard.pipeline.exchange import Exchange, MessageRoute
from guard.protocols.http.message import PROXY_CREDENTIAL, SESSION_HEADER, HttpReply, HttpRequest
from guard.values.canonical import canonical_host, is_ip

if TYPE_CHECKING:
    from collections.abc import Callable

    from mitmproxy import http
    from mitmproxy.connection import Client
    from mitmproxy.proxy.server_hooks import ServerConnectionHookData
    from mitmproxy.tls import TlsData

    from guard.core.policy import EgressLimits
    from guard.pipeline.handlers import Enforcement

HTTPS_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Tunnel:
    """An accepted ``CONNECT``."""

    host: str
    """Canonical."""
    port: int
    opaque: bool
    """TLS for this host passes unopened."""
    headers: tuple[tuple[str, str], ...]
    """Headers that the requests inside inherit."""
    certificates: tuple[bytes, ...]
    """Certificates from the client's handshake with the proxy; a handshake inside the tunnel does
    not replace them."""


def names_host(authority: str, host: Destination, port: int, scheme: str) -> bool:
    """Return whether an authority as written names this host and port."""
    try:
        name, stated = parse_authority(authority, check=True)
    except ValueError:
        return False
    default = HTTPS_PORT if scheme == "https" else 80
    canonical = canonical_host(f"[{name}]" if ":" in name else name)
    return canonical == host.host and (stated or default) == port


NOT_CONNECTED: Final = "refused by the egress guard"
"""Begins the error of every connection that the guard did not open."""
RESOLVE_SECONDS: Final = 5.0
NAME_SECONDS: Final = 60.0
NAMES: Final = 4096
"""Number of names that are kept, for ``NAME_SECONDS``, for a further proxy to resolve."""
INHERITED: Final = (PROXY_CREDENTIAL, SESSION_HEADER)
"""Headers of a ``CONNECT`` that hold for the requests in its tunnel."""


class ForwardAddon:
    """Hooks of forward listeners: requests, tunnels and connections.

    Args:
        enforcement: judges tunnels that pass through, and records refusals.
        metrics: for what fails outside it.
        egress: the limits of the policy in force.
        authorization: ``Proxy-Authorization`` for the next proxy, if it wants one.
    """

    def __init__(
        self,
        enforcement: Enforcement,
        metrics: Metrics,
        egress: Callable[[], EgressLimits],
        authorization: str | None = None,
    ) -> None:
        self._enforcement = enforcement
        self._metrics = metrics
        self._egress = egress
        self._authorization = authorization
        self._tunnels: dict[str, Tunnel] = {}
        self.refused: dict[tuple[str, str, int], tuple[MessageError, str]] = {}
        """Why connections to upstreams were not opened, and the decision id, by connection."""
        self.principals: dict[str, str] = {}
        """Principal of the last request on each client connection."""
        self._named: dict[str, tuple[str, int]] = {}
        self._resolved: dict[tuple[str, int], tuple[float, list[str]]] = {}

    def tunnel(self, client: str) -> Tunnel | None:
        """Return the tunnel of a client connection."""
        return self._tunnels.get(client)

    # --- requests -----------------------------------------------------------------------------

    def enter(self, flow: http.HTTPFlow, request: HttpRequest) -> HttpRequest:
        """Return a request as it is to be judged: with what its tunnel's ``CONNECT`` proved.

        Raises:
            MessageError: a forward listener must not carry it, in any mode.
        """
        host = self._admitted(flow.request.host, flow.request.port)
        named = [flow.request.authority, *flow.request.headers.get_all("host")]
        tunnel = self._tunnels.get(flow.client_conn.id)
        sni = flow.client_conn.sni
        if tunnel is not None and flow.request.scheme == "https" and sni:
            named.append(f"{sni}:{flow.request.port}")
        for authority in named:
            if authority and not names_host(
                authority, host, flow.request.port, flow.request.scheme
            ):
                raise MessageError(
                    "host_mismatch",
                    "the request names another host than the one it is on its way to",
                    status=421,
                )
        if tunnel is None:
            return replace(request, chosen=True)
        if any(p[0] == PROXY_CREDENTIAL and p not in tunnel.headers for p in request.headers):
            # Whom the guard is told by it was settled when the tunnel was opened.
            raise MessageError(
                "duplicate_header",
                "a request in a tunnel has another `Proxy-Authorization` than the tunnel",
            )
        own = [(name, value) for name, value in request.headers if name not in INHERITED]
        session = [pair for pair in request.headers if pair[0] == SESSION_HEADER]
        inherited = [p for p in tunnel.headers if not session or p[0] != SESSION_HEADER]
        headers = (*own, *session, *inherited)
        return replace(request, headers=headers, certificates=tunnel.certificates, chosen=True)

    def prepare(self, flow: http.HTTPFlow) -> None:
        """Name the judged host, and no other, in a request that goes out."""
        mode, request = flow.client_conn.proxy_mode, flow.request
        host = f"[{request.host}]" if ":" in request.host else request.host
        default = HTTPS_PORT if request.scheme == "https" else 80
        authority = host if request.port == default else f"{host}:{request.port}"
        request.headers["host"] = authority
        # The next proxy needs the absolute form; HTTP/2 has no other way to name the host.
        chained = isinstance(mode, UpstreamMode) and request.scheme == "http"
        if request.is_http2 or chained:
            request.authority = authority
        if chained and self._authorization:
            request.headers["proxy-authorization"] = self._authorization

    async def check_name(self, client: Client, host: str, port: int) -> None:
        """Refuse a name that leads inside, where it is a further proxy that will resolve it.

        Only names that are known here can be told; what is not found is that proxy's to refuse.

        Raises:
            MessageError: an address that the policy does not open.
        """
        if not isinstance(client.proxy_mode, UpstreamMode):
            return
        destination = self._admitted(host, port)
        now = asyncio.get_running_loop().time()
        until, found = self._resolved.get((destination.host, port), (0.0, []))
        if until < now:
            try:
                found = await resolve(destination.host, port)
            except (OSError, TimeoutError, UnicodeError):
                found = []
            if len(self._resolved) >= NAMES:
                self._resolved.clear()
            self._resolved[destination.host, port] = (now + NAME_SECONDS, found)
        for one in found:
            self._check(destination, one)

    def _admitted(self, host: str, port: int) -> Destination:
        """Return the host in canonical form.

        Raises:
            MessageError: it has none, or the policy opens neither port nor address.
        """
        canonical = canonical_host(f"[{host}]" if ":" in host else host)
        if canonical is None:
            raise MessageError("bad_host", "the host can be read in more ways than one")
        limits = self._egress()
        if port not in limits.ports:
            raise MessageError(
                "port", f"port {port} is not among the policy's `egress.ports`", status=403
            )
        destination = Destination("ip" if is_ip(canonical) else "host", canonical, canonical)
        if is_ip(canonical):
            self._check(destination, canonical)
        return destination

    def _check(self, host: Destination, address: str) -> None:
        found = Destination("ip", address, address)
        kind = refused_address(host, found, self._egress().may_be_private)
        if kind is not None:
            raise MessageError(
                "private_address",
                f"the host has a {kind} address that the policy does not open",
                status=403,
            )

    # --- tunnels ------------------------------------------------------------------------------

    async def http_connect(self, flow: http.HTTPFlow) -> None:
        """Accept a tunnel or answer it; mitmproxy opens one where nothing is answered."""
        try:
            reply = await self._connect(flow)
        except MessageError as error:
            reply = self._enforcement.requests.refuse(error, outline(flow))
        except BaseException as error:
            # Also a cancelled task: set the refusal, then let the cancellation go on.
            self._metrics.count(ERRORS, "hook")
            answer(flow, HttpReply(503, "text/plain", b"the guard failed\n"))
            if not isinstance(error, Exception):
                raise
            return
        if reply is not None:
            answer(flow, reply)

    async def _connect(self, flow: http.HTTPFlow) -> HttpReply | None:
        client = flow.client_conn
        if client.id in self._tunnels:
            raise MessageError("connect", "tunnels are not accepted here", status=403)
        request = replace(
            read_request(flow, self._enforcement.body_limit), scheme="https", target="/"
        )
        self._enforcement.credentials.principal(request)
        host = self._admitted(flow.request.host, flow.request.port)
        opaque = self._egress().passes_through(host)
        if opaque:
            outcome = await self._enforcement.requests.on_request(request)
            if isinstance(outcome, HttpReply):
                return outcome
            await self.check_name(client, flow.request.host, flow.request.port)
            # What happens in there is never seen: from here on the call counts as executed.
            if isinstance(outcome, Exchange):
                await self._enforcement.responses.on_answer(outcome, b"")
        inherited = tuple(pair for pair in request.headers if pair[0] in INHERITED)
        shown = request.certificates
        self._tunnels[client.id] = Tunnel(host.host, flow.request.port, opaque, inherited, shown)
        return None

    def http_connect_upstream(self, flow: http.HTTPFlow) -> None:
        """Show the next proxy its credential."""
        if self._authorization:
            flow.request.headers["proxy-authorization"] = self._authorization

    def client_disconnected(self, client: Client) -> None:
        """Forget the tunnel."""
        self._tunnels.pop(client.id, None)
        self.principals.pop(client.id, None)

    def tls_failed_client(self, data: TlsData) -> None:
        """Count a client that broke off the handshake: it may not trust the guard's authority."""
        self._metrics.count(ERRORS, "tls")

    # --- connections to upstreams -------------------------------------------------------------

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Check the address, and pin it; an error set here is a connection that is not opened."""
        if data.server.error:
            return
        try:
            await self._pin(data)
        except MessageError as error:
            # On record even where no request is left that could be answered.
            host, port = (data.server.address or ("", 0))[:2]
            decision_id = self._enforcement.requests.note(
                error, self._place(data.client, host, port)
            )
            self.refused[data.client.id, host, port] = error, decision_id
            data.server.error = f"{NOT_CONNECTED}: {error}"
        except (OSError, TimeoutError, UnicodeError):
            data.server.error = "the name of the upstream cannot be resolved"
        except BaseException as error:
            self._metrics.count(ERRORS, "hook")
            data.server.error = f"{NOT_CONNECTED}: the guard failed"
            if not isinstance(error, Exception):
                raise

    def _place(self, client: Client, host: str, port: int) -> MessageRoute:
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        listener = "{}:{}".format(*client.sockname[:2])
        return MessageRoute(listener, at, self.principals.get(client.id, ""))

    async def _pin(self, data: ServerConnectionHookData) -> None:
        mode, address = data.client.proxy_mode, data.server.address
        asked = address[:2] if address is not None else None
        if isinstance(mode, UpstreamMode) and asked == mode.address:
            return  # the operator named it
        if not isinstance(mode, RegularMode) or address is None:
            raise MessageError(
                "private_address", "this listener connects to one upstream only", status=403
            )
        host = self._admitted(*address[:2])
        found = await resolve(host.host, address[1])
        for one in found:
            self._check(host, one)
        self._named[data.server.id] = (address[0], address[1])
        data.server.address = (found[0], address[1])

    def server_connected(self, data: ServerConnectionHookData) -> None:
        """Call the connection by the name it was asked for, so that it can be used again."""
        if (named := self._named.pop(data.server.id, None)) is not None:
            # mitmproxy forbids a change of address on an open connection; this is the first one.
            vars(data.server)["address"] = named

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """Forget the name of a connection that was not opened."""
        self._named.pop(data.server.id, None)
        if len(self.refused) > NAMES:
            self.refused.pop(next(iter(self.refused)))


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a canonical host, in the order in which to try them.

    Raises:
        OSError: it has none.
        TimeoutError: nobody answered in time.
    """
    if is_ip(host):
        return [host]
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(RESOLVE_SECONDS):
        answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in answers))
