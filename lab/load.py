"""Shared parts of the proxy benchmarks: upstream, contestants, load generator.

The load generator is ``wrk`` where it is installed, else raw asyncio streams.  The upstream does
nothing but answer: ``python -m lab.load [CHAIN]`` prints its port and serves, over TLS where
a chain file is named, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.replay.reports import Check
from lab import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Progress: TypeAlias = "Callable[[str, float], object]"
"""Told what is going on and which share of the whole is done."""
UPSTREAM: Final = "lab.load"
WORKER: Final = "guard.runtime.worker"
HEADROOM: Final = 10.0
"""The generator must do this many times the fastest proxy, or the ratio would measure it."""
MAIL: Final = {"to": "team@example.com", "subject": "status", "body": "all is well"}
CALL: Final = wire.call_body("email_send_email", MAIL).decode()
"""A send to an internal address: judged in full, allowed, forwarded."""
_UNITS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}


_BODY: Final = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "sent"}]}}
).encode()
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_BODY), _BODY)
)


@dataclass(frozen=True, slots=True)
class Contestants:
    """Ports of what is compared; the proxies have the same upstream."""

    direct: int
    mitmdump: int
    guard: int
    audit: Path


@contextmanager
def contestants(policy: Path) -> Iterator[Contestants]:
    """Start the upstream, stock mitmdump and a guard, and end them with the block.

    Raises:
        GuardError: mitmdump is not installed, or something did not start.
    """
    with Rig() as rig:
        upstream = rig.server(UPSTREAM)
        plain = stock_mitmdump(rig, upstream)
        guarded = rig.guard(policy, upstream)
        yield Contestants(upstream, plain, guarded, rig.audit)


def stock_mitmdump(rig: Rig, upstream: int) -> int:
    """Start stock mitmdump in front of a server; return its port.

    Raises:
        GuardError: it is not installed, or did not start.
    """
    port = free_port()
    mode = f"reverse:http://127.0.0.1:{upstream}@127.0.0.1:{port}"
    confdir = f"confdir={rig.directory / 'mitm'}"
    child = rig.start("mitmdump", find_mitmdump(), "-q", "--mode", mode, "--set", confdir)
    child.wait_listening(port)
    return port


def find_mitmdump() -> str:
    """Return the stock mitmdump.

    Raises:
        GuardError: it is not installed.
    """
    found = shutil.which("mitmdump") or str(Path(sys.executable).with_name("mitmdump"))
    if not Path(found).exists():
        raise GuardError("`mitmdump` is not installed beside this python; the ratio needs it")
    return found


@dataclass(slots=True)
class Rounds:
    """Requests per second of each contestant at 16 connections, round by round."""

    direct: list[float] = field(default_factory=list)
    mitmdump: list[float] = field(default_factory=list)
    guard: list[float] = field(default_factory=list)

    def check(self, target: str) -> Check:
        """Return the median over rounds of guard / mitmdump, where the generator is fast enough."""
        headroom = median(self.direct) / max(median(self.mitmdump), median(self.guard))
        fits = headroom >= HEADROOM
        slow = f"the generator does only {headroom:.1f} times the fastest proxy, not {HEADROOM}"
        ratio = median(g / m for g, m in zip(self.guard, self.mitmdump, strict=True))
        return Check(
            id="ratio_vs_mitmdump_c16",
            value=round(ratio, 3) if fits else None,
            unit="ratio",
            n=len(self.guard),
            target=target,
            reason=None if fits else slow,
        )


def side_by_side(
    ports: Contestants, number: int, seconds: float, announce: Callable[[str, float], object]
) -> Rounds:
    """Warm up, then load the contestants in turns, so that a noisy machine is noisy for all.

    Args:
        ports: of the contestants.
        number: how many rounds.
        seconds: length of a round.
        announce: is told the round, and the share of them that is done.
    """
    rounds = Rounds()
    for port in (ports.direct, ports.mitmdump, ports.guard):
        run_load(port, 16, 1.0)
    for done in range(number):
        announce(f"16 connections, round {done + 1} of {number}", done / number)
        rounds.direct.append(run_load(ports.direct, 16, seconds / 2).per_second)
        rounds.mitmdump.append(run_load(ports.mitmdump, 16, seconds).per_second)
        rounds.guard.append(run_load(ports.guard, 16, seconds).per_second)
    return rounds


@dataclass(frozen=True, slots=True)
class Load:
    """Figures of one run of the generator."""

    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int

    @classmethod
    def of(cls, times: list[float], seconds: float, errors: int) -> Load:
        """Return what the times of single calls come to, each in seconds."""
        p99 = sorted(times)[int(len(times) * 0.99)]
        return cls(len(times) / seconds, median(times) * 1000, p99 * 1000, errors)


@dataclass(frozen=True, slots=True)
class Post:
    """The request that is sent again and again."""

    path: str = "/mcp"
    body: str = CALL
    headers: tuple[tuple[str, str], ...] = (
        ("content-type", "application/json"),
        ("x-guard-session", "bench"),
    )
    numbered: bool = False
    """True if each request has another JSON-RPC id, for servers that keep a session."""


def generator() -> str:
    """Return the name of the generator that will be used."""
    return "wrk" if shutil.which("wrk") else "asyncio"


def run_load(port: int, connections: int, seconds: float, post: Post = Post()) -> Load:
    """Send the call over so many connections for so long.

    Raises:
        GuardError: the generator failed.
    """
    if shutil.which("wrk"):
        return _wrk(port, connections, seconds, post)
    return asyncio.run(_streams(port, connections, seconds, post))


def _wrk(port: int, connections: int, seconds: float, post: Post) -> Load:
    with _script(post) as file:
        length = max(round(seconds), 1)
        command = ["wrk", "-t1", f"-c{connections}", f"-d{length}s", "--latency", "-s", file]
        # A call that takes longer than wrk's own two seconds is slow, not lost.
        command += ["--timeout", "60s", f"http://127.0.0.1:{port}{post.path}"]
        done = subprocess.run(  # noqa: S603  (our own command)
            command, capture_output=True, text=True, encoding="utf-8", check=False
        )
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    p50, p99 = (re.search(rf"{n}%\s+([\d.]+)(us|ms|s)", done.stdout) for n in (50, 99))
    if not rate or not p50 or not p99:
        raise GuardError(f"wrk did not report: {done.stderr.strip() or done.stdout.strip()}")
    p50_ms, p99_ms = (float(found[1]) * _UNITS[found[2]] for found in (p50, p99))
    return Load(float(rate[1]), p50_ms, p99_ms, _errors(done.stdout))


@contextmanager
def _script(post: Post) -> Iterator[str]:
    """Yield the file of a script that has wrk send a request."""
    script = f'wrk.method = "POST"\nwrk.body = [==[{post.body}]==]\n'
    if post.numbered:
        begin, end = _around_id(post.body)
        script += "local number = 0\nrequest = function()\n  number = number + 1\n"
        script += (
            f"  return wrk.format(nil, nil, nil, [==[{begin}]==]..number..[==[{end}]==])\nend\n"
        )
    script += "".join(f"wrk.headers[{json.dumps(k)}] = {json.dumps(v)}\n" for k, v in post.headers)
    with tempfile.NamedTemporaryFile("w", suffix=".lua", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        yield file.name


def _errors(report: str) -> int:
    """Return how many calls failed, by what a generator has printed."""
    counts = re.findall(r"Non-2xx or 3xx responses: (\d+)", report)
    counts += re.findall(r"\d+", "".join(re.findall(r"Socket errors: (.*)", report)))
    return sum(map(int, counts))


def _around_id(body: str) -> tuple[str, str]:
    """Return what stands before and behind the number of a JSON-RPC request."""
    begin, mark, end = body.partition('"id": 1,')
    if not mark:
        raise GuardError("the request that is to be numbered has no id of 1")
    return f'{begin}"id": ', f",{end}"


def request_bytes(post: Post, number: int) -> bytes:
    """Return a request as it goes over the wire; the number stands in it where it is numbered."""
    body = post.body
    if post.numbered:
        begin, end = _around_id(body)
        body = f"{begin}{number}{end}"
    return wire.post(post.path, body.encode(), dict(post.headers))


async def _streams(port: int, connections: int, seconds: float, post: Post) -> Load:
    requests: Iterator[bytes] = itertools.repeat(request_bytes(post, 1))
    if post.numbered:
        requests = map(partial(request_bytes, post), itertools.count(1))
    deadline = time.perf_counter() + seconds
    times: list[float] = []
    bad = 0

    async def client() -> None:
        nonlocal bad
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (started := time.perf_counter()) < deadline:
            head, _ = await wire.exchanged(reader, writer, next(requests))
            bad += not head.startswith(b"HTTP/1.1 200")
            times.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return Load.of(times, seconds, bad)


def processes(supervisor: int) -> dict[str, tuple[int, float]]:
    """Return a guard's processes by module: id and processor time in seconds; Linux only."""
    found = {}
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text("ascii")
    for pid in map(int, children.split()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        name = next((word for word in words if word.startswith("guard.")), words[0])
        found[name] = pid, processor_time(pid)
    return found


def processor_time(pid: int) -> float:
    """Return the processor time of a process in seconds, to the nanosecond; Linux only."""
    # As clock_getcpuclockid(3) makes the clock's id; /proc counts in hundredths.
    return time.clock_gettime(~pid << 3 | 2)


class Responder(asyncio.Protocol):
    """Answers every complete request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        self._buffer = b""

    def answer(self, head: bytes, body: bytes) -> bytes:
        """Return the whole response to one request: always the same bytes."""
        del head, body
        return ANSWER

    def data_received(self, data: bytes) -> None:
        """Answer as many requests as are complete."""
        self._buffer += data
        while True:
            head, blank, rest = self._buffer.partition(b"\r\n\r\n")
            if not blank:
                return
            _, found, length = head.lower().partition(b"content-length:")
            size = int(length.split(b"\r\n", 1)[0]) if found else 0
            if len(rest) < size:
                return
            self._buffer = rest[size:]
            self._transport.write(self.answer(head, rest[:size]))


async def serve_until_end_of_input(
    protocol: type[Responder], context: ssl.SSLContext | None = None
) -> None:
    """Print a free port of the loopback interface and serve there until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


async def main() -> None:
    """Serve the one answer, over TLS where a chain file is named."""
    context = None
    if sys.argv[1:]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(sys.argv[1])
    await serve_until_end_of_input(Responder, context)


if __name__ == "__main__":
    asyncio.run(main())
