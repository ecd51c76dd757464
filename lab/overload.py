"""Three times as many calls as a guard can judge: what is served in time, what is refused.

Up to 4,000 agents of one principal each make calls at times of their own, together three times the
rate that was found to be the most.  Each has been served once before, as agents have that work.  An
agent has one call open; it gives up after a second, hangs up and connects anew.  Every other agent
heeds ``Retry-After``, the rest call again when it suits them.  Meanwhile a second principal makes a
few calls, and somebody looks at the admin port and at the console.  *Goodput* is what is answered
by the tool server within that second.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.listening_ports import connections_allowed
from guard.processes.loopback import START_SECONDS, Rig, free_port
from guard.replay.reports import Check, Report, machine
from lab.load import ANSWER, CALL, Responder, serve_until_end_of_input
from lab.slow_reader import held_for_slow_reader
from lab.wire import post, shown, write_credentials

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE: Final = 1.0
"""Seconds after which a caller gives up."""
FOR_THE_HASTY: Final = ("--queue-timeout", "0.75")
"""Options of the guard where callers give up so soon; most give a tool longer."""
AGENTS: Final = (200, 4000)
"""Minimum and maximum of the loud principal's agents: twice the number of calls that are served in
a second, so that a slow machine gets three times the load that it can serve, but not too many
connections as well."""
CLOSED: Final = 64
"""Agents that call without a pause, to find the highest rate."""
FACTOR: Final = 3.0
QUIET: Final = 4
"""Agents of the other principal."""
QUIET_RATE: Final = 5.0
"""Calls per second of each."""
LOUD_NAME, QUIET_NAME = "loud", "quiet"
SERVER_ERROR: Final = 500
_SWEEP: Final = 0.05
_CONNECTING: Final = 4
"""Agents that connect at the same time: few enough to be served at once."""
_PROBE_SECONDS: Final = 0.2


class CountingServer(Responder):
    """A tool server that tells at ``/count`` how many other requests it was sent."""

    received = 0
    """By all of its connections."""

    def answer(self, head: bytes, body: bytes) -> bytes:
        """Count a request, or return how many there were."""
        del body
        if head.startswith(b"GET /count "):
            text = b"%d" % CountingServer.received
            return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)
        CountingServer.received += 1
        return ANSWER


@dataclass(slots=True)
class Tally:
    """Outcomes of the calls of one principal."""

    wanted: int = 0
    """Calls that were due, whether or not the agent could make them."""
    served: int = 0
    refused: int = 0
    """Told when to retry."""
    late: int = 0
    """Calls that were not answered within the deadline."""
    failed: int = 0
    """Any other answer, or none."""
    postponed: int = 0
    """Due while the agent's last call was open, or before it was to retry."""
    seconds: list[float] = field(default_factory=list)
    """Until a call was served."""
    refusal_seconds: list[float] = field(default_factory=list)
    """Until one was refused, that its agent made when it was asked to."""

    def document(self, length: float) -> dict[str, float | int | None]:
        """Return it as rates and times, over a length in seconds."""
        return {
            "due_per_second": round(self.wanted / length, 1),
            "made": self.wanted - self.postponed,
            "served": self.served,
            "served_per_second": round(self.served / length, 1),
            "refused_per_second": round(self.refused / length, 1),
            "late": self.late,
            "failed": self.failed,
            "postponed": self.postponed,
            "served_p50_ms": _milliseconds(self.seconds, 0.5),
            "served_p99_ms": _milliseconds(self.seconds, 0.99),
            "refused_p99_ms": _milliseconds(self.refusal_seconds, 0.99),
        }


