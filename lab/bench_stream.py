"""``guard lab bench stream``: latency added to first events, gaps and first tokens.

One process plays the upstream and the client, so that both read the same clock; the guard is a
process of its own.  Every round is run directly and through the guard, in turns, on connections
that are kept open, as agents keep theirs; the first round, which opens them, is not counted.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.loopback import Rig
from guard.replay.reports import Check, Report, machine
from lab.wire import post

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVENTS: Final = 10
GAP_SECONDS: Final = 0.01
TARGET_MS: Final = "<= 5"
_MARK: Final = "at-"


@dataclass(slots=True)
class Times:
    """Milliseconds, one figure per round, or per gap."""

    first: list[float] = field(default_factory=list)
    """From sending the request to reading the first event."""
    late: list[float] = field(default_factory=list)
    """Additional length of a gap for the client, compared with the upstream; may be negative."""


def bench_stream(policy: Path, *, rounds: int, progress: Callable[[str], object]) -> Report:
    """Measure and return the report.

    Raises:
        GuardError: a part could not be started, or a stream broke off.
    """
    return asyncio.run(_bench(policy, rounds, progress))


async def _bench(policy: Path, rounds: int, progress: Callable[[str], object]) -> Report:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rig = Rig()
    try:
        model = ("--model-api", f"127.0.0.1:{port}")
        guarded = await asyncio.to_thread(rig.guard, policy, port, *model)
        measured = {
            (kind, name): Times() for kind in ("mcp", "model") for name in ("direct", "guard")
        }
        ports = {"direct": port, "guard": guarded}
        clients = {
            key: await asyncio.open_connection("127.0.0.1", ports[key[1]]) for key in measured
        }
        for number in range(rounds + 1):
            progress(f"round {number} of {rounds}")
            for key, times in measured.items():
                run = await _measure(*clients[key], key[0])
                if number:
                    times.first += run.first
                    times.late += run.late
        for _, writer in clients.values():
            writer.close()
    finally:
        await asyncio.to_thread(rig.stop)
        server.close()
    return _report(measured, rounds)


def _report(measured: dict[tuple[str, str], Times], rounds: int) -> Report:
    def added(kind: str, figure: str) -> float:
        guard, direct = (getattr(measured[kind, name], figure) for name in ("guard", "direct"))
        return round(float(median(guard) - median(direct)), 3)

    gaps = rounds * (EVENTS - 1)
    figures = (
        ("first_event_added_ms", added("mcp", "first"), rounds),
        ("gap_added_ms", added("mcp", "late"), gaps),
        ("ttft_added_ms", added("model", "first"), rounds),
    )
    return Report(
        name="stream",
        machine=machine(),
        checks=[
            Check(id=name, value=value, unit="ms", n=n, target=TARGET_MS)
            for name, value, n in figures
        ],
        details={
            "gap_ms": GAP_SECONDS * 1000,
            "events": EVENTS,
            **{
                f"{kind}_{name}": {
                    "first_ms_median": round(median(times.first), 3),
                    "gap_late_ms_median": round(median(times.late), 3),
                    "gap_late_ms_max": round(max(times.late), 3),
                }
                for (kind, name), times in measured.items()
            },
        },
    )


def _mark() -> str:
    return f"{_MARK}{time.monotonic_ns()}{_MARK}"


def _event(kind: str) -> bytes:
    if kind == "model":
        choice = {"index": 0, "delta": {"content": _mark()}, "finish_reason": None}
        document: object = {"object": "chat.completion.chunk", "choices": [choice]}
    else:
        params = {"progressToken": 1, "progress": 1, "message": _mark()}
        document = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return f"data: {json.dumps(document)}\n\n".encode()


def _last(kind: str) -> bytes:
    if kind == "model":
        return b"data: [DONE]\n\n"
    result = {"content": [{"type": "text", "text": "done"}]}
    return f"data: {json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': result})}\n\n".encode()


def _request(kind: str) -> bytes:
    if kind == "model":
        path = "/v1/chat/completions"
        message = {"role": "user", "content": "hello"}
        document: object = {"model": "m", "stream": True, "messages": [message]}
    else:
        path = "/mcp"
        params = {"name": "memory_list_all_facts", "arguments": {}, "_meta": {"progressToken": 1}}
        document = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accepted = {"accept": "application/json, text/event-stream"}
    return post(path, json.dumps(document).encode(), accepted)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests with a stream of events, each with the time it was sent at."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            kind = "model" if b"completions" in head else "mcp"
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            for _ in range(EVENTS):
                await asyncio.sleep(GAP_SECONDS)
                _chunk(writer, _event(kind))
            _chunk(writer, _last(kind))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def _measure(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str) -> Times:
    """Run one stream and return its times."""
    times, previous = Times(), None
    started = time.monotonic_ns()
    writer.write(_request(kind))
    buffer = b""
    while not buffer.endswith(b"0\r\n\r\n"):
        data = await reader.read(65536)
        now = time.monotonic_ns()
        if not data:
            raise GuardError(f"the stream broke off: {buffer[-200:]!r}")
        buffer += data
        for sent in data.decode().split(_MARK)[1::2]:
            if previous is None:
                times.first.append((now - started) / 1e6)
            else:
                times.late.append((now - previous[0] - (int(sent) - previous[1])) / 1e6)
            previous = (now, int(sent))
    return times
