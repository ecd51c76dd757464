"""TLS of upstreams, read in the order in which it comes."""

import asyncio
import os
import ssl

from guard.pep.lean.connections import connected, upstream_tls
from tests.e2e.tls_upstream import issue


async def test_tls_records_that_arrive_together_are_read_in_order(tmp_path):
    """Each byte of an answer is the server's, and none is of what was read before."""
    chain = issue(tmp_path / "ca.pem", "127.0.0.1")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain)
    body = os.urandom(200_000)

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=serving)
    place = server.sockets[0].getsockname()[:2]
    async with server, asyncio.timeout(60):
        upstream = await connected(place, upstream_tls(str(tmp_path / "ca.pem")))
        answer = await upstream.ask("GET", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        received = b""
        while piece := await upstream.take(answer):
            received += piece
        upstream.close()

    assert received == body
