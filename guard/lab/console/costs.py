"""``guard lab bench console --part ratio``: the cost of a console, and of spans, per call.

Two guards of the same options work in turns of an eighth of a second (:mod:`guard.lab.interleaved`)
under loads that never close a connection: what disturbs a machine lasts longer than a turn, and is
the same for both.  Of two processes of the same code one may be a tenth slower than the other, so
they change places halfway, and a block of before is taken together with one of after.

Who has no turn rests: his load, and what would work for him late (the console, or the worker whose
thread sends spans), are stopped (SIGSTOP), so that all that they do is done in his turns.
"""

from __future__ import annotations

import http
import importlib
import itertools
import math
import os
import random
import signal
import socket
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.loopback import Rig, free_port
from guard.core.errors import GuardError
from guard.lab.interleaved import in_turns, ratio_of
from guard.lab.load import (
    UPSTREAM,
    WORKER,
    PausedLoad,
    Post,
    processes,
    processor_time,
    run_load,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from guard.lab.load import Progress

WITH_CONSOLE: Final = "requests_ratio_with_console"
WITH_SPANS: Final = "requests_ratio_with_spans"
TARGET: Final = ">= 0.97"
CONNECTIONS: Final = 16
SECONDS: Final = 0.125
"""How long the load of one turn lasts.

On a busy machine two stretches of the same guard's work differ by 14 % (95 %) in ten minutes of
turns of two seconds, by 4 % in those of half a second, and by 1.4 % in these."""
GUARDS: Final = 3
"""Pairs of guards, one after the other: what one process happens to cost is not the whole sample.
"""
CAUGHT_UP: Final = 60.0
"""Longest wait for a console that takes in what was written while it was stopped."""
CONSOLE: Final = "guard.console.server"
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
"""A ``traceparent`` without its last digit, which says whether it is sampled."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The measurements of a guard in one turn."""

    calls: int
    seconds: float
    """In which so many calls were done."""
    worker: float
    """Processor seconds of its worker meanwhile."""
    console: float
    """Of its console; 0 where it has none."""


Block = tuple[list[Turn], list[Turn]]
"""Turns with what is measured, and those without."""


@dataclass(frozen=True, slots=True)
class Side:
    """A guard under load."""

    port: int
    worker: int
    """Its process."""
    console: int
    """Its process, 0 where there is none."""
    audit: Path

    def turn(self, load: PausedLoad, *resting: int) -> Turn:
        """Measure a burst of the load.

        Args:
            load: on this guard.
            resting: processes that do something in this guard's turns only.
        """
        for pid in resting:
            os.kill(pid, signal.SIGCONT)
        first = self._look()
        load.burst(SECONDS)
        size, *last = self._look()
        for pid in resting:
            os.kill(pid, signal.SIGSTOP)
        with self.audit.open("rb") as file:
            file.seek(first[0])
            lines = file.read(size - first[0]).count(b"\n")
        return Turn(lines, *(now - then for now, then in zip(last, first[1:], strict=True)))

    def _look(self) -> tuple[int, float, float, float]:
        """Return the size of the log, the time, and the processor times so far."""
        console = processor_time(self.console) if self.console else 0.0
        worker = processor_time(self.worker)
        return self.audit.stat().st_size, time.perf_counter(), worker, console


def compare_console(
    policy: Path, people: str, secret: str, blocks: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare guards whose console is followed by a browser with those whose console is stopped.

    A worker never talks to its console, so a stopped one is none to it.

    Args:
        policy: of the guards.
        people: the console's people file.
        secret: of one of them.
        blocks: of four turns each, over all guards.
        progress: told what is going on.

    Returns:
        The check without its id, and details.
    """

    @contextmanager
    def followed() -> Iterator[Side]:
        port = free_port()
        with Rig() as rig:
            names = rig.directory / "people.toml"
            names.write_text(people, encoding="utf-8")
            options = ("--console", f"127.0.0.1:{port}", "--console-people", str(names))
            side = _begun(rig, policy, *options)
            head = f"GET /feed HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            _wait_listening(port)
            with (
                _browser(port, f"{head}authorization: Bearer {secret}\r\n\r\n".encode()),
                _at_work_again(side.console),
            ):
                yield side

    def measured(on: Side, off: Side, blocks: int, seed: int) -> Iterator[Block]:
        os.kill(on.console, signal.SIGCONT)
        _caught_up(on.audit)
        for one in (on, off):
            os.kill(one.console, signal.SIGSTOP)
        with PausedLoad(on.port, CONNECTIONS) as here, PausedLoad(off.port, CONNECTIONS) as there:
            sides = partial(on.turn, here, on.console), partial(off.turn, there)
            yield from in_turns(blocks, *sides, seed=seed)

    pairs = _pairs(followed, measured, blocks, partial(progress, "console"))
    return _compared(pairs), {
        "compared_with": "the same guards while their console is stopped (SIGSTOP)",
        **_costs(pairs),
        "console_us_per_call": _us(pairs, 0, lambda turn: turn.console),
    }


def compare_spans(
    policy: Path, blocks: int, progress: Progress
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compare guards that send spans with those whose callers' traces are not sampled.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    importlib.import_module("guard.adapters.otel")

    def measured(on: Side, off: Side, blocks: int, seed: int) -> Iterator[Block]:
        def post(flag: int) -> Post:
            return Post(headers=(*Post().headers, ("traceparent", f"{TRACE}{flag}")))

        with (
            PausedLoad(on.port, CONNECTIONS, post(1)) as here,
            PausedLoad(off.port, CONNECTIONS, post(0)) as there,
            _at_work_again(on.worker),
            _at_work_again(off.worker),
        ):
            for one in (on, off):
                os.kill(one.worker, signal.SIGSTOP)
            sides = partial(on.turn, here, on.worker), partial(off.turn, there, off.worker)
            yield from in_turns(blocks, *sides, seed=seed)

    with _receiver() as (url, taken):

        @contextmanager
        def told() -> Iterator[Side]:
            with Rig() as rig:
                yield _begun(rig, policy, "--otlp", url)

        pairs = _pairs(told, measured, blocks, partial(progress, "spans"))
    return _compared(pairs), {
        "compared_with": "the same guards where the traceparent of calls says not sampled",
        **_costs(pairs),
        "bytes_taken_by_the_receiver": sum(taken),
    }


def _pairs(
    guard: Callable[[], AbstractContextManager[Side]],
    measured: Callable[[Side, Side, int, int], Iterator[Block]],
    blocks: int,
    progress: Callable[[float], object],
) -> list[tuple[Block, Block]]:
    """Measure pairs of guards that change places; return blocks of before with those of after.

    A block with a turn in which no call came through, as on a machine that is far too busy, is left
    out.

    Args:
        guard: starts one.
        measured: yields blocks of a guard with what is measured and one without.
        blocks: over all of them.
        progress: told the share that is done.
    """
    found: list[tuple[Block, Block]] = []
    each = math.ceil(blocks / GUARDS / 2)
    done = itertools.count(1)

    def taken(on: Side, off: Side, seed: int) -> Iterator[Block]:
        for block in measured(on, off, each, seed):
            progress(next(done) / (2 * GUARDS * each))
            if all(turn.calls for side in block for turn in side):
                yield block

    for number in range(GUARDS):
        with guard() as one, guard() as other:
            before = list(taken(one, other, 2 * number))
            found += zip(before, taken(other, one, 2 * number + 1), strict=False)
    return found


def _begun(rig: Rig, policy: Path, *options: str) -> Side:
    """Start a guard and let it serve for a second, which is not counted."""
    port = free_port()
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{rig.server(UPSTREAM)}"
    child = rig.begin_guard("--policy", str(policy.resolve()), "--reverse", listener, *options)
    child.wait_ready()
    run_load(port, CONNECTIONS, 1.0)
    found = processes(child.process.pid)
    return Side(port, found[WORKER][0], found.get(CONSOLE, (0, 0.0))[0], rig.audit)


@contextmanager
def _at_work_again(pid: int) -> Iterator[None]:
    """Have a process that was stopped go on in the end; else it could not end itself."""
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


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


def _compared(pairs: list[tuple[Block, Block]]) -> dict[str, Any]:
    found = ratio_of([_logarithm(pair, _per_second) for pair in pairs])
    return {
        "value": round(found.value, 4),
        "unit": "ratio",
        "n": len(pairs),
        "interval": (round(found.low, 4), round(found.high, 4)),
        "target": TARGET,
    }


def _logarithm(pair: tuple[Block, Block], figure: Callable[[list[Turn]], float]) -> float:
    """Return the ratio of both sides, in which what the guards themselves differ by cancels."""
    return sum(math.log(figure(here) / figure(there)) for here, there in pair) / 2


def _per_second(turns: list[Turn]) -> float:
    return sum(one.calls for one in turns) / sum(one.seconds for one in turns)


def _per_call(turns: list[Turn]) -> float:
    return sum(one.worker for one in turns) / sum(one.calls for one in turns)


def _costs(pairs: list[tuple[Block, Block]]) -> dict[str, Any]:
    """Return the ratio of the worker's processor time per call, and that of turns of one side.

    The last is the check of the measure: its interval has 1 in it, but for one time in twenty.
    """
    spent = ratio_of([-_logarithm(pair, _per_call) for pair in pairs])
    rng = random.Random(len(pairs))  # noqa: S311  (chosen again)
    same = ratio_of(
        [
            rng.choice((1, -1)) * math.log(_per_second(first) / _per_second(second))
            for pair in pairs
            for _, alone in pair
            for first, second in [(alone[:1], alone[1:])]
        ]
    )
    return {
        "guards": 2 * GUARDS,
        "calls": sum(
            turn.calls for pair in pairs for block in pair for side in block for turn in side
        ),
        "worker_us_per_call": _us(pairs, 0, lambda turn: turn.worker),
        "worker_us_per_call_without": _us(pairs, 1, lambda turn: turn.worker),
        "processor_time_ratio_of_workers": [round(one, 4) for one in spent],
        "same_side_ratio": [round(one, 4) for one in same],
    }


def _us(pairs: list[tuple[Block, Block]], side: int, of: Callable[[Turn], float]) -> float:
    """Return the microseconds per call that one side has spent over all turns."""
    turns = [turn for pair in pairs for block in pair for turn in block[side]]
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
