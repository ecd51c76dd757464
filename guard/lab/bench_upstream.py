"""An upstream that does nothing but answer: what a benchmark measures must be the proxy.

``python -m guard.lab.bench_upstream [CHAIN]`` prints its port and serves, over TLS where a chain
file is named, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from typing import Final

_BODY: Final = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "sent"}]}}
).encode()
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_BODY), _BODY)
)


class Responder(asyncio.Protocol):
    """Answers every complete request with the same bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer as many requests as are complete."""
        self._buffer += data
        while True:
            head, blank, rest = self._buffer.partition(b"\r\n\r\n")
            if not blank:
                return
            _, found, length = head.lower().partition(b"content-length:")
            size = int(length.split(b"\r\n", 1)[0]) if found else 0
            if len(rest) < size:
                return
            self._buffer = rest[size:]
            self._transport.write(ANSWER)


async def main() -> None:
    """Serve on a free port of the loopback interface."""
    loop = asyncio.get_running_loop()
    context = None
    if sys.argv[1:]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(sys.argv[1])
    server = await loop.create_server(Responder, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