class Agent(asyncio.Protocol):
    """Makes calls on one connection, one at a time.

    Args:
        port: of the guard.
        principal: whose it is.
        tally: of what becomes of its calls.
        rate: calls per second, at random times; 0: the next follows the answer at once.
        patient: whether it heeds ``Retry-After``.
        seed: of its times.
    """

    def __init__(
        self,
        port: int,
        principal: str,
        tally: Tally,
        *,
        rate: float,
        patient: bool,
        seed: int,
    ) -> None:
        self._port = port
        self._request = request_of(principal)
        self._tally = tally
        self._rate = rate
        self._patient = patient
        self._random = random.Random(seed)  # noqa: S311  (times of calls, no secret)
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._sent = 0.0
        """Time at which its open call was made; 0 where none is open."""
        self._rests_until = 0.0
        self._is_told = False
        """True if it was told to rest and does not: its data are not read for a while."""
        self._ends = False
        self._connecting: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        """Ends with the answer to the call that does not count."""

    async def connect(self) -> None:
        """Open its connection."""
        with suppress(OSError):
            await asyncio.get_running_loop().create_connection(
                lambda: self, "127.0.0.1", self._port
            )

    async def first(self) -> None:
        """Make a call that does not count, and wait until it is served, or lost."""
        if self._transport is None:
            return
        self._first = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        await self._first
        self._first = None

    def begin(self) -> None:
        """Make calls from now on."""
        if self._rate:
            self._later()
        else:
            self._call()

    def end(self) -> None:
        """Make no more, and hang up."""
        self._ends = True
        if self._transport is not None:
            self._transport.abort()

    def give_up(self, before: float) -> None:
        """Hang up where the open call was made before a time, and connect anew."""
        if 0 < self._sent < before:
            self._tally.late += 1
            self._sent = 0.0
            if self._transport is not None:
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note it."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport
        self._buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        """Note a call that is lost with it, and connect anew."""
        del exc
        self._transport = None
        self._is_told = False
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        if self._sent:
            self._tally.failed += not self._ends
            self._sent = 0.0
        if not self._ends:
            self._connecting = asyncio.get_running_loop().create_task(self._again())

    async def _again(self) -> None:
        await self.connect()
        if not self._rate:
            self._call()

    def data_received(self, data: bytes) -> None:
        """Read an answer."""
        self._buffer += data
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if not blank or not (self._sent or self._first):
            return
        head = head.lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
        if len(rest) < length:
            return
        self._buffer = b""
        if self._first is None:
            self._answered(head, rest)
        elif not self._first.done():
            self._first.set_result(None)

    def _answered(self, head: bytes, body: bytes) -> None:
        now = asyncio.get_running_loop().time()
        taken, self._sent = now - self._sent, 0.0
        announce = head.partition(b"\r\nretry-after:")[2].split(b"\r\n", 1)[0]
        if announce:
            self._tally.refused += 1
            if not self._is_told:
                self._tally.refusal_seconds.append(taken)
            self._is_told = not self._patient
            self._rests_until = now + int(announce) if self._patient else 0.0
        elif b'"isError": true' in body or not head.startswith(b"http/1.1 200"):
            self._tally.failed += 1
        else:
            self._is_told = False
            self._tally.served += 1
            self._tally.seconds.append(taken)
        if not self._rate:
            self._call()

    def _later(self) -> None:
        if not self._ends:
            pause = self._random.expovariate(self._rate)
            asyncio.get_running_loop().call_later(pause, self._due)

    def _due(self) -> None:
        self._later()
        self._call()

    def _call(self) -> None:
        if self._ends:
            return
        self._tally.wanted += 1
        now = asyncio.get_running_loop().time()
        if self._sent or self._transport is None or now < self._rests_until:
            self._tally.postponed += 1
            return
        self._sent = now
        self._transport.write(self._request)


def request_of(principal: str) -> bytes:
    """Return a call of a principal, as bytes of HTTP/1.1."""
    return post("/mcp", CALL.encode(), shown(secret(principal), principal))


def secret(principal: str) -> str:
    """Return the secret of a principal."""
    return f"secret of {principal}"


def _milliseconds(seconds: list[float], share: float) -> float | None:
    if not seconds:
        return None
    return round(sorted(seconds)[int(share * (len(seconds) - 1))] * 1000, 1)


