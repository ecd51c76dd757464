"""``guard lab bench console --part ratio``: what a console, and what spans, cost the calls.

Each is compared on one guard with itself, in turns (:mod:`guard.lab.interleaved`): a call of one
worker costs up to a tenth more than of another one of the same code.  A console that is not to be
there is stopped (SIGSTOP): the worker talks to it never, so a stopped one is none to it.
"""

from __future__ import annotations

import http
import math
import os
import signal
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.loopback import Rig, free_port
from guard.core.errors import GuardError
from guard.lab.interleaved import in_turns, ratio_of
from guard.lab.load import UPSTREAM, WORKER, Post, processes, run_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from guard.lab.load import Progress

WITH_CONSOLE: Final = "requests_ratio_with_console"
WITH_SPANS: Final = "requests_ratio_with_spans"
TARGET: Final = ">= 0.97"
CONNECTIONS: Final = 16
SECONDS: Final = 2.0
"""How long the load of one turn lasts."""
LEAD: Final = 0.6
"""Of it, what is not counted beside a console: until it has taken in the first batch, which is
every half second, it has done nothing for this load yet."""
WINDOW: Final = 1.3
GUARDS: Final = 3
"""Started one after the other: what one process happens to cost is not the whole sample."""
CAUGHT_UP: Final = 60.0
"""Longest wait for a console that takes in what was written while it was stopped."""
CONSOLE: Final = "guard.console.server"
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
"""A ``traceparent`` without its last digit, which says whether it is sampled."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What was seen of a guard in one turn."""

    calls: float
    seconds: float
    """In which so many calls were done."""
    worker: float
    """Processor seconds of its worker meanwhile."""
    console: float = 0.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A guard under load."""

    port: int
    supervisor: int
    """Its process."""
    audit: Path


def compare_console(
    policy: Path, people: str, secret: str, blocks: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare a guard whose console is followed by a browser with itself while that is stopped.

    Args:
        policy: of the guard.
        people: the console's people file.
        secret: of one of them.
        blocks: of four turns each, over all guards.
        progress: told what is going on.

    Returns:
        The check without its id, and details.
    """
    pairs: list[tuple[list[Turn], list[Turn]]] = []
    for number in range(GUARDS):
        with Rig() as rig:
            (rig.directory / "people.toml").write_text(people, encoding="utf-8")
            port = free_port()
            options = ("--console", f"127.0.0.1:{port}")
            on = _begin(
                rig, policy, *options, "--console-people", str(rig.directory / "people.toml")
            )
            _wait_listening(port)
            console, _ = processes(on.supervisor)[CONSOLE]
            head = f"GET /feed HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            with _browser(port, f"{head}authorization: Bearer {secret}\r\n\r\n".encode()):
                sides = partial(_beside, on), partial(_alone, on, console)
                share = blocks // GUARDS + (number < blocks % GUARDS)
                for pair in in_turns(share, *sides, seed=number):
                    pairs.append(pair)
                    progress(f"console, block {len(pairs)} of {blocks}", len(pairs) / blocks)
    return _compared(pairs), {
        "compared_with": "the same guard while its console is stopped (SIGSTOP)",
        "guards": GUARDS,
        **_costs(pairs),
        "console_us_per_call": _us(pairs, 0, lambda turn: turn.console),
    }


