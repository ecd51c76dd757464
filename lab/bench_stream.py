"""``guard lab bench stream``: latency added to first events, gaps and first tokens.

Every round is run directly and through the guard, in turns, on connections that are kept open, as
agents keep theirs; the first round, which opens them, is not counted.  ``python -m
lab.bench_stream`` is the upstream: all processes of a machine read the same monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import httpx
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from guard.processes.loopback import Rig, serve_on_loopback
from guard.replay.reports import Check, Report, machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request

    from lab.load import Progress

EVENTS: Final = 10
GAP_SECONDS: Final = 0.01
TARGET_MS: Final = "<= 5"
PATHS: Final = {"mcp": "/mcp", "model": "/v1/chat/completions"}
_MARK: Final = "at-"


@dataclass(slots=True)
class Times:
    """Milliseconds, one figure per round, or per gap."""

    first: list[float] = field(default_factory=list)
    """From sending the request to reading the first event."""
    late: list[float] = field(default_factory=list)
    """Additional length of a gap for the client, compared with the upstream; may be negative."""


def bench_stream(policy: Path, *, rounds: int, progress: Progress) -> Report:
    """Measure and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    measured = {(kind, name): Times() for kind in ("mcp", "model") for name in ("direct", "guard")}
    with Rig() as rig, httpx.Client(trust_env=False, timeout=60) as client:
        port = rig.server(__name__)
        ports = {"direct": port}
        ports["guard"] = rig.guard(policy, port, "--model-api", f"127.0.0.1:{port}")
        for number in range(rounds + 1):
            progress(f"round {number} of {rounds}", number / (rounds + 1))
            for (kind, name), times in measured.items():
                run = _measure(client, ports[name], kind)
                if number:
                    times.first += run.first
                    times.late += run.late
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


def _event(kind: str) -> str:
    mark = f"{_MARK}{time.monotonic_ns()}{_MARK}"
    if kind == "model":
        choice = {"index": 0, "delta": {"content": mark}, "finish_reason": None}
        document: object = {"object": "chat.completion.chunk", "choices": [choice]}
    else:
        params = {"progressToken": 1, "progress": 1, "message": mark}
        document = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return f"data: {json.dumps(document)}\n\n"


async def _events(kind: str) -> AsyncIterator[str]:
    for _ in range(EVENTS):
        await asyncio.sleep(GAP_SECONDS)
        yield _event(kind)
    if kind == "model":
        yield "data: [DONE]\n\n"
        return
    result = {"content": [{"type": "text", "text": "done"}]}
    yield f"data: {json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': result})}\n\n"


async def _answer(request: Request) -> StreamingResponse:
    """Answer with a stream of events, each with the time it was sent at."""
    kind = "mcp" if request.url.path == PATHS["mcp"] else "model"
    return StreamingResponse(_events(kind), media_type="text/event-stream")


def _build() -> Starlette:
    return Starlette(routes=[Route(path, _answer, methods=["POST"]) for path in PATHS.values()])


def _measure(client: httpx.Client, port: int, kind: str) -> Times:
    """Run one stream and return its times."""
    message = {"role": "user", "content": "hello"}
    document: dict[str, Any] = {"model": "m", "stream": True, "messages": [message]}
    if kind == "mcp":
        params = {"name": "memory_list_all_facts", "arguments": {}, "_meta": {"progressToken": 1}}
        document = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    url = f"http://127.0.0.1:{port}{PATHS[kind]}"
    accepted = {"accept": "application/json, text/event-stream"}
    times, previous = Times(), None
    started = time.monotonic_ns()
    with client.stream("POST", url, json=document, headers=accepted) as response:
        for data in response.iter_text():
            now = time.monotonic_ns()
            for sent in map(int, data.split(_MARK)[1::2]):
                if previous is None:
                    times.first.append((now - started) / 1e6)
                else:
                    times.late.append((now - previous[0] - (sent - previous[1])) / 1e6)
                previous = (now, sent)
    return times


if __name__ == "__main__":
    serve_on_loopback(_build)
