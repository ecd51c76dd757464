"""A client that speaks HTTP/3, one connection for each request."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamReset

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 30.0


@dataclass
class Answer:
    """What has come of an answer."""

    status: int = 0
    body: bytearray = field(default_factory=bytearray)
    has_ended: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, wanted: bytes) -> None:
        """Wait until the wanted bytes have come."""
        while wanted not in self.body and not self.has_ended:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), PATIENCE)

    async def end(self) -> None:
        """Wait for all of it."""
        while not self.has_ended:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), PATIENCE)


class _Http3(QuicConnectionProtocol):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._http = H3Connection(self._quic)
        self._answers: dict[int, Answer] = {}

    def post(self, authority: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Send a request and return its answer, which is yet to come."""
        stream = self._quic.get_next_available_stream_id()
        lines = {":method": "POST", ":scheme": "https", ":authority": authority, ":path": "/mcp"}
        lines |= {"content-type": "application/json", **headers}
        self._http.send_headers(stream, [(k.encode(), v.encode()) for k, v in lines.items()])
        self._http.send_data(stream, body, end_stream=True)
        answer = self._answers[stream] = Answer()
        self.transmit()
        return answer

    def quic_event_received(self, event: QuicEvent) -> None:
        """Take what came."""
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            for answer in self._answers.values():
                answer.has_ended = True
                answer.news.set()
        for http in self._http.handle_event(event):
            answer = self._answers[http.stream_id]  # type: ignore[attr-defined]
            if isinstance(http, HeadersReceived):
                answer.status = int(dict(http.headers)[b":status"])
            if isinstance(http, DataReceived):
                answer.body += http.data
            answer.has_ended = answer.has_ended or http.stream_ended  # type: ignore[attr-defined]
            answer.news.set()


def connecting(port: int, trust: Path, chain: Path | None = None) -> Any:
    """Return a context manager of a connection.

    Args:
        port: of loopback.
        trust: PEM of the server's authority.
        chain: PEM of a certificate and key of the client.
    """
    options = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
    options.verify_mode = ssl.CERT_REQUIRED
    options.load_verify_locations(cafile=str(trust))
    if chain is not None:
        options.load_cert_chain(chain)
    return connect("127.0.0.1", port, configuration=options, create_protocol=_Http3)
