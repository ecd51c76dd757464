"""mitmproxy in our own process: a master with four of its addons (one of them narrowed), and ours.

Never ``mitmdump -s``: a syntax error saved into a script unloads it and traffic passes.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mitmproxy import options
from mitmproxy.addons import core, proxyserver, tlsconfig
from mitmproxy.addons.next_layer import NeedsMoreData, NextLayer
from mitmproxy.master import Master
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import mode_servers
from mitmproxy.proxy.layers import ClientTLSLayer, HttpLayer, ServerTLSLayer, TCPLayer
from mitmproxy.proxy.layers.http import HTTPMode

from guard.core.errors import GuardError
from guard.pep.message_budget import LIMIT
from guard.pep.mitm import layers
from guard.processes.listening_ports import BACKLOG, Sockets
from guard.values.canonical import canonical_host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import Layer
    from mitmproxy.tls import TlsData

    from guard.pep.mitm.addon import GuardAddon
    from guard.pep.mitm.forward import Tunnel

TLS_RECORD_HEAD: Final = 3


class TunnelNextLayer(NextLayer):
    """Chooses what may follow a ``CONNECT``: TLS, HTTP in it or without it, and nothing else.

    mitmproxy's own choice would also open DNS and raw layers, by port and by first bytes.  Here
    what is neither TLS nor HTTP meets the HTTP parser, which refuses it before any upstream is
    connected.

    Args:
        tunnel: the tunnel of a client connection, by its id.
    """

    def __init__(self, tunnel: Callable[[str], Tunnel | None]) -> None:
        self._tunnel = tunnel

    def _next_layer(self, context: Context, data_client: bytes, data_server: bytes) -> Layer | None:
        first = next(
            (i for i, one in enumerate(context.layers) if isinstance(one, HttpLayer)), None
        )
        tunnel = self._tunnel(context.client.id)
        if first is None or tunnel is None:
            return super()._next_layer(context, data_client, data_server)
        if data_client[:1] in {b"", b"\x16"} and len(data_client) < TLS_RECORD_HEAD:
            raise NeedsMoreData
        inside = context.layers[first:]
        if starts_like_tls_record(data_client) and not any(
            isinstance(one, ClientTLSLayer) for one in inside
        ):
            if tunnel.opaque and self._is_for(tunnel.host, context, data_client):
                return TCPLayer(context, ignore=True)
            server_tls = ServerTLSLayer(context)
            server_tls.child_layer = ClientTLSLayer(context)
            return server_tls
        return HttpLayer(context, HTTPMode.transparent)

    def _is_for(self, host: str, context: Context, data_client: bytes) -> bool:
        """Return whether a TLS handshake asks for the host that the tunnel was judged by."""
        hello = self._get_client_hello(context, data_client)
        return hello is not None and canonical_host(hello.sni or "") == host


_H2_TOO: Final = (b"h2", b"http/1.1")
"""Protocols that an upstream is offered where the client speaks both."""


class GuardedTls(tlsconfig.TlsConfig):
    """mitmproxy's TLS settings, with the guard's own offer to upstreams."""

    def __init__(self) -> None:
        super().__init__()
        self._signing = ThreadPoolExecutor(1, "certificates")

    async def tls_start_client(self, tls_start: TlsData) -> None:  # type: ignore[override]  # mitmproxy awaits it
        """Sign a certificate for a new server name beside the event loop, then use it."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._signing, self.get_cert, tls_start.context)
        super().tls_start_client(tls_start)

    def tls_start_server(self, tls_start: TlsData) -> None:
        """Make the connection.

        mitmproxy would offer the upstream what the client has offered, any words among them.
        """
        offered = tls_start.context.client.alpn_offers
        if offered and not tls_start.conn.alpn_offers:
            tls_start.conn.alpn_offers = _H2_TOO if _H2_TOO[0] in offered else _H2_TOO[1:]
        super().tls_start_server(tls_start)


class GivenSockets:
    """Has mitmproxy serve on sockets that listen already, and on others as it does by itself."""

    by_address: ClassVar[Sockets] = {}
    _listen = staticmethod(mode_servers.AsyncioServerInstance.listen)

    @staticmethod
    async def listen(
        instance: mode_servers.AsyncioServerInstance[Any], host: str, port: int
    ) -> list[Any]:
        """Serve at an address, in the place of mitmproxy's method."""
        given = GivenSockets.by_address.get(f"{host}:{port}")
        if given is None:
            return await GivenSockets._listen(instance, host, port)
        handle = instance.handle_stream
        return [await asyncio.start_server(handle, sock=one, backlog=BACKLOG) for one in given]


