"""Three times as many calls as a guard can judge: what is served in time, what is refused.

Up to 4,000 agents of one principal each make calls at times of their own, together three times the
rate that was found to be the most.  Each has been served once before, as agents have that work.  An
agent has one call open; it gives up after a second, hangs up and connects anew.  Every other agent
heeds ``Retry-After``, the rest call again when it suits them.  Meanwhile a second principal makes a
few calls, and somebody looks at the admin port and at the console.  *Goodput* is what is answered
by the tool server within that second.

Then small calls of others beside two clients that send the guard all that one message can carry:
``python -m lab.overload PORT PRINCIPAL KIND`` is such a client, which makes one large request after
the other until its standard input ends: ``arguments`` of 5 to 7.5 MB that no mapping declares, or
``listing``, a list of 30,000 tools.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import random
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.listening_ports import connections_allowed
from guard.processes.loopback import START_SECONDS, Rig, free_port
from guard.replay.reports import Check, Report, machine
from lab.guard_processes import begin_guard, resident, worker_of
from lab.load import UPSTREAM
from lab.pages import page
from lab.tool_server import CALL, SLOW_SESSION, STREAM, TOOL
from lab.wire import Connection, call_body, credentials, percentile, post, shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guard.core.model import Json
    from lab.load import Progress

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
_CONNECTING: Final = 4
"""Agents that connect at the same time: few enough to be served at once."""
_PAUSE: Final = 0.05
_PROBE_SECONDS: Final = 0.2
_RETRY: Final = re.compile(rb"(?i)\r\nretry-after: *(\d+)")
TOOLS: Final = 30_000
SIZES: Final = (5_000_000, 7_500_000)
SMALL_AGENTS: Final = 4
SMALL_RATE: Final = 25.0
"""Small calls per second of each agent."""
LARGE_ROUNDS: Final = 2
LISTER_NAME: Final = "lister"
_PARTS: Final = 250
"""Texts of a list in the arguments."""
CALLS: Final = 400
ID: Final = 60 * 1024
"""Calls, and characters of the id of each: refusals of 25 MB together."""
SLOW_ROUNDS: Final = 3
"""Times the calls are made before there is a stream."""
HELD: Final = 8 * 1024 * 1024
"""Bytes that a worker may grow by."""
READ_SECONDS: Final = 60.0
_SMALL: Final = 4096
_EVERY: Final = 20
"""Calls between two looks at the worker."""


@dataclass(slots=True)
class Tally:
    """Outcomes of the calls of one principal."""

    unserved: int = 0
    """Calls that were refused, failed, or not answered within the deadline."""
    seconds: list[float] = field(default_factory=list)
    """Until each call was served."""

    @property
    def served(self) -> int:
        """Number of calls that were answered in time."""
        return len(self.seconds)


class Agent:
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
        self._connection = Connection(port)
        self._request = post("/mcp", CALL.encode(), shown(principal, principal))
        self._tally = tally
        self._rate = rate
        self._patient = patient
        self._random = random.Random(seed)  # noqa: S311  (times of calls, no secret)

    async def first(self) -> None:
        """Make a call that does not count, and wait until it is served, or lost."""
        with suppress(OSError, EOFError):
            await self._connection.exchange(self._request)

    async def work(self) -> None:
        """Make calls until cancelled; one that is due while another is open is not made."""
        while True:
            if self._rate:
                await asyncio.sleep(self._random.expovariate(self._rate))
            await asyncio.sleep(await self._call())

    async def _call(self) -> float:
        """Make a call; return the seconds to rest after it."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE):
                head, body = await self._connection.exchange(self._request)
        except (OSError, EOFError) as error:
            self._tally.unserved += 1
            return 0.0 if isinstance(error, TimeoutError) else _PAUSE
        announced = _RETRY.search(head)
        if announced or b'"isError": true' in body or not head.startswith(b"HTTP/1.1 200"):
            self._tally.unserved += 1
        else:
            self._tally.seconds.append(time.monotonic() - began)
        return float(announced[1]) if announced and self._patient else 0.0


@dataclass(slots=True)
class Onlooker:
    """Asks an address again and again whether it answers; any answer below 500 counts."""

    url: str
    asked: int = 0
    answered: int = 0

    async def work(self) -> None:
        """Ask until cancelled."""
        while True:
            answered = await asyncio.to_thread(_answers, self.url)
            self.asked += 1
            self.answered += answered
            await asyncio.sleep(_PROBE_SECONDS)


async def run_agents(
    agents: Sequence[Agent], length: float, onlookers: Sequence[Onlooker] = ()
) -> None:
    """Have agents make calls for a length in seconds.

    Args:
        agents: each has a connection and has been answered by it when the time begins.
        length: of the time.
        onlookers: look meanwhile.
    """
    gate = asyncio.Semaphore(_CONNECTING)

    async def connect(agent: Agent) -> None:
        async with gate:
            await agent.first()

    await asyncio.gather(*map(connect, agents))
    with suppress(TimeoutError):
        async with asyncio.timeout(length), asyncio.TaskGroup() as group:
            for agent in agents:
                group.create_task(agent.work())
            for onlooker in onlookers:
                group.create_task(onlooker.work())


