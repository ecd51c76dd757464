"""A stand-in for the internet in `guard lab eval egress-bench`: every host, on one port.

It is the next proxy of the guard's forward listener, and the upstream of its reverse listener.  It
keeps what reaches it, and answers what a case wants answered.  For cases over standard input and
output, ``python -m lab.egress_world SCRIPT SEEN`` is an MCP server: the script is a JSON list
of results, given to the requests in order (``initialize`` apart); what reaches it goes to the
second file.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from mitmproxy.certs import CertStore

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of RFC 6455."""
_NAME: Final = 63
DONE: Final[dict[str, Any]] = {"content": [{"type": "text", "text": "done"}]}


@dataclass(slots=True)
class Script:
    """The scripted answers for the case that runs."""

    body: bytes = b'{"status":"ok"}'
    """Answers requests."""
    media: str = "application/json"
    seen: list[bytes] = field(default_factory=list)
    """Requests, head and body, and the payloads of WebSocket frames, in order of arrival."""


class World:
    """Serves while it is entered.

    Args:
        directory: for certificates; private.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._store = CertStore.from_store(directory, "world", 2048)
        self.authority = directory / "world-ca-cert.pem"
        self.script = Script()
        self.port = 0
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._speak(reader, writer)
        except (OSError, EOFError, ValueError, ssl.SSLError):
            pass  # A client that is gone: what it sent has been kept.
        finally:
            writer.close()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"CONNECT "):
            host = head.split(b" ", 2)[1].rpartition(b":")[0].decode().strip("[]")
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            await writer.start_tls(self._context(host))
            head = await reader.readuntil(b"\r\n\r\n")
        fields = _fields(head)
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        self.script.seen.append(head + body)
        if fields.get("upgrade", "").lower() == "websocket":
            await self._frames(reader, writer, fields)
            return
        answer = _with_id(self.script.body, body)
        lines = f"content-type: {self.script.media}\r\ncontent-length: {len(answer)}\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{lines}connection: close\r\n\r\n".encode() + answer)
        await writer.drain()

    async def _frames(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fields: dict[str, str]
    ) -> None:
        key = fields.get("sec-websocket-key", "")
        digest = hashlib.sha1((key + _GUID).encode(), usedforsecurity=False).digest()
        accept = base64.b64encode(digest).decode()
        lines = f"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: {accept}\r\n"
        writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode())
        while True:
            opcode, payload = await read_frame(reader)
            if opcode == CLOSE:
                return
            self.script.seen.append(payload)

    def _context(self, host: str) -> ssl.SSLContext:
        """Return the context of a host, with a certificate for its name."""
        if host not in self._contexts:
            entry = self._store.get_cert(host[:_NAME], [_general_name(host)], None)
            key = entry.privatekey.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            chain = self._directory / f"{hashlib.sha256(host.encode()).hexdigest()}.pem"
            chain.write_bytes(key + entry.cert.to_pem())
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(chain)
            self._contexts[host] = context
        return self._contexts[host]


CLOSE: Final = 8


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return opcode and payload of one WebSocket frame (RFC 6455)."""
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    elif size == 127:
        size = int.from_bytes(await reader.readexactly(8), "big")
    mask = await reader.readexactly(4) if second & 0x80 else b"\0\0\0\0"
    payload = await reader.readexactly(size)
    return first & 0x0F, bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))


def _general_name(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ip_address(host))
    try:
        name = host.encode("idna").decode() if not host.isascii() else host
        return x509.DNSName(name)
    except (UnicodeError, ValueError):
        return x509.DNSName("unnamed.invalid")


def _fields(head: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        found[name.strip().lower()] = value.strip()
    return found


def _with_id(answer: bytes, asked: bytes) -> bytes:
    """Return the answer, as a JSON-RPC response where a JSON-RPC request asked."""
    try:
        message = json.loads(asked)
        identifier, _ = message["id"], message["jsonrpc"]
    except (ValueError, TypeError, KeyError):
        return answer
    try:
        result = json.loads(answer)
    except ValueError:
        result = answer.decode("utf-8", "replace")
    if not isinstance(result, dict) or not result.keys() & {"content", "tools"}:
        result = DONE
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result}).encode()


def main(script: Path, seen: Path) -> None:
    """Answer until standard input ends."""
    results = iter(json.loads(script.read_text(encoding="utf-8")))
    with seen.open("a", encoding="utf-8") as kept:
        for line in sys.stdin:
            kept.write(line)
            kept.flush()
            asked = json.loads(line)
            if "id" not in asked or "method" not in asked:
                continue
            result = DONE
            if asked["method"] == "initialize":
                version = asked["params"]["protocolVersion"]
                about = {"name": "scripted", "version": "1"}
                result = {"protocolVersion": version, "capabilities": {}, "serverInfo": about}
            else:
                result = next(results, DONE)
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
