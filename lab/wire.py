"""Credentials, requests and calls of the agents that benches script."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

import httpx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guard.core.model import Json

_LENGTH: Final = re.compile(rb"(?i)content-length: *(\d+)")


def secret_of(principal: str) -> str:
    """Return the secret of a principal."""
    return f"secret of {principal}"


def credentials(directory: Path, *principals: str, file: str = "agents.toml") -> tuple[str, str]:
    """Write the secrets of principals; return the option that gives them to a guard."""
    digests = {name: hashlib.sha256(secret_of(name).encode()).hexdigest() for name in principals}
    path = directory / file
    path.write_text("".join(f'{name} = "{digest}"\n' for name, digest in digests.items()), "utf-8")
    return "--credentials", str(path)


def shown(principal: str, session: str) -> dict[str, str]:
    """Return the headers by which an agent shows its secret and its session."""
    return {"proxy-authorization": f"Bearer {secret_of(principal)}", "x-guard-session": session}


class Wire:
    """Calls of agents through a guard, as MCP over HTTP.

    Args:
        port: the guard's.
    """

    def __init__(self, port: int) -> None:
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False
        )

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
                **shown(agent, session),
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


def body_length(head: bytes) -> int:
    """Return the length of a body by its head; 0 where the head does not tell."""
    length = _LENGTH.search(head)
    return int(length[1]) if length else 0


class Connection:
    """One connection to a port of loopback, opened anew after a failure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer: asyncio.StreamWriter | None = None

    async def exchange(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request; return the head and the body of its answer.

        Raises:
            OSError: the connection failed.
            EOFError: it ended.
        """
        try:
            if self._writer is None:
                made = await asyncio.open_connection("127.0.0.1", self._port)
                self._reader, self._writer = made
            self._writer.write(request)
            head = await self._reader.readuntil(b"\r\n\r\n")
            return head, await self._reader.readexactly(body_length(head))
        except BaseException:  # A cancelled call leaves an answer that belongs to no later one.
            self.close()
            raise

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


def percentile(values: Sequence[float], at: float) -> float | None:
    """Return the value that so many hundredths of some values do not exceed; None of none."""
    return sorted(values)[min(int(len(values) * at / 100), len(values) - 1)] if values else None
