"""Shared parts of the proxy benchmarks: contestants, and the load generator ``wrk``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.replay.reports import Check
from lab.tool_server import CALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Progress: TypeAlias = "Callable[[str, float], object]"
"""Told what is going on and which share of the whole is done."""
UPSTREAM: Final = "lab.tool_server"
HEADROOM: Final = 10.0
"""The generator must do this many times the fastest proxy, or the ratio would measure it."""
NO_GENERATOR: Final = "`wrk` is not installed"
ENOUGH: Final = 100
"""Answers of one load, at least, where they come within..."""
LONGEST: Final = 30.0
"""...so many seconds."""
_UNITS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def generator() -> str | None:
    """Return the load generator; None where it is not installed."""
    return shutil.which("wrk")


def stock_mitmdump(rig: Rig, upstream: int) -> int:
    """Start stock mitmdump in front of a server; return its port.

    Raises:
        GuardError: it is not installed, or did not start.
    """
    binary = shutil.which("mitmdump") or str(Path(sys.executable).with_name("mitmdump"))
    if not Path(binary).exists():
        raise GuardError("`mitmdump` is not installed beside this python; the ratio needs it")
    port = free_port()
    mode = f"reverse:http://127.0.0.1:{upstream}@127.0.0.1:{port}"
    confdir = f"confdir={rig.directory / 'mitm'}"
    child = rig.start("mitmdump", binary, "-q", "--mode", mode, "--set", confdir)
    child.wait_listening(port)
    return port


@dataclass(frozen=True, slots=True)
class Load:
    """Figures of one run of the generator."""

    per_second: float
    p50_ms: float
    p99_ms: float
    errors: int


Loads = dict[str, list[Load]]
"""Loads of each contestant, round by round."""


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


@dataclass(frozen=True, slots=True)
class Contestant:
    """Server that is loaded, and how."""

    port: int
    connections: int = 16
    post: Post = Post()


def started(rig: Rig, policy: Path) -> dict[str, Contestant]:
    """Start a tool server, and stock mitmdump and a guard in front of it.

    Raises:
        GuardError: mitmdump is not installed, or something did not start.
    """
    upstream = rig.server(UPSTREAM)
    ports = {"direct": upstream, "mitmdump": stock_mitmdump(rig, upstream)}
    ports["guard"] = rig.guard(policy, upstream)
    return {name: Contestant(port) for name, port in ports.items()}


def run_load(one: Contestant, seconds: float) -> Load:
    """Send a contestant its call again and again.

    Raises:
        GuardError: the generator is not installed, or failed.
    """
    binary = generator()
    if binary is None:
        raise GuardError(NO_GENERATOR)
    length = max(round(seconds), 1)
    with tempfile.NamedTemporaryFile("w", suffix=".lua", encoding="utf-8") as file:
        file.write(_script(one.post))
        file.flush()
        words = ["-t1", f"-c{one.connections}", f"-d{length}s", "--latency", "-s", file.name]
        # A call that takes longer than wrk's own two seconds is slow, not lost.
        words += ["--timeout", "60s", f"http://127.0.0.1:{one.port}{one.post.path}"]
        done = subprocess.run(  # noqa: S603  (our own command)
            [binary, *words], capture_output=True, text=True, encoding="utf-8", check=False
        )
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    p50, p99 = (re.search(rf"{n}%\s+([\d.]+)(us|ms|s)", done.stdout) for n in (50, 99))
    if not rate or not p50 or not p99:
        raise GuardError(f"wrk did not report: {done.stderr.strip() or done.stdout.strip()}")
    failed = re.findall(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    failed += re.findall(r"\d+", "".join(re.findall(r"Socket errors: (.*)", done.stdout)))
    p50_ms, p99_ms = (float(found[1]) * _UNITS[found[2]] for found in (p50, p99))
    return Load(float(rate[1]), p50_ms, p99_ms, sum(map(int, failed)))


def _script(post: Post) -> str:
    """Return a script that has wrk send a request."""
    script = f'wrk.method = "POST"\nwrk.body = [==[{post.body}]==]\n'
    if post.numbered:
        begin, mark, end = post.body.partition('"id": 1,')
        if not mark:
            raise GuardError("the request that is to be numbered has no id of 1")
        script += "local number = 0\nrequest = function()\n  number = number + 1\n"
        body = f'[==[{begin}"id": ]==]..number..[==[,{end}]==]'
        script += f"  return wrk.format(nil, nil, nil, {body})\nend\n"
    return script + "".join(
        f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}\n" for name, value in post.headers
    )


def load_in_turns(
    contestants: Mapping[str, Contestant], rounds: int, seconds: float, progress: Progress
) -> Loads:
    """Load contestants in turns, so that a noisy machine is noisy for all.

    Args:
        contestants: by name; each is warmed up.
        rounds: how many.
        seconds: length of a load; longer where a contestant answers few calls.
        progress: told the round, and the share of them that is done.
    """
    progress("warming up", 0.0)
    rates = {name: run_load(one, 1.0).per_second for name, one in contestants.items()}
    loads: Loads = {name: [] for name in contestants}
    for number in range(rounds):
        for turn, (name, one) in enumerate(contestants.items()):
            done = (number + turn / len(contestants)) / rounds
            progress(f"round {number + 1} of {rounds}: {name}", done)
            length = min(max(seconds, ENOUGH / max(rates[name], 1.0)), LONGEST)
            loads[name].append(run_load(one, length))
    return loads


def ratio(
    identifier: str, loads: Loads, names: tuple[str, str], target: str, reason: str = NO_GENERATOR
) -> Check:
    """Return one contestant's rate by another's: the median over the rounds.

    Args:
        identifier: of the check.
        loads: of all; where there is ``direct``, it must be much faster than both.
        names: of both contestants.
        target: of the ratio.
        reason: for one of them that was not loaded.
    """
    ours, theirs = (loads.get(name, []) for name in names)
    if ours and theirs:
        reason = _unfair(ours, theirs, loads.get("direct", []))
    if reason:
        return Check(id=identifier, value=None, unit="ratio", target=target, reason=reason)
    pairs = zip(ours, theirs, strict=True)
    value = round(median(our.per_second / their.per_second for our, their in pairs), 3)
    return Check(id=identifier, value=value, unit="ratio", n=len(ours), target=target)


def _unfair(ours: list[Load], theirs: list[Load], direct: list[Load]) -> str:
    """Return the reason for which two contestants cannot be compared; empty where there is none."""
    if errors := sum(load.errors for load in (*ours, *theirs)):
        return f"not every call was answered; {errors} were errors"
    fastest = max(median(load.per_second for load in some) for some in (ours, theirs))
    if direct and median(load.per_second for load in direct) < HEADROOM * fastest:
        return f"the generator does less than {HEADROOM:.0f} times the fastest proxy"
    return ""


def rates(loads: Loads) -> dict[str, list[float]]:
    """Return requests per second, by contestant and round."""
    return {name: [round(load.per_second, 1) for load in some] for name, some in loads.items()}