class LeanMaster(Master):
    """A master with the addons a guard needs, and no other."""

    def __init__(self, opts: options.Options, addon: GuardAddon) -> None:
        super().__init__(opts)
        layers.install()
        layers.verify()
        self.server = proxyserver.Proxyserver()
        addon.inject = self.server.inject_event
        layers.OUTPUT.principal = lambda client: addon.forward.principals.get(client, "")
        layers.OUTPUT.count = addon.count_slow
        self.addons.add(
            core.Core(),
            self.server,
            TunnelNextLayer(addon.forward.tunnel),
            GuardedTls(),
            addon.forward,
            addon,
        )


def build_master(  # noqa: PLR0913  (the composition root passes every part once, by name)
    addon: GuardAddon,
    modes: Sequence[str],
    *,
    confdir: Path,
    body_limit: int,
    held_limit: int = LIMIT,
    trust: Path | None = None,
    ask_certificates: bool = False,
    sockets: Sockets | None = None,
) -> LeanMaster:
    """Return the master, listening as soon as it runs.

    Args:
        addon: the PEP.
        modes: mitmproxy mode specifications.
        confdir: where mitmproxy keeps its certificate authority; only the guard's user may enter.
        body_limit: bytes of one body.
        held_limit: bytes that are held of all unfinished messages together.
        trust: PEM file of the authorities that upstreams' certificates may come from; None for
            the public ones.
        ask_certificates: ask clients that speak TLS for a certificate; who verifies it is
            :class:`guard.credentials.client_authentication.ClientCertificates`.
        sockets: those that listen already, by ``host:port``.
    """
    opts = options.Options(confdir=str(confdir), mode=list(modes))
    master = LeanMaster(opts, addon)
    layers.BUDGET.limit = held_limit
    layers.OUTPUT.limit = body_limit
    GivenSockets.by_address = sockets or {}
    mode_servers.AsyncioServerInstance.listen = GivenSockets.listen  # type: ignore[method-assign,assignment]
    master.options.update(
        body_size_limit=str(body_limit),
        keep_host_header=True,
        rawtcp=False,
        # Handshakes are refused, and messages wait for their verdict, in the addon.
        websocket=True,
        connection_strategy="lazy",
        stream_large_bodies=None,
        validate_inbound_headers=True,
        request_client_cert=ask_certificates,
        # An upstream's certificate is checked before a byte of a request is sent to it.
        ssl_insecure=False,
        ssl_verify_upstream_trusted_ca=str(trust) if trust else None,
    )
    return master


class MitmPep:
    """The PEP as ``guard run`` starts and ends it.

    Args:
        master: serves.
        addon: judges what is served.
    """

    def __init__(self, master: LeanMaster, addon: GuardAddon) -> None:
        self._master = master
        self._addon = addon
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> list[str]:
        """Listen, and return the addresses.

        Raises:
            GuardError: a listener could not be opened.
        """
        self._running = asyncio.get_running_loop().create_task(self._master.run())
        if not self._master.options.mode:
            return []
        return [f"{host}:{port}" for host, port in await listening(self._master)]

    async def ended(self) -> None:
        """Wait until it has failed as a whole."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def drain(self, seconds: float) -> None:
        """Stop listening, then give the calls in flight their time."""
        self._master.options.update(mode=[])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._addon.idle()

    @property
    def held(self) -> int:
        """Bytes of unfinished messages and of answers that clients have yet to read."""
        return layers.BUDGET.total

    async def close(self) -> None:
        """End every connection."""
        self._master.shutdown()
        if self._running is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._running


async def listening(master: LeanMaster, tries: int = 3000) -> list[tuple[str, int]]:
    """Wait until every listener is bound and return the addresses.

    Raises:
        GuardError: a listener could not be bound.
    """
    for _ in range(tries):
        instances = list(master.server.servers)
        if errors := [i.last_exception for i in instances if i.last_exception]:
            raise GuardError(f"a listener cannot be opened: {errors[0]}")
        if instances and all(i.is_running for i in instances):
            return [a[:2] for i in instances for a in i.listen_addrs]
        await asyncio.sleep(0.01)
    raise GuardError("the listeners did not come up in time")
