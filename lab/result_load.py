"""``guard lab bench results``: cost by the size of results, latency beside large ones.

Results have not been seen before.  With an earlier revision (``--base``) costs are ratios to its:
of calls by the size of their results, and of one send that 16 connections make again and again.

``python -m lab.result_load`` is the upstream: it prints its port and answers each
``tools/call`` with a text; the path in its arguments says how long, and from which number made.
``python -m lab.result_load client PORT SIZE FIRST SECONDS`` makes one call after the other
and prints how many milliseconds each took, as JSON.

Costs are processor time of the guard's processes without Redis, so that what else the machine does
counts little.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.adapters.loopback import Rig, free_port
from guard.core.errors import GuardError
from guard.replay.reports import Check, Report, machine
from lab.generate.vocabulary import Vocabulary
from lab.guard_processes import redis_of
from lab.load import UPSTREAM as ANSWERS_AT_ONCE
from lab.load import run_load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.model import Json
    from lab.load import Progress

UPSTREAM: Final = "lab.result_load"
TOOL: Final = "read_file"
SMALL, MEDIUM, LARGE = 100, 10_000, 100_000
HUGE: Final = 1_000_000
CALLS: Final = {SMALL: 1000, MEDIUM: 150, LARGE: 25}
"""Calls of a round by the characters of their results."""
_RATIOS: Final = (
    ("cpu_us_per_new_call_ratio", SMALL, ""),
    ("result_10k_ratio", MEDIUM, "<= 0.25"),
    ("result_100k_ratio", LARGE, "<= 0.25"),
)
CONNECTIONS: Final = 16
WARM_UP: Final = 20
SECONDS: Final = 4.0
"""Length of a load of small calls beside huge results."""
_SENTENCES: Final = (
    "The {a} of the {b} was founded in {year} and has grown at a steady rate since then.",
    "{name} said that the {a} would be ready by {day} May, although nobody was sure.",
    "At the time there were about {n} members; most of them lived near the {b}.",
    "See section {small}.{day} for what the {a} means to a {b}, and why it matters.",
    '"We looked at the {a} again," wrote {name}, "and the {b} is not what it seemed."',
    "It cost ${n}.{small}0 in {year} (some say more), which is {small} times as much as a {b}.",
    "Nothing in the {a} is new, but the {b} has been rewritten - in part - by {name}.",
    "Work on it began on {year}-0{small}-1{small} and ended a few weeks later.",
    "Few of those who came for the {a} stayed for the {b}, and fewer still came back.",
    "What the {a} is to the north, the {b} is to the south; neither would say so.",
    "In the end they agreed that every {a} needs a {b}, if only as a place to meet.",
    "The council had promised a new {a}, yet all that was built was a smaller {b}.",
    "Critics called it the best {a} of its kind, which says little about the {b}.",
    "It is not known who designed the {b}, but the style is that of the old {a}.",
    "During the war the {a} was closed, and parts of it were used for the {b}.",
    "Today the {b} is open all year round and admission to the {a} is free.",
)
_CONTACTS: Final = (
    "Write to {mail} for a copy.",
    "More on https://www.{host}/{a}/{n} or by phone: +44 20 7946 0{n}.",
    "The source is {a}/{b}-{n}, ticket {a}-{n}.",
    "Ask @{a}_{b} in #{b}-{n}; the file is {a}_{n}.pdf.",
)
_NOUNS: Final = (
    *("bridge", "village", "harbour", "museum", "journal", "railway", "treaty", "garden"),
    *("orchestra", "college", "market", "library", "station", "festival", "company", "river"),
    *("report", "season", "network", "kitchen", "castle", "engine", "letter", "orchard"),
)
_EVERY: Final = 12
"""One sentence in so many names an address."""


@lru_cache(maxsize=128)
def page(size: int, number: int) -> str:
    """Return prose of so many characters with an address now and then, the same for a number."""
    if size > LARGE:
        parts = (page(MEDIUM, (number + part) % 64) for part in range(size // MEDIUM + 1))
        return f"Report {number}.  {'  '.join(parts)}"[:size]
    words = Vocabulary(f"page {number}")
    draw = words.draw
    said: list[str] = []
    length = 0
    while length < size:
        person = words.person()
        sentence = draw.choice(_CONTACTS if draw.randrange(_EVERY) == 0 else _SENTENCES).format(
            a=draw.choice(_NOUNS),
            b=draw.choice(_NOUNS),
            name=person.name,
            mail=person.address,
            host=person.address.partition("@")[2],
            year=draw.randrange(1800, 2030),
            day=draw.randrange(10, 29),
            n=draw.randrange(100, 1000),
            small=draw.randrange(1, 10),
        )
        said.append(sentence + draw.choice((" ", " ", " ", "\n\n")))
        length += len(said[-1])
    return "".join(said)[:size]


class Spent(NamedTuple):
    """What calls cost a guard."""

    cpu_us: float
    """Processor time per call."""
    p50_ms: float


class Measured:
    """A guard of some tree of files in front of the upstream, as long as its rig lives.

    Args:
        rig: of its files and processes.
        upstream: port of it.
        policy: in force.
        words: further words of the command.
    """

    def __init__(self, rig: Rig, upstream: int, policy: Path, *words: str) -> None:
        self.port = free_port()
        listener = f"127.0.0.1:{self.port}=http://127.0.0.1:{upstream}"
        key = str(rig.directory / "label.key")
        options = ("--admin", f"127.0.0.1:{free_port()}", "--label-key", key, "--audit")
        self._child = rig.start(
            *("guard", "-m", "guard", "run", *options, str(rig.audit)),
            *("--policy", str(policy.resolve()), "--reverse", listener, *words),
        )
        self._child.wait_ready()

    def spent(self, size: int, numbers: Sequence[int]) -> Spent:
        """Return what a call costs whose result has a size, and was not seen before.

        Args:
            size: characters of the text.
            numbers: of the texts; each is used once.
        """
        before = self._seconds()
        times = calls(self.port, size, numbers)
        used = self._seconds() - before
        return Spent(1e6 * used / len(times), 1e3 * median(times))

    def loaded(self) -> float:
        """Return the microseconds of processor that each of the same calls costs, 16 at a time."""
        before = self._seconds()
        load = run_load(self.port, CONNECTIONS, SECONDS)
        return 1e6 * (self._seconds() - before) / (load.per_second * SECONDS)

    def _seconds(self) -> float:
        """Return the processor seconds of the guard's Python processes, ended threads included."""
        return cpu_seconds(self._child.process.pid)


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds of a guard: of all its processes and threads but its Redis."""
    redis = redis_of(pid).pid
    return sum(_cpu_seconds(one) for one in _family(pid) if one != redis)


def _family(pid: int) -> list[int]:
    try:
        inner = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    except OSError:
        return []
    return [pid, *(one for child in inner for one in _family(int(child)))]


def _cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def calls(port: int, size: int, numbers: Sequence[int]) -> list[float]:
    """Make calls one after the other on one connection; return the seconds of each."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times: list[float] = []
    for number in numbers:
        body = json.dumps(_call(size, number))
        started = time.perf_counter()
        connection.request("POST", "/mcp", body, {"content-type": "application/json"})
        answer = connection.getresponse().read()
        times.append(time.perf_counter() - started)
        if len(answer) < size or b"isError" in answer:
            connection.close()
            raise GuardError(f"no result of {size} characters came back: {answer[:500]!r}")
    connection.close()
    return times


