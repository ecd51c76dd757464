"""An upstream that sends exactly what a test tells it, when it is told."""

import queue
from contextlib import suppress

from tests.e2e.raw_server import PATIENCE
from tests.e2e.running_guard import Upstream

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


class ControlledUpstream(Upstream):
    """Hands each request to the test, which answers it."""

    def __init__(self):
        self._arrived = queue.Queue()
        super().__init__()

    def _serve(self, client):
        """Read one request; what follows on the connection is the test's to read."""
        for request in self.requests(client):
            self._arrived.put(Exchange(client, request))
            self.ended.wait()

    def next(self):
        """Return the next request."""
        return self._arrived.get(timeout=PATIENCE)
