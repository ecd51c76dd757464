"""Credentials and requests of the agents that benches script."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from pathlib import Path

    from guard.core.model import Json

_LENGTH: Final = re.compile(rb"(?i)content-length: *(\d+)")


def write_credentials(path: Path, secrets: Mapping[str, str]) -> Path:
    """Write the secrets of principals as a guard reads them; return the file."""
    digests = {name: hashlib.sha256(secret.encode()) for name, secret in secrets.items()}
    lines = (f'{name} = "{digest.hexdigest()}"\n' for name, digest in digests.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def shown(secret: str, session: str) -> dict[str, str]:
    """Return the headers by which an agent shows its secret and its session."""
    return {"proxy-authorization": f"Bearer {secret}", "x-guard-session": session}


def call_body(tool: str, arguments: Mapping[str, Json], identifier: Json = 1) -> bytes:
    """Return a call of a tool as JSON-RPC."""
    params = {"name": tool, "arguments": dict(arguments)}
    message = {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}
    return json.dumps(message).encode()


def post(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a request as it goes over the wire."""
    fields = {"host": "127.0.0.1", "content-type": "application/json", **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    head = f"POST {path} HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def exchanged(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[bytes, bytes]:
    """Send a request on an open connection; return the head and the body of its answer."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head, await reader.readexactly(int(length[1]) if length else 0)
