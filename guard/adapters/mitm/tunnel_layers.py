"""What may follow a ``CONNECT``: TLS, HTTP in it or without it, and nothing else.

mitmproxy's own choice would also open DNS and raw layers, by port and by first bytes.  Here what is
neither TLS nor HTTP meets the HTTP parser, which refuses it before any upstream is connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy.addons.next_layer import NeedsMoreData, NextLayer
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy.layers import ClientTLSLayer, HttpLayer, ServerTLSLayer, TCPLayer
from mitmproxy.proxy.layers.http import HTTPMode

from guard.destinations.hosts import canonical_host

if TYPE_CHECKING:
    from collections.abc import Callable

    from mitmproxy.proxy.context import Context
    from mitmproxy.proxy.layer import Layer

    from guard.adapters.mitm.tunnels import Tunnel

TLS_RECORD_HEAD = 3


class TunnelNextLayer(NextLayer):
    """Chooses the layer inside a tunnel.

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