def _call(size: int, number: int) -> dict[str, Json]:
    params: Json = {"name": TOOL, "arguments": {"path": f"reports/{size}/{number}.txt"}}
    return {"jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": params}


def bench_results(policy: Path, base: Path | None, *, rounds: int, progress: Progress) -> Report:
    """Measure everything and return the report; see :func:`result_checks`."""
    checks, details = result_checks(policy, base, rounds=rounds, progress=progress)
    return Report(name="results", machine=machine(), checks=checks, details=details)


def result_checks(
    policy: Path, base: Path | None, *, rounds: int, progress: Progress
) -> tuple[list[Check], dict[str, Any]]:
    """Return the figures of calls by the size of their results, and the rounds behind them.

    Args:
        policy: of the guard here; the other has the one that it ships.
        base: a checkout of an earlier revision, which this Python can run; None compares nothing.
        rounds: alternating ones.
        progress: is told what is going on and which share is done.

    Raises:
        GuardError: a part could not be started.
    """
    whole: list[tuple[float, float]] = []
    spent: dict[int, list[tuple[Spent, Spent]]] = {}
    if base is not None:
        whole = _same_calls(policy, base, rounds, progress)
        spent = _first_sight(policy, base, rounds, progress)
    beside = _small_beside_huge(policy, rounds, progress)
    ratio = percentile(beside.beside, 99) / percentile(beside.idle, 99)
    checks = [
        _ratio("cpu_us_per_call_ratio", whole, "<= 0.55"),
        *(_ratio(name, _costs(spent.get(size, [])), target) for name, size, target in _RATIOS),
        Check(
            id="p99_small_while_1mb",
            value=round(ratio, 2),
            unit="ratio",
            n=len(beside.beside),
            target="<= 2",
        ),
    ]
    details = {
        "us_per_call_here_and_at_base": [[round(one) for one in pair] for pair in whole],
        "spent_here_and_at_base": {str(size): pairs for size, pairs in spent.items()},
        "milliseconds": {
            name: {"n": len(times), **{f"p{at}": percentile(times, at) for at in (50, 99)}}
            for name, times in beside._asdict().items()
        },
        "what_is_counted": "processor time of the guard's Python processes, without Redis",
    }
    return checks, details


