"""Certificates for the names that clients ask for are signed beside the event loop."""

import asyncio
import ssl
import threading
from itertools import pairwise
from typing import cast

import pytest
from mitmproxy import certs

from guard.credentials.authority import CERTIFICATE_FILE
from guard.pep.lean import client_tls
from guard.pep.lean.client_tls import ClientTls

NAMES = [f"host{number}.example.com" for number in range(12)]


@pytest.fixture
def signers(monkeypatch):
    """Return the thread of each certificate that is signed."""
    found = []
    sign = certs.dummy_cert

    def signed(*given):
        found.append(threading.current_thread())
        return sign(*given)

    monkeypatch.setattr(certs, "dummy_cert", signed)
    return found


def _beside(signers):
    return threading.current_thread() not in signers and len(set(signers)) == 1


class Reverse(asyncio.Protocol):
    """Connection to a reverse listener with TLS."""

    def __init__(self, tls, *, drips=False):
        self.tls = tls
        self.drips = drips

    def connection_made(self, transport):
        """Remember the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data):
        """Begin a handshake whose first message arrives in parts."""
        client = cast("asyncio.BufferedProtocol", asyncio.Protocol())
        done = self.tls.begin(client, self.transport, data[:1], "127.0.0.1")
        done.add_done_callback(lambda done: done.cancelled() or done.exception())
        hello = cast("asyncio.Protocol", self.transport.get_protocol())
        cuts = range(2, len(data)) if self.drips else (70,)
        for start, end in pairwise((1, *cuts, len(data))):
            hello.data_received(data[start:end])


async def test_a_reverse_listener_signs_one_certificate_for_each_name(tmp_path, signers):
    """Also for a client that names none."""
    tls = ClientTls(tmp_path, ())
    signers.clear()
    server = await asyncio.get_running_loop().create_server(lambda: Reverse(tls), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    trust = ssl.create_default_context(cafile=str(tmp_path / CERTIFICATE_FILE))
    for name in (*NAMES, *NAMES, "127.0.0.1"):
        _, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname=name)
        writer.close()
    assert len(signers) == len(NAMES) + 1
    assert _beside(signers)
    server.close()


async def test_a_first_message_that_drips_is_read_a_few_times(tmp_path, monkeypatch):
    """Each read parses all of it, so a client may not have it read for every byte."""
    read = []

    def parsed(data):
        read.append(len(data))

    monkeypatch.setattr(client_tls, "parse_client_hello", parsed)
    server = await asyncio.get_running_loop().create_server(
        lambda: Reverse(ClientTls(tmp_path, ()), drips=True), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"\x16\x03\x01" + bytes(200))
    writer.write_eof()
    await reader.read()
    assert 0 < len(read) < 20
    writer.close()
    server.close()
