"""An upstream that sends exactly what a test tells it, when it is told, and a client to match."""

import queue
import socket
from contextlib import suppress

from tests.e2e.raw_server import PATIENCE, RawServer, whole_request

_OPEN = []
EVENT_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
)


class Exchange:
    """One request that has arrived, and the hand that answers it."""

    def __init__(self, connection, request):
        self.connection = connection
        self.request = request

    def head(self, extra=b""):
        """Start a chunked stream of events."""
        self.connection.sendall(EVENT_STREAM + extra + b"\r\n")

    def chunk(self, data):
        """Send one chunk."""
        self.connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self):
        """End the chunked body."""
        self.connection.sendall(b"0\r\n\r\n")

    def is_gone(self):
        """Wait until the other side has closed and return True."""
        self.connection.settimeout(PATIENCE)
        with suppress(ConnectionResetError):
            return self.connection.recv(1) == b""
        return True


class ControlledUpstream(RawServer):
    """Hands each request to the test, which answers it."""

    def __init__(self):
        self.received = bytearray()
        self._arrived = queue.Queue()
        super().__init__()

    def _serve(self, client):
        """Read one request; what follows on the connection is the test's to read."""
        buffer = b""
        while (request := whole_request(buffer)) is None:
            if not (data := client.recv(65536)):
                return
            buffer += data
            self.received += data
        self._arrived.put(Exchange(client, request))
        self.ended.wait()

    def next(self):
        """Return the next request."""
        return self._arrived.get(timeout=PATIENCE)


class StreamClient:
    """Sends raw bytes and reads what comes, as far as the test asks."""

    def __init__(self, port, data):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        _OPEN.append(self.socket)
        self.socket.sendall(data)
        self.received = b""

    def until(self, wanted):
        """Read until the wanted bytes have come and return everything so far."""
        while wanted not in self.received:
            data = self.socket.recv(65536)
            if not data:
                raise AssertionError(f"the stream ended before {wanted!r}: {self.received!r}")
            self.received += data
        return self.received

    def rest(self):
        """Read until the other side closes and return everything."""
        with suppress(ConnectionResetError):
            while data := self.socket.recv(65536):
                self.received += data
        return self.received

    def close(self):
        """Leave."""
        self.socket.close()


def close_all():
    """Close every client's socket."""
    while _OPEN:
        _OPEN.pop().close()


def body_of(raw):
    """Return the body of a chunked response, as far as it came."""
    _, _, rest = raw.partition(b"\r\n\r\n")
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size or b"0", 16)
        if length == 0:
            break
        body, rest = body + rest[:length], rest[length + 2 :]
    return body