async def run_agents(
    agents: list[Agent],
    length: float,
    began: Callable[[], object] = lambda: None,
) -> None:
    """Have agents make calls for a length in seconds.

    Args:
        agents: each has a connection and has been answered by it when the time begins.
        length: of the time.
        began: told that it begins.
    """
    gate = asyncio.Semaphore(_CONNECTING)

    async def connect(agent: Agent) -> None:
        async with gate:
            await agent.connect()
            await agent.first()

    await asyncio.gather(*map(connect, agents))
    began()
    loop = asyncio.get_running_loop()
    end = loop.time() + length
    for agent in agents:
        agent.begin()
    while loop.time() < end:
        await asyncio.sleep(_SWEEP)
        for agent in agents:
            agent.give_up(loop.time() - DEADLINE)
    for agent in agents:
        agent.end()
    await asyncio.sleep(_SWEEP)


class Onlooker(threading.Thread):
    """Asks an address again and again whether it answers.

    Args:
        url: any answer below 500 counts.
    """

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._ended = threading.Event()
        self.asked = 0
        self.answered = 0
        self.seconds: list[float] = []

    def run(self) -> None:
        """Ask until told to end."""
        while not self._ended.is_set():
            self.asked += 1
            began = time.perf_counter()
            self.answered += _answers(self._url)
            self.seconds.append(time.perf_counter() - began)
            self._ended.wait(_PROBE_SECONDS)

    def end(self) -> dict[str, float | int | None]:
        """Stop, and return what was seen."""
        self._ended.set()
        self.join()
        p99 = _milliseconds(self.seconds, 0.99)
        return {"asked": self.asked, "answered": self.answered, "p99_ms": p99}


@dataclass(frozen=True, slots=True)
class Overload:
    """Figures of one guard at its highest rate, and beyond."""

    asked: float
    """Calls per second that were due beyond it: three times what it served at first."""
    peak: float
    """Calls per second that were served in time, at the rate that suits it best: half of it was
    measured before the other load, and half after."""
    goodput: float
    """Likewise while three times as many were due."""
    loud: dict[str, float | int | None]
    quiet: dict[str, float | int | None]
    reached: dict[str, dict[str, float | int | None]]
    """Results of the admin port and the console meanwhile."""
    unjudged: int
    """Requests at the tool server beyond those that the audit log allows."""

    @property
    def share(self) -> float:
        """Goodput by the highest rate."""
        return round(self.goodput / self.peak, 3) if self.peak else 0.0


def _crowd(port: int, peak: float, loud: Tally, quiet: Tally) -> list[Agent]:
    """Return agents that together ask three times the highest rate, and those of another."""
    # The worker may have as many descriptors as this process: its calls are too many here, and not
    # its connections, of which a third stays free for those that are made anew.
    room = connections_allowed() * 2 // 3
    count = min(max(round(2 * peak), AGENTS[0]), AGENTS[1], room)
    rate = FACTOR * peak / count
    agents = [
        Agent(port, LOUD_NAME, loud, rate=rate, patient=bool(n % 2), seed=n) for n in range(count)
    ]
    return agents + [
        Agent(port, QUIET_NAME, quiet, rate=QUIET_RATE, patient=True, seed=count + n)
        for n in range(QUIET)
    ]


