"""Messages of the egress benchmark as bytes, and what the answers to them say."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

if TYPE_CHECKING:
    import asyncio
    from urllib.parse import SplitResult

Case = dict[str, Any]
BAD_REQUEST: Final = 400
OPCODES: Final = {"continuation": 0, "text": 1, "binary": 2, "close": 8, "ping": 9, "pong": 10}
_REASONS: Final = ("guard", "data", "error", "structuredContent", "result")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

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
    told = answer.get("result")
    if result is not None and "tools" in result and isinstance(told, dict):
        left = told.get("tools", [])
        if len(left) < len(result["tools"]) and all(tool in result["tools"] for tool in left):
            return Outcome(blocked=True, why="definition_withheld")
    if not reached or (result is not None and told != result):
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
