"""Measures a real guard and a real Redis: processor time of a call, operations, bytes.

``python -m guard.lab.capacity.measure`` is the tool server: what it finds in a mailbox names twenty
addresses that were never seen before.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import secrets
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.loopback import Rig, free_port
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.core.errors import GuardError
from guard.lab.capacity.model import AGENT, REDIS, UPSTREAM, WORKER, Seen
from guard.lab.load import CALL, Post, run_load, serve_until_end_of_input
from guard.lab.peers.upstream import McpResponder

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER: Final = "guard.lab.capacity.measure"
ADDRESSES: Final = 20
"""In a result of the mailbox."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Mailbox(McpResponder):
    """The tool server of the other gateways, with a mailbox that strangers write to."""

    def answer(self, head: bytes, body: bytes) -> bytes:
        """Return the whole response to one request."""
        if b'"search_emails"' not in body:
            return super().answer(head, body)
        found = [
            {
                "id": secrets.token_hex(4),
                "from": f"a{secrets.token_hex(6)}@{secrets.token_hex(4)}.net",
            }
            for _ in range(ADDRESSES)
        ]
        text = {"type": "text", "text": json.dumps(found)}
        answer = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "result": {"content": [text]}}
        data = json.dumps(answer).encode()
        start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        return b"%s%d\r\n\r\n%s" % (start, len(data), data)


@dataclass(frozen=True, slots=True)
class Running:
    """A guard that serves, and the processes around it."""

    port: int
    redis: EmbeddedRedis
    workers: tuple[int, ...]
    upstream_pid: int
    audit: Path

    def spent(self) -> dict[str, float]:
        """Return the processor seconds that each kind of process has used so far."""
        redis = self.redis.pid
        return {
            WORKER: sum(map(_cpu, self.workers)),
            REDIS: _cpu(redis) if redis is not None else 0.0,
            UPSTREAM: _cpu(self.upstream_pid),
        }


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextmanager
def running(policy: Path, *, workers: int, options: tuple[str, ...] = ()) -> Iterator[Running]:
    """Start a guard with its own Redis in front of the mailbox.

    Raises:
        GuardError: something did not start.
    """
    with Rig() as rig, EmbeddedRedis() as redis:
        server = rig.begin_server(SERVER)
        upstream = server.printed_port()
        port = free_port()
        listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
        words: tuple[str, ...] = ("--policy", str(policy.resolve()), "--pep", "lean")
        words += ("--reverse", listener)
        words += ("--workers", str(workers), "--redis", redis.url, *options)
        guard = rig.begin_guard(*words)
        guard.wait_ready()
        children = Path(f"/proc/{guard.process.pid}/task/{guard.process.pid}/children")
        pids = (int(pid) for pid in children.read_text("ascii").split())
        found = tuple(p for p in pids if b"guard.worker" in Path(f"/proc/{p}/cmdline").read_bytes())
        yield Running(port, redis, found, server.process.pid, rig.audit)


def loaded(guard: Running, agents: int, seconds: float) -> Seen:
    """Have so many agents call again and again; return the rate and what a call cost.

    Raises:
        GuardError: a call was refused.
    """
    before, children = guard.spent(), _children()
    busy, started = _busy(), time.perf_counter()
    load = run_load(guard.port, agents, seconds)
    wall, busy = time.perf_counter() - started, _busy() - busy
    if load.errors:
        msg = f"{load.errors} of the benchmark's own calls were refused"
        raise GuardError(msg)
    calls = load.per_second * seconds
    cpu = {kind: (used - before[kind]) / calls for kind, used in guard.spent().items()}
    cpu[AGENT] = (_children() - children) / calls
    others = max(busy - calls * sum(cpu.values()), 0.0) / wall
    return Seen(agents, load.per_second, cpu, others)


def _busy() -> float:
    """Return the processor seconds that everything on this machine has used."""
    line = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]
    idle = {3, 4}  # idle, iowait
    return sum(int(one) for number, one in enumerate(line) if number not in idle) / _TICKS


def _children() -> float:
    """Return the processor seconds of children that have ended: the load generator's."""
    times = os.times()
    return times.children_user + times.children_system


