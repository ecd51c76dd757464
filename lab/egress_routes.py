"""Sends a case of agent-egress-bench through a running guard: one route per transport.

Every route ends in an :class:`Outcome`: whether the request reached the server, and whether the
answer reached the agent.  A route that fails for another reason than a refusal of the guard is an
error, and counts as neither blocked nor passed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from lab.egress_world import CLOSE, DONE, Script, World, read_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from urllib.parse import SplitResult

Case = dict[str, Any]
BAD_REQUEST: Final = 400
OPCODES: Final = {"continuation": 0, "text": 1, "binary": 2, "close": 8, "ping": 9, "pong": 10}
_REASONS: Final = ("guard", "data", "error", "_meta", "result")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a case."""

    blocked: bool
    why: str = ""
    """Reason code of the refusal, for the details."""
    error: str = ""
    """What broke, where nothing was decided."""


def judged(answer: Case, result: Case | None, *, reached: bool) -> Outcome:
    """Return what an MCP answer says, given what the server answered where that is known.

    The guard's refusal carries its reason code; of a listing it leaves out what it withholds.
    """
    code = reason_of(answer)
    if code:
        wrong = code in {"guard_error", "bad_credential"}
        return Outcome(blocked=not wrong, why=code, error=code if wrong else "")
    answered = answer.get("result")
    if result is not None and "tools" in result and isinstance(answered, dict):
        listed = answered.get("tools", [])
        if len(listed) < len(result["tools"]) and all(tool in result["tools"] for tool in listed):
            return Outcome(blocked=True, why="definition_withheld")
    if not reached or (result is not None and answered != result):
        return Outcome(blocked=False, error="an answer that is neither the tool's nor a refusal")
    return Outcome(blocked=False)


def outcome_of(status: int, answer: bytes, *, crossed: bool) -> Outcome:
    """Return what an HTTP answer says, given whether the payload crossed."""
    try:
        code = reason_of(json.loads(answer))
    except ValueError:
        code = ""
    if crossed:
        return Outcome(blocked=False)
    if not code and status == BAD_REQUEST:
        code = "bad_request"  # What cannot be read as HTTP is refused before any protocol reads it.
    if not code or code in {"guard_error", "bad_credential"}:
        return Outcome(blocked=False, error=f"status {status}: {code or answer[:120]!r}")
    return Outcome(blocked=True, why=code)


def reason_of(document: Any) -> str:
    """Return the reason code in a refusal of the guard, wherever its protocol puts it."""
    while isinstance(document, dict):
        guard = document.get("guard")
        if isinstance(guard, dict):
            return str(guard.get("code", ""))
        document = next((document[name] for name in _REASONS if name in document), None)
    return ""


async def read_answer(reader: asyncio.StreamReader, *, bodiless: int = 0) -> tuple[int, bytes]:
    """Return status and body of an HTTP answer; one of status ``bodiless`` has no body."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == bodiless:
        return status, b""
    _, found, length = head.lower().partition(b"content-length:")
    if found:
        return status, await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
    return status, await reader.read()


def proof(secret: str) -> list[str]:
    """Return the header lines of a principal."""
    return [f"Proxy-Authorization: Bearer {secret}"]


def authority_of(url: str) -> str:
    """Return host and port of a URL as they are written."""
    return urlsplit(url).netloc.rpartition("@")[2]


def server_name(host: str) -> str:
    """Return a host as TLS names it."""
    try:
        return host.encode("idna").decode() if not host.isascii() else host
    except UnicodeError:
        return "unnamed.invalid"


def media_of(body: str) -> str:
    """Return the content type of a page."""
    return "text/html" if body.lstrip().startswith("<") else "text/plain"


def payload_bytes(holder: Case, name: str) -> bytes:
    """Return a payload as it goes on the wire."""
    value = holder.get(name, "")
    if not isinstance(value, str):
        value = json.dumps(value)
    if holder.get("encoding", holder.get(f"{name}_encoding")) == "base64":
        return base64.b64decode(value)
    return value.encode()


def frame_bytes(frame: Case) -> bytes:
    """Return a masked WebSocket frame."""
    payload = payload_bytes(frame, "payload")
    final = 0x80 if frame.get("fin", True) else 0
    first = final | (0x40 if frame.get("rsv1") else 0) | OPCODES[str(frame.get("opcode", "text"))]
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    mask = os.urandom(4)
    return bytes([first]) + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def eliciting(messages: list[Case]) -> list[Case]:
    """Return the requests of a case, or those whose answers it gives.

    A case that is about definitions calls what was listed last: a tool may be refused only then.
    """
    results = [message["result"] for message in messages if "result" in message]
    found = [
        message
        for message in messages
        if "method" in message and not str(message["method"]).startswith("notifications/")
    ]
    if not found:
        listing = {"jsonrpc": "2.0", "method": "tools/list", "params": {}}
        found = [listing if "tools" in r else _call("get_text", {"part": 1}) for r in results]
    listed = [tool for result in results for tool in result.get("tools", [])]
    if any(message["method"] == "tools/call" for message in found):
        return found
    return [*found, *(_call(str(tool.get("name", "tool")), {}) for tool in listed[-3:])]


def cards_in(payload: Case) -> list[Case]:
    """Return the agent cards of a case, in order."""
    values = [
        v for value in payload.values() for v in (value if isinstance(value, list) else [value])
    ]
    return [value for value in values if isinstance(value, dict)]


def ascii_url(url: str) -> str:
    """Return a URL as an HTTP client sends it: ASCII only, without spaces."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    netloc = parts.netloc if host.isascii() else parts.netloc.replace(host, server_name(host))
    return urlunsplit(parts._replace(netloc=netloc)._replace(**_quoted(parts)))


