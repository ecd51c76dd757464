"""The load generator: ``wrk`` where it is installed, else raw asyncio streams."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from statistics import median
from typing import Final

from guard.core.errors import GuardError

CALL: Final = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": "email_send_email",
            "arguments": {"to": "team@example.com", "subject": "status", "body": "all is well"},
        },
    }
)
"""A send to an internal address: judged in full, allowed, forwarded."""
_UNITS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of the generator saw."""

    per_second: float
    p50_ms: float
    errors: int


def generator() -> str:
    """Return the name of the generator that will be used."""
    return "wrk" if shutil.which("wrk") else "asyncio"


def run_load(port: int, connections: int, seconds: float) -> Load:
    """Send the call over so many connections for so long.

    Raises:
        GuardError: the generator failed.
    """
    if shutil.which("wrk"):
        return _wrk(port, connections, seconds)
    return asyncio.run(_streams(port, connections, seconds))


def _wrk(port: int, connections: int, seconds: float) -> Load:
    script = (
        'wrk.method = "POST"\n'
        f"wrk.body = [==[{CALL}]==]\n"
        'wrk.headers["content-type"] = "application/json"\n'
        'wrk.headers["x-guard-session"] = "bench"\n'
    )
    with tempfile.NamedTemporaryFile("w", suffix=".lua", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        length = f"-d{max(round(seconds), 1)}s"
        command = ["wrk", "-t1", f"-c{connections}", length, "--latency", "-s", file.name]
        done = subprocess.run(  # noqa: S603  (our own command)
            [*command, f"http://127.0.0.1:{port}/mcp"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    p50 = re.search(r"50%\s+([\d.]+)(us|ms|s)", done.stdout)
    if not rate or not p50:
        msg = f"wrk did not report: {done.stderr.strip() or done.stdout.strip()}"
        raise GuardError(msg)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    return Load(float(rate[1]), float(p50[1]) * _UNITS[p50[2]], int(bad[1]) if bad else 0)


async def _streams(port: int, connections: int, seconds: float) -> Load:
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"x-guard-session: bench\r\ncontent-length: {len(CALL)}\r\n\r\n"
    )
    request = head.encode() + CALL.encode()
    deadline = time.perf_counter() + seconds
    times: list[float] = []
    bad = 0

    async def client() -> None:
        nonlocal bad
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (started := time.perf_counter()) < deadline:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", answer)
            await reader.readexactly(int(length[1]) if length else 0)
            times.append(time.perf_counter() - started)
            bad += not answer.startswith(b"HTTP/1.1 200")
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return Load(len(times) / seconds, median(times) * 1000, bad)
