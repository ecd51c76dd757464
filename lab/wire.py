"""Credentials, requests and calls of the agents that benches script."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

import httpx

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


class Wire:
    """Calls of agents through a guard, as MCP over HTTP.

    Args:
        port: the guard's.
        secrets: of the agents, by name.
    """

    def __init__(self, port: int, secrets: Mapping[str, str]) -> None:
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False
        )
        self._secrets = secrets

    def call(
        self, agent: str, session: str, tool: str, arguments: Mapping[str, Json]
    ) -> dict[str, Any]:
        """Call a tool and return its result; an answer without a result is an error.

        Raises:
            httpx.TransportError: the other side is gone.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        return self._ask(agent, session, "tools/call", params)

    def list_tools(self, agent: str, session: str) -> None:
        """List the tools: a store vouches at the server that listed its tools."""
        self._ask(agent, session, "tools/list", {})

    def _ask(self, agent: str, session: str, method: str, params: Json) -> dict[str, Any]:
        answer = self._client.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={
                "accept": "application/json, text/event-stream",
                **shown(self._secrets[agent], session),
            },
        )
        found: dict[str, Any] = answer.json().get("result") or {"isError": True}
        return found

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def is_refused(answer: Mapping[str, Any]) -> bool:
    """Return whether a call failed."""
    return bool(answer.get("isError"))


def reasons_of(answer: Mapping[str, Any]) -> list[str]:
    """Return the codes of a guard's reasons."""
    observed = (answer.get("_meta") or {}).get("guard", {})
    return [reason["code"] for reason in observed.get("reasons", [])]


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
