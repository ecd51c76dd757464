"""A server of raw bytes whose connections and threads all end with it, and a client to match."""

import re
import socket
import threading
from contextlib import suppress

PATIENCE = 120.0
"""How long a test waits before something is said to hang; nothing is measured by it."""

_LENGTH = re.compile(rb"(?i)\r\ncontent-length:\s*(\d+)")


class RawServer:
    """Accepts connections and serves each in a thread of its own; derived classes say how.

    No connection is left to the garbage collector, whose warning would fail whichever test runs
    then, and a peer that leaves in the middle ends its own thread only.

    Args:
        listener: a listening socket; one on a port of loopback if None.
    """

    def __init__(self, listener=None):
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        name = self._listener.getsockname()
        self.port = name[1] if isinstance(name, tuple) else 0
        self._serving = {}
        self.ended = threading.Event()
        """Set at the end, for a thread that waits for something else than its client."""
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._run, args=(client,), daemon=True)
                self._serving[thread] = client
                thread.start()

    def _run(self, client):
        try:
            with suppress(OSError), self._begun(client) as begun:
                self._serving[threading.current_thread()] = begun
                self._serve(begun)
        finally:
            del self._serving[threading.current_thread()]

    def _begun(self, client):
        """Return the connection as it is served."""
        return client

    def _serve(self, client):
        """Serve one connection, which is closed afterwards; an ``OSError`` ends it."""
        raise NotImplementedError

    def close(self):
        """Stop accepting, and end every connection and thread."""
        self.ended.set()
        _wake(self._listener)
        self._acceptor.join(PATIENCE)
        self._listener.close()
        for thread, client in list(self._serving.items()):
            _wake(client)
            thread.join(PATIENCE)


def _wake(waiting):
    """End a socket under the thread that waits in its ``accept``, ``recv`` or ``sendall``."""
    with suppress(OSError):
        # Not that of a TLS socket, which forgets its state while the thread uses it.
        socket.socket.shutdown(waiting, socket.SHUT_RDWR)


class RawClient:
    """A connection to a port of loopback, byte by byte."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)

    def ask(self, data):
        """Send bytes; return one whole answer, or what came before the connection ended."""
        found = b""
        with suppress(OSError):
            self.socket.sendall(data)
            while more := self.socket.recv(65536):
                found += more
                head, blank, rest = found.partition(b"\r\n\r\n")
                match = _LENGTH.search(head)
                if blank and match and len(rest) >= int(match[1]):
                    break
        return found

    def head(self):
        """Read to the blank line, no further."""
        found = b""
        with suppress(OSError):
            while not found.endswith(b"\r\n\r\n") and (byte := self.socket.recv(1)):
                found += byte
        return found

    def close(self):
        """Hang up."""
        self.socket.close()


def whole_request(buffer):
    """Return the first request in what has come so far, None while it is not whole."""
    head, blank, rest = buffer.partition(b"\r\n\r\n")
    if not blank:
        return None
    match = _LENGTH.search(head)
    size = int(match[1]) if match else 0
    return head + blank + rest[:size] if len(rest) >= size else None