def _ratio(name: str, pairs: list[tuple[float, float]], target: str) -> Check:
    """Return the median over rounds of a cost here by that at the base, with the range of it."""
    ratios = sorted(new / old for new, old in pairs)
    reason = None if ratios else "name a checkout of the earlier revision with --base"
    value = round(median(ratios), 3) if ratios else None
    interval = (round(ratios[0], 3), round(ratios[-1], 3)) if ratios else None
    return Check(
        id=name,
        value=value,
        unit="ratio",
        n=len(ratios),
        interval=interval,
        target=target or None,
        reason=reason,
    )


def _costs(pairs: list[tuple[Spent, Spent]]) -> list[tuple[float, float]]:
    return [(new.cpu_us, old.cpu_us) for new, old in pairs]


def percentile(times: list[float], at: int) -> float:
    """Return the time that so many hundredths of some times do not exceed."""
    return sorted(times)[min(len(times) * at // 100, len(times) - 1)]


def _same_calls(
    policy: Path, base: Path, rounds: int, progress: Progress
) -> list[tuple[float, float]]:
    """Return what one call costs here and at the base that is made again and again."""
    found: list[tuple[float, float]] = []
    with Rig() as here, Rig(root=base) as there:
        upstream = here.server(ANSWERS_AT_ONCE)
        new = Measured(here, upstream, policy, "--data", "memory")
        old = Measured(there, upstream, base / "policies/default.yaml")
        for guard in (new, old):
            run_load(guard.port, CONNECTIONS, 1.0)
        for done in range(rounds):
            progress(f"the same call, round {done + 1} of {rounds}", 0.2 * done / rounds)
            spent = {guard: guard.loaded() for guard in ((new, old) if done % 2 else (old, new))}
            found.append((spent[new], spent[old]))
    return found


def _first_sight(
    policy: Path, base: Path, rounds: int, progress: Progress
) -> dict[int, list[tuple[Spent, Spent]]]:
    """Return, by size of the results, what calls cost here and at the base in each round."""
    found: dict[int, list[tuple[Spent, Spent]]] = {size: [] for size in CALLS}
    with Rig() as here, Rig(root=base) as there:
        upstream = here.server(UPSTREAM)
        new = Measured(here, upstream, policy, "--data", "memory")
        old = Measured(there, upstream, base / "policies/default.yaml")
        number = 0
        for size in CALLS:
            for guard in (new, old):
                guard.spent(size, range(number, number := number + WARM_UP))
        for done in range(rounds):
            progress(f"first sight, round {done + 1} of {rounds}", 0.2 + 0.5 * done / rounds)
            for size, count in CALLS.items():
                numbers = range(number, number := number + count)
                order = (new, old) if done % 2 else (old, new)
                spent = {guard: guard.spent(size, numbers) for guard in order}
                found[size].append((spent[new], spent[old]))
    return found


class SmallCallTimes(NamedTuple):
    """How long small calls took, in milliseconds: alone, and beside results of a megabyte."""

    idle: list[float]
    beside: list[float]
    huge: list[float]
    """How long those took."""


def _small_beside_huge(policy: Path, rounds: int, progress: Progress) -> SmallCallTimes:
    """Return how long small calls took while nothing else, and while large results, passed.

    Both clients and both tool servers are processes of their own, so that one does not hold up the
    other: what makes a page of a megabyte answers nothing else meanwhile.
    """
    times = SmallCallTimes([], [], [])
    with Rig() as rig:
        aside = free_port()
        second = f"127.0.0.1:{aside}=http://127.0.0.1:{rig.server(UPSTREAM)}"
        words = ("--data", "memory", "--reverse", second)
        guard = Measured(rig, rig.server(UPSTREAM), policy, *words)
        calls(guard.port, SMALL, range(WARM_UP))
        calls(aside, HUGE, range(3))
        number = WARM_UP
        for done in range(rounds):
            progress(f"small beside huge, round {done + 1} of {rounds}", 0.7 + 0.3 * done / rounds)
            times.idle.extend(_said(_client(guard.port, SMALL, number, SECONDS)))
            huge = _client(aside, HUGE, number + HUGE, SECONDS)
            times.beside.extend(_said(_client(guard.port, SMALL, number + 2 * HUGE, SECONDS)))
            times.huge.extend(_said(huge))
            number += 3 * HUGE
    return times


def _client(port: int, size: int, first: int, seconds: float) -> subprocess.Popen[str]:
    words = ("client", str(port), str(size), str(first), str(seconds))
    return subprocess.Popen(  # noqa: S603  (our own command)
        [sys.executable, "-m", UPSTREAM, *words],
        stdout=subprocess.PIPE,
        encoding="ascii",
        cwd=Path(__file__).parents[2],
    )


def _said(client: subprocess.Popen[str]) -> list[float]:
    said, _ = client.communicate()
    times: list[float] = json.loads(said)
    return times


def _call_for(port: int, size: int, first: int, seconds: float) -> list[float]:
    """Make calls for so long; return the milliseconds of each but the first."""
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        count = 1 if size == HUGE else 50
        times += calls(port, size, range(first, first := first + count))
    return [round(1e3 * one, 3) for one in times]


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    while True:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            call = json.loads(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        *_, size, name = call["params"]["arguments"]["path"].split("/")
        text = page(int(size), int(name.removesuffix(".txt")))
        result = {"content": [{"type": "text", "text": text}]}
        body = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await writer.drain()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    """Serve, or call; see the module."""
    if sys.argv[1:2] == ["client"]:
        port, size, first = map(int, sys.argv[2:5])
        print(json.dumps(_call_for(port, size, first, float(sys.argv[5]))))
    else:
        asyncio.run(_serve())


if __name__ == "__main__":
    main()