def compare_spans(
    policy: Path, blocks: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare a guard that sends spans with itself while callers' traces are not sampled.

    What the worker spends on spans after the load is added to the time of the load: under a load
    that does not end, calls would have waited for it.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    from guard.adapters.otel import SECONDS as WAITS

    def sampled(on: Loaded) -> Turn:
        turn = _whole(on, sampled=True)
        before = processes(on.supervisor)[WORKER][1]
        time.sleep(1.1 * WAITS)
        late = processes(on.supervisor)[WORKER][1] - before
        return Turn(turn.calls, turn.seconds + late, turn.worker + late)

    pairs: list[tuple[list[Turn], list[Turn]]] = []
    with _receiver() as (url, taken):
        for number in range(GUARDS):
            with Rig() as rig:
                on = _begin(rig, policy, "--otlp", url)
                share = blocks // GUARDS + (number < blocks % GUARDS)
                sides = partial(sampled, on), partial(_whole, on, sampled=False)
                for pair in in_turns(share, *sides, seed=number):
                    pairs.append(pair)
                    progress(f"spans, block {len(pairs)} of {blocks}", len(pairs) / blocks)
    return _compared(pairs), {
        "compared_with": "the same guard where the traceparent of calls says not sampled",
        "guards": GUARDS,
        **_costs(pairs),
        "bytes_taken_by_the_receiver": sum(taken),
    }


def _begin(rig: Rig, policy: Path, *options: str) -> Loaded:
    """Start a guard and let it serve for a second, which is not counted."""
    port = free_port()
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{rig.server(UPSTREAM)}"
    child = rig.begin_guard("--policy", str(policy.resolve()), "--reverse", listener, *options)
    child.wait_ready()
    run_load(port, CONNECTIONS, 1.0)
    return Loaded(port, child.process.pid, rig.audit)


def _wait_listening(port: int) -> None:
    deadline = time.monotonic() + CAUGHT_UP
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise GuardError(f"the console did not listen on {port}")


@contextmanager
def _browser(port: int, request: bytes) -> Iterator[None]:
    """Follow the decisions as a page does, and throw them away."""
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.settimeout(None)
        client.sendall(request)

        def read() -> None:
            while client.recv(1 << 20):
                pass

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield
        finally:
            client.shutdown(socket.SHUT_RDWR)
            thread.join()


def _beside(on: Loaded) -> Turn:
    """Measure beside the console, which has nothing left of earlier turns to do."""
    _caught_up(on.audit)
    return _windowed(on)


def _alone(on: Loaded, console: int) -> Turn:
    os.kill(console, signal.SIGSTOP)
    try:
        return _windowed(on)
    finally:
        os.kill(console, signal.SIGCONT)


def _caught_up(audit: Path) -> None:
    """Wait until the console has taken in the whole log.

    Raises:
        GuardError: it did not.
    """
    index = f"file:{audit.with_name(audit.name + '.index')}?mode=ro"
    deadline = time.monotonic() + CAUGHT_UP
    with closing(sqlite3.connect(index, uri=True, timeout=CAUGHT_UP)) as db:
        while db.execute("SELECT max(offset) FROM places").fetchone()[0] < audit.stat().st_size:
            if time.monotonic() > deadline:
                raise GuardError("the console does not keep up with its log")
            time.sleep(0.02)


def _windowed(on: Loaded) -> Turn:
    """Measure a stretch of a load that began before and ends after it, by lines of the log."""
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(_load, on, Post())
        time.sleep(LEAD)
        first = time.perf_counter(), on.audit.stat().st_size, processes(on.supervisor)
        time.sleep(WINDOW)
        last = time.perf_counter(), on.audit.stat().st_size, processes(on.supervisor)
        load.result()
    with on.audit.open("rb") as file:
        file.seek(first[1])
        lines = file.read(last[1] - first[1]).count(b"\n")
    spent = {name: last[2][name][1] - first[2][name][1] for name in (WORKER, CONSOLE)}
    return Turn(lines, last[0] - first[0], spent[WORKER], spent[CONSOLE])


def _whole(on: Loaded, *, sampled: bool) -> Turn:
    before = processes(on.supervisor)[WORKER][1]
    headers = (*Post().headers, ("traceparent", f"{TRACE}{int(sampled)}"))
    per_second = _load(on, Post(headers=headers))
    spent = processes(on.supervisor)[WORKER][1] - before
    return Turn(per_second * SECONDS, SECONDS, spent)


def _load(on: Loaded, post: Post) -> float:
    """Load a guard; return its calls per second.

    Raises:
        GuardError: some were refused: something else would be measured.
    """
    load = run_load(on.port, CONNECTIONS, SECONDS, post)
    if load.errors:
        raise GuardError(f"{load.errors} of the calls failed")
    return load.per_second


def _compared(pairs: list[tuple[list[Turn], list[Turn]]]) -> dict[str, Any]:
    found = ratio_of([math.log(_rate(here) / _rate(there)) for here, there in pairs])
    return {
        "value": round(found.value, 3),
        "unit": "ratio",
        "n": 2 * len(pairs),
        "interval": (round(found.low, 3), round(found.high, 3)),
        "target": TARGET,
    }


def _rate(turns: list[Turn]) -> float:
    return sum(one.calls for one in turns) / sum(one.seconds for one in turns)


def _costs(pairs: list[tuple[list[Turn], list[Turn]]]) -> dict[str, Any]:
    """Return the worker's processor time per call, which others on the machine disturb less."""
    found = ratio_of([math.log(_per_call(there) / _per_call(here)) for here, there in pairs])
    return {
        "worker_us_per_call": _us(pairs, 0, lambda turn: turn.worker),
        "worker_us_per_call_without": _us(pairs, 1, lambda turn: turn.worker),
        "processor_time_ratio_of_workers": [round(one, 3) for one in found],
    }


def _per_call(turns: list[Turn]) -> float:
    return sum(one.worker for one in turns) / sum(one.calls for one in turns)


def _us(
    pairs: list[tuple[list[Turn], list[Turn]]], side: int, of: Callable[[Turn], float]
) -> float:
    """Return the microseconds per call that one side has spent over all turns."""
    turns = [turn for pair in pairs for turn in pair[side]]
    return round(sum(map(of, turns)) / sum(turn.calls for turn in turns) * 1e6, 1)


@contextmanager
def _receiver() -> Iterator[tuple[str, list[int]]]:
    """Serve what takes spans; yield its URL, and the sizes of what it was sent."""
    taken: list[int] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(len(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(http.HTTPStatus.OK)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name there)
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", taken
    finally:
        server.shutdown()
        server.server_close()
