"""How a case of agent-egress-bench travels: one road per transport, all through a running guard.

Every road ends in an :class:`Outcome` that says what crossed: whether the request reached the
world, and whether the answer reached the agent.  A road that breaks for another reason than the
guard's refusal is an error, and counts for neither side.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.lab.egress_wire import (
    Case,
    Outcome,
    ascii_url,
    authority_of,
    cards_in,
    eliciting,
    frame_bytes,
    judged,
    media_of,
    outcome_of,
    payload_bytes,
    proof,
    read_answer,
    server_name,
)
from guard.lab.egress_world import CLOSE, DONE, Script, World

if TYPE_CHECKING:
    from pathlib import Path

SECONDS: Final = 15.0
"""A road may take; a guard that answers nothing has not refused."""
NAME: Final = 12
"""Characters of a case's secret that name its servers."""
VERSION: Final = "2025-11-25"
_QUIET: Final = 0.5
"""Seconds after the last frame in which an answer or the end of the connection is awaited."""


@dataclass(frozen=True, slots=True)
class Roads:
    """Where the running guard listens, and what its clients need."""

    world: World
    forward: int
    reverse: int
    decisions: Path
    policy: Path
    authority: Path
    """Certificate of the guard's own authority."""
    directory: Path

    async def travel(self, case: Case, secret: str) -> Outcome:
        """Send a case by the road it names.

        Args:
            case: as in the benchmark's file.
            secret: proxy secret of a principal that no other case uses.
        """
        self.world.script = Script()
        kind = str(case["input_type"])
        try:
            async with asyncio.timeout(SECONDS):
                if kind.startswith("mcp_"):
                    return await self._mcp(case, secret)
                if kind == "websocket_frame":
                    return await self._socket(case["payload"], secret)
                if kind == "a2a_message":
                    return await self._messages(case["payload"], secret)
                if kind == "a2a_agent_card":
                    return await self._card(case["payload"], secret)
                return await self._web(case, secret)
        except (OSError, EOFError, ValueError, ssl.SSLError, TimeoutError) as error:
            return Outcome(blocked=False, error=f"{type(error).__name__}: {error}"[:200])

    # --- the web ------------------------------------------------------------------------------

    async def _web(self, case: Case, secret: str) -> Outcome:
        payload = case["payload"]
        served = payload.get("response_body")
        if served is not None:
            media = payload.get("content_type", media_of(served))
            self.world.script = Script(str(served).encode(), media)
        headers = {str(k): str(v) for k, v in payload.get("headers", {}).items()}
        body = payload_bytes(payload, "body")
        if body and "content_type" in payload and served is None:
            headers["Content-Type"] = str(payload["content_type"])
        status, answer = await self._ask(payload, headers, body, secret)
        reached = bool(self.world.script.seen)
        if served is None:
            return outcome_of(status, answer, crossed=reached)
        return outcome_of(status, answer, crossed=answer == str(served).encode())

    async def _ask(
        self, payload: Case, headers: dict[str, str], body: bytes, secret: str
    ) -> tuple[int, bytes]:
        """Send a request as an HTTP client with a proxy does; return status and body."""
        url, method = ascii_url(str(payload["url"])), str(payload.get("method", "GET"))
        reader, writer, target, refusal = await self._open(url, secret)
        if refusal is not None:
            return refusal
        given = {name.lower() for name in headers}
        lines = [f"{method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if "host" not in given:
            lines.append(f"Host: {authority_of(url)}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        lines += [*proof(secret), "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()
        answer = await read_answer(reader)
        writer.close()
        return answer

    async def _open(
        self, url: str, secret: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str, tuple[int, bytes] | None]:
        """Return streams to where a URL leads through the guard, and what to ask there."""
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.forward)
        if parts.scheme in {"http", "ws"}:
            return reader, writer, url.replace("ws://", "http://", 1), None
        authority = authority_of(url)
        name = authority if ":" in authority.rpartition("]")[2] else f"{authority}:443"
        head = [f"CONNECT {name} HTTP/1.1", f"Host: {name}", *proof(secret), "", ""]
        writer.write("\r\n".join(head).encode())
        status, refusal = await read_answer(reader, bodiless=200)
        if status != 200:
            return reader, writer, "", (status, refusal)
        context = ssl.create_default_context(cafile=str(self.authority))
        # Names in the cases are sometimes no names; whose certificate it is, the authority says.
        context.check_hostname = False
        await writer.start_tls(context, server_hostname=server_name(parts.hostname or ""))
        target = parts.path or "/"
        return reader, writer, f"{target}?{parts.query}" if parts.query else target, None

    # --- WebSocket ----------------------------------------------------------------------------

    async def _socket(self, payload: Case, secret: str) -> Outcome:
        reader, writer, target, refusal = await self._open(ascii_url(str(payload["url"])), secret)
        if refusal is not None:
            return outcome_of(*refusal, crossed=False)
        key = base64.b64encode(os.urandom(16)).decode()
        head = [f"GET {target} HTTP/1.1", f"Host: {authority_of(str(payload['url']))}"]
        head += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
        if any(frame.get("rsv1") for frame in payload["frames"]):
            head.append("Sec-WebSocket-Extensions: permessage-deflate")
        head += [f"Sec-WebSocket-Key: {key}", *proof(secret), "", ""]
        writer.write("\r\n".join(head).encode())
        status, answer = await read_answer(reader, bodiless=101)
        if status != 101:
            return outcome_of(status, answer, crossed=False)
        told = b""
        with suppress(OSError, EOFError, TimeoutError, ssl.SSLError):
            for frame in payload["frames"]:
                writer.write(frame_bytes(frame))
                await writer.drain()
            async with asyncio.timeout(_QUIET):
                told = await reader.read(4096)
        writer.close()
        seen = b"".join(self.world.script.seen[1:])
        sent = b"".join(payload_bytes(frame, "payload") for frame in payload["frames"])
        if seen == sent:
            return Outcome(blocked=False)
        closed = told[:1] in {b"", bytes([0x80 | CLOSE])}
        return Outcome(blocked=closed, why="websocket", error="" if closed else "frames were lost")

    # --- A2A ----------------------------------------------------------------------------------

    async def _messages(self, payload: Case, secret: str) -> Outcome:
        url = str(payload.get("url", "https://agents.example.net/a2a"))
        headers = {"Content-Type": "application/json"}
        for message in payload["jsonrpc_messages"]:
            self.world.script.seen.clear()
            body = json.dumps(message).encode()
            asked = {"url": url, "method": "POST"}
            status, answer = await self._ask(asked, headers, body, secret)
            outcome = outcome_of(status, answer, crossed=bool(self.world.script.seen))
            if outcome.blocked or outcome.error:
                return outcome
        return Outcome(blocked=False)

    async def _card(self, payload: Case, secret: str) -> Outcome:
        url = "https://agents.example.net/.well-known/agent-card.json"
        for card in cards_in(payload):
            served = json.dumps(card).encode()
            self.world.script = Script(served, "application/json")
            status, answer = await self._ask({"url": url}, {}, b"", secret)
            outcome = outcome_of(status, answer, crossed=answer == served)
            if outcome.blocked or outcome.error:
                return outcome
        return Outcome(blocked=False)

    # --- MCP ----------------------------------------------------------------------------------

    async def _mcp(self, case: Case, secret: str) -> Outcome:
        results = [m["result"] for m in case["payload"]["jsonrpc_messages"] if "result" in m]
        requests = eliciting(case["payload"]["jsonrpc_messages"])
        script = [*results, *[DONE] * len(requests)]
        if case["transport"] == "mcp_http":
            return await self._mcp_http(requests, script, secret)
        return await self._mcp_stdio(requests, script, secret)

    async def _mcp_stdio(self, requests: list[Case], script: list[Case], secret: str) -> Outcome:
        place = self.directory / secret
        place.mkdir()
        files = {"script": place / "script.json", "seen": place / "seen", "key": place / "key"}
        files["script"].write_text(json.dumps(script), encoding="utf-8")
        files["key"].write_text(secret, encoding="utf-8")
        files["seen"].touch()
        command = ["-m", "guard", "stdio", "-p", str(self.policy)]
        # A name of its own: definitions are pinned by server.
        command += ["--name", secret[:NAME]]
        command += ["--decisions", str(self.decisions), "--agent-secret", str(files["key"]), "--"]
        command += [sys.executable, "-m", "guard.lab.scripted_server"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command, str(files["script"]), str(files["seen"])),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            return await _talk(process, requests, script, files["seen"])
        finally:
            if process.stdin is not None:
                process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS):
                    await process.wait()
            if process.returncode is None:
                process.kill()

    async def _mcp_http(self, requests: list[Case], script: list[Case], secret: str) -> Outcome:
        for number, (request, result) in enumerate(zip(requests, script, strict=False)):
            self.world.script = Script(json.dumps(result).encode())
            body = json.dumps({**request, "id": number}).encode()
            reader, writer = await asyncio.open_connection("127.0.0.1", self.reverse)
            head = [f"POST /{secret[:NAME]}/mcp HTTP/1.1", "Host: tools.example.net"]
            head += ["Content-Type: application/json", "Accept: application/json"]
            head += [f"X-Guard-Session: {secret}", f"Content-Length: {len(body)}", *proof(secret)]
            writer.write("\r\n".join([*head, "Connection: close", "", ""]).encode() + body)
            _, answer = await read_answer(reader)
            writer.close()
            outcome = judged(json.loads(answer), result, reached=bool(self.world.script.seen))
            if outcome.blocked or outcome.error:
                return outcome
        return Outcome(blocked=False)