def _quoted(parts: SplitResult) -> dict[str, str]:
    safe = "%/:?#[]@!$&'()*+,;=~|^`{}\\<>\""
    return {name: quote(getattr(parts, name), safe=safe) for name in ("path", "query")} | {
        "fragment": ""
    }


def _call(name: str, arguments: Case) -> Case:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "method": "tools/call", "params": params}


SECONDS: Final = 120.0
"""A road may take; a guard that answers nothing has not refused."""
NAME: Final = 12
_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")
"""Characters of a case's secret that name its servers."""
VERSION: Final = "2025-11-25"
_END: Final = {"opcode": "close", "payload": ""}


@dataclass(frozen=True, slots=True)
class Routes:
    """Ports and files of the running guard that its clients need."""

    world: World
    forward: int
    reverse: int
    decisions: Path
    policy: Path
    authority: Path
    """Certificate of the guard's own authority."""
    directory: Path

    async def travel(self, case: Case, secret: str) -> Outcome:
        """Send a case by the transport that it names.

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
        async with _connected(self.forward) as (reader, writer):
            target, refusal = await self._led(reader, writer, url, secret)
            if refusal is not None:
                return refusal
            given = {name.lower() for name in headers}
            user, at, _ = urlsplit(url).netloc.rpartition("@")
            if at and "authorization" not in given:
                # Clients send what stands before a host as its credentials (RFC 7617).
                coded = base64.b64encode(unquote(user).encode()).decode()
                headers = {**headers, "Authorization": f"Basic {coded}"}
            lines = [f"{method} {target} HTTP/1.1"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            if "host" not in given:
                lines.append(f"Host: {authority_of(url)}")
            if body:
                lines.append(f"Content-Length: {len(body)}")
            # One that asks for another protocol is answered without a body.
            lines += [] if "connection" in given else ["Connection: close"]
            lines += [*proof(secret), "", ""]
            writer.write("\r\n".join(lines).encode() + body)
            await writer.drain()
            return await read_answer(reader, bodiless=101)

    async def _led(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str, secret: str
    ) -> tuple[str, tuple[int, bytes] | None]:
        """Lead streams to where a URL leads through the guard; return what to ask there."""
        parts = urlsplit(url)
        if parts.scheme in {"http", "ws"}:
            return url.replace("ws://", "http://", 1), None
        authority = authority_of(url)
        name = authority if ":" in authority.rpartition("]")[2] else f"{authority}:443"
        head = [f"CONNECT {name} HTTP/1.1", f"Host: {name}", *proof(secret), "", ""]
        writer.write("\r\n".join(head).encode())
        status, refusal = await read_answer(reader, bodiless=200)
        if status != 200:
            return "", (status, refusal)
        context = ssl.create_default_context(cafile=str(self.authority))
        # Names in the cases are sometimes no names; whose certificate it is, the authority says.
        context.check_hostname = False
        await writer.start_tls(context, server_hostname=server_name(parts.hostname or ""))
        target = parts.path or "/"
        return f"{target}?{parts.query}" if parts.query else target, None

    # --- WebSocket ----------------------------------------------------------------------------

    async def _socket(self, payload: Case, secret: str) -> Outcome:
        async with _connected(self.forward) as (reader, writer):
            url = ascii_url(str(payload["url"]))
            target, refusal = await self._led(reader, writer, url, secret)
            if refusal is not None:
                return outcome_of(*refusal, crossed=False)
            writer.write(_handshake(payload, target, secret))
            status, answer = await read_answer(reader, bodiless=101)
            if status != 101:
                return outcome_of(status, answer, crossed=False)
            with suppress(OSError, EOFError, ssl.SSLError):
                # The close comes last: when it is answered, every frame before it was judged.
                for frame in (*payload["frames"], _END):
                    writer.write(frame_bytes(frame))
                    await writer.drain()
                while (await read_frame(reader))[0] != CLOSE:
                    pass
        seen = b"".join(self.world.script.seen[1:])
        sent = b"".join(payload_bytes(frame, "payload") for frame in payload["frames"])
        return Outcome(blocked=seen != sent, why="websocket" if seen != sent else "")

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
        command += [sys.executable, "-m", "lab.egress_world"]
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
            # A server of its own, at a path of the kind that MCP servers have.
            server = secret[:NAME].lower().translate(_LETTERS)
            head = [f"POST /{server}/mcp HTTP/1.1", "Host: tools.example.net"]
            head += ["Content-Type: application/json", "Accept: application/json"]
            head += [f"X-Guard-Session: {secret}", f"Content-Length: {len(body)}", *proof(secret)]
            async with _connected(self.reverse) as (reader, writer):
                writer.write("\r\n".join([*head, "Connection: close", "", ""]).encode() + body)
                _, answer = await read_answer(reader)
            outcome = judged(json.loads(answer), result, reached=bool(self.world.script.seen))
            if outcome.blocked or outcome.error:
                return outcome
        return Outcome(blocked=False)


@asynccontextmanager
async def _connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield the streams of a connection to a port of loopback, which ends with the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        # At once: who waits for the other side to end TLS has it open still when the loop closes.
        writer.transport.abort()


def _handshake(payload: Case, target: str, secret: str) -> bytes:
    """Return the request that begins the WebSocket of a case."""
    head = [f"GET {target} HTTP/1.1", f"Host: {authority_of(str(payload['url']))}"]
    head += ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    if any(frame.get("rsv1") for frame in payload["frames"]):
        head.append("Sec-WebSocket-Extensions: permessage-deflate")
    key = base64.b64encode(os.urandom(16)).decode()
    return "\r\n".join([*head, f"Sec-WebSocket-Key: {key}", *proof(secret), "", ""]).encode()


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
