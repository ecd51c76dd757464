"""What is no request: messages of WebSockets; and raw bytes, datagrams, names, all refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from mitmproxy import dns, tcp, udp

    from guard.adapters.mitm.layers import GuardUnreadableHook
    from guard.adapters.mitm.websocket_layer import GuardFrameHook
    from guard.core.ports import Metrics
    from guard.enforcement.handlers import Enforcement
    from guard.enforcement.websocket_messages import WebSocketSession

SOCKET: Final = "guard.socket"
"""Where a flow's metadata has its open WebSocket."""


class RawAddon:
    """Hooks of WebSockets, and of layers that should never be built: nothing passes those.

    Args:
        enforcement: judges messages and records refusals.
        metrics: for what fails outside it.
    """

    def __init__(self, enforcement: Enforcement, metrics: Metrics) -> None:
        self._enforcement = enforcement
        self._metrics = metrics

    async def guard_unreadable(self, hook: GuardUnreadableHook) -> None:
        """Record a request head that could not be parsed; mitmproxy answers 400 and closes."""
        try:
            self._enforcement.requests.refuse(MessageError("bad_http", hook.message))
        except Exception:  # noqa: BLE001  (mitmproxy would only log it)
            self._metrics.error("hook")

    async def guard_frame(self, hook: GuardFrameHook) -> None:
        """Judge a message of a WebSocket; whatever fails here releases nothing."""
        try:
            socket: WebSocketSession | None = hook.flow.metadata.get(SOCKET)
            sockets = self._enforcement.sockets
            if socket is None or hook.oversize:
                code = "upgrade" if socket is None else "body_too_large"
                sockets.refuse(code, "a message of a websocket is not accepted", socket)
            elif hook.from_client:
                hook.release = await sockets.from_client(socket, hook.content)
            else:
                hook.release = await sockets.from_server(socket, hook.content)
        except Exception:  # noqa: BLE001  (mitmproxy would only log it)
            self._metrics.error("hook")

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """Blank raw bytes; killing the flow alone does not stop them."""
        for message in flow.messages:
            message.content = b""
        self._refuse("raw_tcp", "raw tcp is not accepted")

    def udp_message(self, flow: udp.UDPFlow) -> None:
        """Blank raw datagrams."""
        for message in flow.messages:
            message.content = b""
        self._refuse("raw_udp", "raw udp is not accepted")

    def dns_request(self, flow: dns.DNSFlow) -> None:
        """Refuse names: a query is a message to whoever serves the zone."""
        self._refuse("dns", "dns is not accepted")
        if flow.live:
            flow.kill()

    def _refuse(self, code: str, message: str) -> None:
        self._enforcement.requests.refuse(MessageError(code, message, status=403))