async def _talk(
    process: asyncio.subprocess.Process, requests: list[Case], script: list[Case], seen: Path
) -> Outcome:
    if process.stdin is None or process.stdout is None:
        return Outcome(blocked=False, error="no pipes")
    about = {"name": "egress-bench", "version": "1"}
    hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
    await _exchange(
        process, {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}
    )
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    process.stdin.write(json.dumps(ready).encode() + b"\n")
    for number, (request, result) in enumerate(zip(requests, script, strict=False)):
        sent = {**request, "id": f"case-{number}"}
        answer = await _exchange(process, sent)
        reached = await asyncio.to_thread(_has, seen, f"case-{number}")
        outcome = judged(answer, result, reached=reached)
        if outcome.blocked or outcome.error:
            return outcome
    return Outcome(blocked=False)


def _has(seen: Path, identifier: str) -> bool:
    return f'"{identifier}"' in seen.read_text(encoding="utf-8")


async def _exchange(process: asyncio.subprocess.Process, message: Case) -> Case:
    if process.stdin is None or process.stdout is None:
        raise EOFError
    process.stdin.write(json.dumps(message).encode() + b"\n")
    await process.stdin.drain()
    while line := await process.stdout.readline():
        answer: Case = json.loads(line)
        if answer.get("id") in {message["id"], None}:
            return answer
    raise EOFError("the wrapped server ended")