def measure_overload(
    policy: Path,
    *,
    seconds: float,
    announce: Callable[[str], object] = lambda _: None,
) -> Overload:
    """Find the highest rate of a guard, then ask three times as much of it.

    Args:
        policy: of the guard.
        seconds: of each of both loads.
        announce: what is going on.

    Raises:
        GuardError: a part could not be started.
    """
    with Rig() as rig:
        server, port, admin = rig.begin_server(__name__), free_port(), free_port()
        upstream = server.printed_port()
        credentials = write_credentials(
            rig.directory / "agents.toml", {name: secret(name) for name in (LOUD_NAME, QUIET_NAME)}
        )
        words: tuple[str, ...] = (
            *("--policy", str(policy.resolve()), "--credentials", str(credentials), *FOR_THE_HASTY),
            *("--reverse", f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"),
        )
        looked_at = {"admin": f"http://127.0.0.1:{admin}/readyz"}
        if all(map(find_spec, ("authlib", "jinja2", "sse_starlette"))):
            page = f"127.0.0.1:{free_port()}"
            words += ("--console", page)
            looked_at["console"] = f"http://{page}/"
        guard = rig.begin_guard(*words, admin=admin)
        guard.wait_ready()
        for url in looked_at.values():
            _until_answered(url)
        announce("finding the highest rate")
        asyncio.run(run_agents(_closed(port, Tally()), seconds / 4))

        def at_highest() -> Tally:
            best = Tally()
            asyncio.run(run_agents(_closed(port, best), seconds / 2))
            return best

        before = at_highest()
        peak = before.served / seconds * 2
        announce("three times as many calls")
        onlookers = {name: Onlooker(url) for name, url in looked_at.items()}

        def begin() -> None:
            for onlooker in onlookers.values():
                onlooker.start()

        loud, quiet = Tally(), Tally()
        agents = _crowd(port, peak, loud, quiet)
        asyncio.run(run_agents(agents, seconds, begin))
        reached = {name: onlooker.end() for name, onlooker in onlookers.items()}
        announce("the highest rate once more")
        after = at_highest()
        best = before.served + after.served
        unjudged = _count(upstream) - _allowed(rig.audit)
    return Overload(
        asked=round(FACTOR * peak, 1),
        peak=round(best / seconds, 1),
        goodput=round((loud.served + quiet.served) / seconds, 1),
        loud=loud.document(seconds),
        quiet=quiet.document(seconds),
        reached=reached,
        unjudged=max(0, unjudged),
    )


def overload_check(found: Overload) -> Check:
    """Return the figure; None where a call passed that no line of the audit log allows."""
    sound = not found.unjudged
    return Check(
        id="overload_goodput",
        value=found.share if sound else None,
        unit="ratio",
        target=">= 0.9",
        reason=None if sound else f"{found.unjudged} calls passed that no audit line allows",
    )


def bench_overload(
    policy: Path, *, seconds: float, progress: Callable[[str, float], object]
) -> Report:
    """Run the guard and return the report.

    Args:
        policy: of the guard.
        seconds: of each load.
        progress: told what is going on, and which share is done.
    """
    limited = measure_overload(policy, seconds=seconds, announce=lambda said: progress(said, 0.5))
    reached = [one["answered"] == one["asked"] for one in limited.reached.values()]
    quiet = limited.quiet
    return Report(
        name="overload",
        machine=machine(),
        checks=[
            overload_check(limited),
            held_for_slow_reader(policy),
            Check(id="overload_unjudged", value=limited.unjudged, unit="count", target="= 0"),
            Check(
                id="overload_other_principal_served",
                value=round((quiet["served"] or 0) / (quiet["made"] or 1), 3),
                n=int(quiet["made"] or 0),
                unit="fraction",
                target=">= 0.99",
            ),
            Check(
                id="overload_operators_reached",
                value=sum(reached),
                unit="count",
                n=len(reached),
                target=f"= {len(reached)}",
            ),
        ],
        details={"with_limits": asdict(limited)},
    )


def _closed(port: int, tally: Tally) -> list[Agent]:
    """Return agents that have :data:`CLOSED` calls open together."""
    names = (LOUD_NAME, QUIET_NAME)
    return [Agent(port, names[n % 2], tally, rate=0, patient=False, seed=n) for n in range(CLOSED)]


def _answers(url: str) -> bool:
    """Return True if there is an answer other than an error of the server."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  (our own)
            answer.read()
    except urllib.error.HTTPError as error:
        return error.code < SERVER_ERROR
    except OSError:
        return False
    return True


def _until_answered(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if _answers(url):
            return
        time.sleep(_SWEEP)
    raise GuardError(f"`{url}` does not answer")


def _count(upstream: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{upstream}/count") as answer:
        return int(answer.read())


def _allowed(audit: Path) -> int:
    """Return how many calls the audit log says were allowed."""
    found = 0
    with audit.open(encoding="utf-8") as lines:
        for line in lines:
            if '"guard.decision"' in line:
                found += json.loads(line)["enforced"] == "allow"
    return found


if __name__ == "__main__":
    asyncio.run(serve_until_end_of_input(CountingServer))