def shape_of(guard: Running, calls: int) -> tuple[float, ...]:
    """Return the distribution of service times: those of one agent's calls by their mean."""
    times = asyncio.run(_times(guard.port, calls))
    # A call that met another process on its core says nothing about the guard.
    usual = [one for one in times if one < 20 * median(times)]
    mean = sum(usual) / len(usual)
    return tuple(one / mean for one in sorted(usual))


async def _times(port: int, calls: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(CALL)}\r\n\r\n{CALL}".encode()
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", answer)
        await reader.readexactly(int(length[1]) if length else 0)
        times.append(time.perf_counter() - started)
    writer.close()
    return times


@dataclass(frozen=True, slots=True)
class State:
    """Work and memory of Redis: commands, microseconds and bytes."""

    commands_per_call: float
    redis_us_per_call: float
    """Inside Redis' own commands; the reading and writing of sockets comes on top."""
    bytes_per_principal: float
    """With one session of three calls."""
    bytes_per_session: float
    """A further session of a principal."""
    bytes_per_value: float
    """An address that untrusted text named, with its label."""
    audit_bytes_per_decision: float


def kept(policy: Path, principals: int) -> State:
    """Have principals call for the first time, then in further sessions, then read mail.

    Raises:
        GuardError: something did not start.
    """
    names = {f"agent{number}": secrets.token_hex(8) for number in range(principals)}
    with Rig() as rig:
        file = rig.directory / "credentials.toml"
        digest = {n: hashlib.sha256(s.encode()).hexdigest() for n, s in names.items()}
        file.write_text("".join(f'{n} = "{d}"\n' for n, d in digest.items()), encoding="utf-8")
        with running(policy, workers=1, options=("--credentials", str(file))) as guard:
            first = next(iter(names.items()))
            _post(guard, first, "warm", CALL)
            start = _info(guard)
            for one in names.items():
                _calls(guard, one, "s0")
            one_session = _info(guard)
            for one in names.items():
                _calls(guard, one, "s1")
                _calls(guard, one, "s2")
            three_sessions = _info(guard)
            read = json.dumps(_read())
            for one in names.items():
                _post(guard, one, "s2", read)
            after = _info(guard)
            lines = guard.audit.read_bytes().splitlines(keepends=True)
    decisions = [line for line in lines if b'"guard.decision"' in line]
    calls = 3 * principals
    return State(
        commands_per_call=(one_session["calls"] - start["calls"]) / calls,
        redis_us_per_call=(one_session["usec"] - start["usec"]) / calls,
        bytes_per_principal=(one_session["memory"] - start["memory"]) / principals,
        bytes_per_session=(three_sessions["memory"] - one_session["memory"]) / (2 * principals),
        bytes_per_value=(after["memory"] - three_sessions["memory"]) / (principals * ADDRESSES),
        audit_bytes_per_decision=sum(map(len, decisions)) / len(decisions),
    )


def _read() -> dict[str, Any]:
    params = {"name": "search_emails", "arguments": {"query": "today"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def _calls(guard: Running, who: tuple[str, str], session: str) -> None:
    for _ in range(3):
        _post(guard, who, session, CALL)


def _post(guard: Running, who: tuple[str, str], session: str, body: str) -> None:
    proof = base64.b64encode(":".join(who).encode()).decode()
    headers = {"content-type": "application/json", "x-guard-session": session}
    headers["proxy-authorization"] = f"Basic {proof}"
    url = f"http://127.0.0.1:{guard.port}{Post().path}"
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        if json.load(answer)["result"].get("isError"):
            msg = "a call of the benchmark's own was refused"
            raise GuardError(msg)


def _info(guard: Running) -> dict[str, float]:
    """Return the memory of a Redis, and the calls and microseconds of its commands so far."""
    import redis

    with redis.Redis.from_url(guard.redis.url) as client:
        data, commands = client.info("memory"), client.info("commandstats")
    scripts = {k: v for k, v in commands.items() if k in {"cmdstat_evalsha", "cmdstat_eval"}}
    return {
        "memory": float(data["used_memory"]),
        "calls": float(sum(one["calls"] for one in scripts.values())),
        "usec": float(sum(one["usec"] for one in scripts.values())),
    }


if __name__ == "__main__":
    asyncio.run(serve_until_end_of_input(Mailbox))