def _loaded(port: int, seconds: float, count: int, *names: str, rate: float = 0.0) -> Tally:
    """Return the outcomes of calls of some agents, which have the names in turn."""
    tally = Tally()
    agents = [
        Agent(port, names[n % len(names)], tally, rate=rate, patient=rate > 0, seed=n)
        for n in range(count)
    ]
    asyncio.run(run_agents(agents, seconds))
    return tally


def _closed(port: int, seconds: float) -> int:
    """Return how many calls are served where :data:`CLOSED` are open together."""
    return _loaded(port, seconds, CLOSED, LOUD_NAME, QUIET_NAME).served


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


def bench_overload(policy: Path, *, seconds: float, progress: Progress) -> Report:
    """Find the highest rate of a guard, then ask three times as much of it; return the report.

    Args:
        policy: of the guard.
        seconds: of each load.
        progress: told what is going on, and which share is done.

    Raises:
        GuardError: a part could not be started.
    """
    loud, quiet = Tally(), Tally()
    with Rig() as rig:
        upstream, admin, page = rig.server(UPSTREAM), free_port(), f"127.0.0.1:{free_port()}"
        words = (*credentials(rig.directory, LOUD_NAME, QUIET_NAME), *FOR_THE_HASTY)
        onlookers = [Onlooker(f"http://127.0.0.1:{admin}/readyz"), Onlooker(f"http://{page}/")]
        port, _ = begin_guard(rig, policy, upstream, *words, "--console", page, admin=admin)
        for one in onlookers:
            _until_answered(one.url)
        progress("finding the highest rate", 0.0)
        _closed(port, seconds / 4)
        # Half of it is measured before the other load, and half after.
        served = _closed(port, seconds / 2)
        asked = FACTOR * served / seconds * 2
        progress("three times as many calls", 0.2)
        crowd = _crowd(port, asked / FACTOR, loud, quiet)
        asyncio.run(run_agents(crowd, seconds, onlookers))
        progress("the highest rate once more", 0.4)
        served += _closed(port, seconds / 2)
        unjudged = max(0, _count(upstream) - _allowed(rig.audit))
    goodput = loud.served + quiet.served
    large = large_messages(policy, seconds=seconds, progress=progress)
    sound = not unjudged and served
    reached = sum(one.answered == one.asked for one in onlookers)
    checks = [
        Check(
            id="overload_goodput",
            value=round(goodput / served, 3) if sound else None,
            unit="ratio",
            target=">= 0.9",
            reason=None if sound else f"{unjudged} calls passed that no audit line allows",
        ),
        held_for_slow_reader(policy),
        Check(id="overload_unjudged", value=unjudged, unit="count", target="= 0"),
        Check(
            id="overload_other_principal_served",
            value=round(quiet.served / (quiet.served + quiet.unserved or 1), 3),
            n=quiet.served + quiet.unserved,
            unit="fraction",
            target=">= 0.99",
        ),
        Check(
            id="overload_operators_reached",
            value=reached,
            unit="count",
            n=len(onlookers),
            target=f"= {len(onlookers)}",
        ),
        *large,
    ]
    details = {
        "asked_per_second": round(asked, 1),
        "peak_per_second": round(served / seconds, 1),
        "goodput_per_second": round(goodput / seconds, 1),
    }
    return Report(name="overload", machine=machine(), checks=checks, details=details)


def _answers(url: str) -> bool:
    """Return True if there is an answer other than an error of the server."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  (our own)
            answer.read()
    except OSError as error:
        return isinstance(error, urllib.error.HTTPError) and error.code < SERVER_ERROR
    return True


def _until_answered(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(url):
        if time.monotonic() > deadline:
            raise GuardError(f"`{url}` does not answer")
        time.sleep(_PAUSE)


def _count(upstream: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{upstream}/count") as answer:
        return int(answer.read())


def _allowed(audit: Path) -> int:
    """Return how many calls the audit log says were allowed."""
    lines = (json.loads(line) for line in audit.read_text("utf-8").splitlines())
    return sum(line["event"] == "guard.decision" and line["enforced"] == "allow" for line in lines)


# --- large messages ------------------------------------------------------------------------------


def _bodies(kind: str) -> list[bytes]:
    """Return the requests of a client, which it sends in turn."""
    if kind == "listing":
        return [b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}']
    found: list[bytes] = []
    for size in SIZES:
        extras: tuple[Json, ...] = (
            page(size, size),
            [f"user{n}@host{n}.test" for n in range(size // 24)],
            [page(size // _PARTS, n) for n in range(_PARTS)],
        )
        for extra in extras:
            arguments: dict[str, Json] = {"to": "team@example.com", "body": "hi", "extra": extra}
            found.append(call_body(TOOL, arguments))
    return found


def send_large(port: int, principal: str, kind: str) -> None:
    """Make one large request after the other until standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    head = {"content-type": "application/json", **shown(principal, principal)}
    bodies = itertools.cycle(_bodies(kind))
    print(port, flush=True)
    while not ended.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/mcp", next(bodies), head)
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            ended.wait(0.1)
        finally:
            connection.close()


