"""A client that speaks HTTP/3, one connection for each request."""

import asyncio
import ssl

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

PATIENCE = 30.0


class _Http3(QuicConnectionProtocol):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._http = H3Connection(self._quic)
        self.status = 0
        self.body = b""
        self.ended = asyncio.Event()

    def post(self, authority, body, headers):
        """Send the request."""
        stream = self._quic.get_next_available_stream_id()
        lines = {":method": "POST", ":scheme": "https", ":authority": authority, ":path": "/mcp"}
        lines |= {"content-type": "application/json", **headers}
        self._http.send_headers(stream, [(k.encode(), v.encode()) for k, v in lines.items()])
        self._http.send_data(stream, body, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        """Take what came."""
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            self.ended.set()
        for http in self._http.handle_event(event):
            if isinstance(http, HeadersReceived):
                self.status = int(dict(http.headers)[b":status"])
            if isinstance(http, DataReceived):
                self.body += http.data
            if http.stream_ended:
                self.ended.set()


async def post(port, trust, body, headers):
    """Return status and body of the answer to a POST on loopback.

    Args:
        port: of the server.
        trust: PEM of the server's authority.
        body: JSON.
        headers: besides its type.
    """
    options = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost")
    options.verify_mode = ssl.CERT_REQUIRED
    options.load_verify_locations(cafile=str(trust))
    connection = connect("127.0.0.1", port, configuration=options, create_protocol=_Http3)
    async with connection as client:
        client.post(f"localhost:{port}", body, headers)
        await asyncio.wait_for(client.ended.wait(), PATIENCE)
        return client.status, client.body
