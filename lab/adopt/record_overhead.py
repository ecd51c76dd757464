"""The cost of `--record`: two guards in front of one upstream, one of them recording.

Counted is processor time of the guard's processes per call, every thread of them, the one that
enciphers and writes included.  Both get short bursts of calls in turns, so that what else the
machine does, which makes a call dearer too, is the same for both.  Two processes of one program
differ by some per cent for as long as they live, so each round has guards of its own.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from statistics import median
from typing import TYPE_CHECKING, Final

from scipy.stats import binom

from guard.adapters.loopback import Rig, free_port
from guard.core.errors import GuardError
from guard.replay.reports import Check
from guard.settings import policies_directory
from lab.load import UPSTREAM, Post, answered, request_bytes
from lab.result_load import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONNECTIONS: Final = 16
EACH: Final = 2
"""Calls of a connection in a burst."""
BURSTS: Final = 50
"""Of each guard in a round, after half as many that are not counted."""
ROUNDS: Final = 21


def record_overhead(told: Callable[[float], object]) -> tuple[Check, dict[str, object]]:
    """Return processor time per call with a recording, as a ratio to that without; and the rounds.

    Args:
        told: the share of the rounds that is done.

    Raises:
        GuardError: a guard or the upstream did not start, or a call did not go through.
    """
    times: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        with Rig() as rig, Rig() as other:
            upstream = rig.server(UPSTREAM)
            key = str(other.directory / "recording.key")
            record = ("--record", str(other.directory / "recordings"), "--record-key", key)
            # What is started first is another one in each round.
            if number % 2:
                recording = _Guard(other, upstream, *record)
                plain = _Guard(rig, upstream)
            else:
                plain = _Guard(rig, upstream)
                recording = _Guard(other, upstream, *record)
            times.append(asyncio.run(_round(plain, recording)))
        told((number + 1) / ROUNDS)
    ratios = sorted(recording / plain for plain, recording in times)
    low, high = median_interval(ratios)
    check = Check(
        id="record_overhead_ratio",
        value=round(median(ratios), 3),
        unit="ratio",
        n=len(ratios),
        interval=(round(low, 3), round(high, 3)),
        target="<= 1.05",
    )
    return check, {"cpu_us_per_call": [[round(one, 1) for one in pair] for pair in times]}


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return two of the values, in order, that enclose the median with at least 95 % confidence.

    Ranks of the binomial distribution: nothing is assumed of the values' own.
    """
    below = max(0, int(binom.ppf(0.025, len(values), 0.5)) - 1)
    return values[below], values[len(values) - 1 - below]


class _Guard:
    """One of the two, and connections to it."""

    def __init__(self, rig: Rig, upstream: int, *options: str) -> None:
        self.port = free_port()
        policy = str((policies_directory() / "default.yaml").resolve())
        listener = f"127.0.0.1:{self.port}=http://127.0.0.1:{upstream}"
        self._child = rig.begin_guard("--policy", policy, "--reverse", listener, *options)
        self._child.wait_ready()
        self._request = request_bytes(self.port, Post(), 1)
        self._connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, stack: AsyncExitStack) -> None:
        """Open the connections; they are closed with the stack."""
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            stack.callback(writer.close)
            self._connections.append((reader, writer))

    async def burst(self) -> None:
        """Make calls on every connection at once.

        Raises:
            GuardError: one did not go through.
        """

        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(EACH):
                if not await answered(reader, writer, self._request):
                    raise GuardError("a call of the measurement did not go through")

        await asyncio.gather(*(client(*pair) for pair in self._connections))

    def seconds(self) -> float:
        """Return the processor time that it has used."""
        return cpu_seconds(self._child.process.pid)


async def _round(plain: _Guard, recording: _Guard) -> tuple[float, float]:
    """Return microseconds of processor time per call of both guards."""
    guards = (plain, recording)
    async with AsyncExitStack() as stack:
        for guard in guards:
            await guard.connect(stack)
        await _bursts(guards, BURSTS // 2)
        before = [guard.seconds() for guard in guards]
        await _bursts(guards, BURSTS)
        used = [guard.seconds() - begun for guard, begun in zip(guards, before, strict=True)]
    calls = BURSTS * EACH * CONNECTIONS
    return 1e6 * used[0] / calls, 1e6 * used[1] / calls


async def _bursts(guards: tuple[_Guard, _Guard], number: int) -> None:
    for burst in range(number):
        for guard in guards if burst % 2 else guards[::-1]:
            await guard.burst()