def measure_large(policy: Path, *, seconds: float, progress: Progress) -> dict[str, list[float]]:
    """Return the seconds of small calls alone, beside large ones, and beside large ones elsewhere.

    The last ones go to the tool server directly: on a machine of few cores their clients and
    servers alone delay small calls, whatever the guard does.  A call that had no answer in time
    counts with the whole deadline.

    Args:
        policy: of the guard.
        seconds: of each of the loads; there are two rounds of each.
        progress: told what is going on, and which share is done.

    Raises:
        GuardError: a part could not be started.
    """
    found: dict[str, list[float]] = {"alone": [], "beside": [], "direct": []}
    with Rig() as rig:
        upstream = rig.server(UPSTREAM, str(TOOLS))
        port = rig.guard(
            policy, upstream, *credentials(rig.directory, QUIET_NAME, LOUD_NAME, LISTER_NAME)
        )
        _small_calls(port, 1.0)
        for number in range(LARGE_ROUNDS):
            for name, target in (("alone", None), ("beside", port), ("direct", upstream)):
                progress(f"small calls {name}", 0.6 + 0.2 * number)
                with ExitStack() as stack:
                    for sender, kind in ((LOUD_NAME, "arguments"), (LISTER_NAME, "listing")):
                        if target is not None:
                            client = rig.begin_server(__name__, str(target), sender, kind)
                            stack.callback(client.stop)
                            client.printed_port()
                    found[name] += _small_calls(port, seconds)
    return found


def _small_calls(port: int, seconds: float) -> list[float]:
    tally = _loaded(port, seconds, SMALL_AGENTS, QUIET_NAME, rate=SMALL_RATE)
    return [*tally.seconds, *[DEADLINE] * tally.unserved]


def large_messages(policy: Path, *, seconds: float, progress: Progress) -> list[Check]:
    """Return the figures of small calls beside large messages."""
    found = measure_large(policy, seconds=seconds, progress=progress)
    p99 = {name: percentile(times, 99) or DEADLINE for name, times in found.items()}
    return [
        Check(
            id=name,
            value=round(p99["beside"] / p99[base], 2),
            unit="ratio",
            n=len(found["beside"]),
            target=target,
        )
        for name, base, target in (
            ("p99_others_during_large_ratio", "alone", "<= 1.5"),
            ("p99_others_during_large_against_direct_ratio", "direct", None),
        )
    ]


# --- a client that never reads -------------------------------------------------------------------


def held_for_slow_reader(policy: Path) -> Check:
    """Post refused calls beside a stream that nobody reads; return the bytes that a worker held.

    The client opens an event stream (MCP over HTTP+SSE) and reads its first event only.  On another
    connection it posts calls that the guard refuses; their refusals belong into that stream.  Each
    refusal repeats the id of its call, which is long.  Three times as many such calls without a
    stream come first: the memory of a worker grows until its garbage is collected as fast as it is
    made.

    Raises:
        GuardError: the guard did not start, or does not answer.
    """
    with Rig() as rig, socket.socket() as stream:
        port, guard = begin_guard(rig, policy, rig.server(UPSTREAM))
        worker = worker_of(guard.process.pid)
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=READ_SECONDS)) as caller:
            before = max(_posted(caller, "other", worker)[1] for _ in range(SLOW_ROUNDS))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
            stream.settimeout(READ_SECONDS)
            stream.connect(("127.0.0.1", port))
            stream.sendall(b"GET /sse HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n\r\n")
            received = b""
            while STREAM not in received:
                if not (data := stream.recv(65536)):
                    raise GuardError("the guard has closed a connection that it is to answer")
                received += data
            into_stream, most = _posted(caller, SLOW_SESSION, worker)
    return Check(
        id="held_bytes_slow_reader",
        value=max(0, most - before) if into_stream else None,
        unit="bytes",
        n=CALLS * ID,
        target=f"<= {HELD}",
        reason=None if into_stream else "no refusal went into the stream",
    )


def _posted(caller: http.client.HTTPConnection, session: str, worker: int) -> tuple[int, int]:
    """Make refused calls; return how many were answered elsewhere, and the worker's most memory."""
    elsewhere, most = 0, 0
    arguments = {"to": "drop@evil.test", "subject": "s", "body": "b"}
    for number in range(CALLS):
        body = call_body(TOOL, arguments, f"{number}".rjust(ID, "x"))
        kind = {"content-type": "application/json"}
        caller.request("POST", f"/messages/?session_id={session}", body, kind)
        answer = caller.getresponse()
        answer.read()
        elsewhere += answer.status == 202
        if number % _EVERY == 0:
            most = max(most, resident(worker))
    return elsewhere, max(most, resident(worker))


if __name__ == "__main__":
    send_large(int(sys.argv[1]), sys.argv[2], sys.argv[3])
