"""Long work is done in a process of its own, so that small calls do not wait for it.

A thread would share the interpreter's lock with the event loop.  A process is started with the
first piece of work, does one after the other, and ends with this one.  Where it dies, takes too
long, or too much waits for it, :meth:`SeparateProcess.run` raises: such a result has no labels,
such a selection is not replayed, and the guard treats them so.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import StateError
from guard.core.work import measure
from guard.pipeline.call_reading import read_calls
from guard.provenance.intake import metered_writes, portable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from anyio import CapacityLimiter

    from guard.core.calls import ToolResult
    from guard.core.labels import LabelWrite
    from guard.core.policy import Policy
    from guard.pipeline.call_reading import CallQuestion, CallReading
    from guard.provenance.seal import Seal

WAITING: Final = 32
"""Pieces of work that may wait for the process, or be done by it."""
OWN: Final = 8
"""Likewise of one principal; they take turns with those of others."""
SECONDS: Final = 20.0
"""Longest wait for one, its turn and the start of the process included."""
NICE: Final = 5
"""Where cores are scarce, the process gets a third of what a worker, a Redis or a tool server does:
those answer small calls."""


class SeparateProcess:
    """One process that runs functions.  Used on one event loop."""

    def __init__(self) -> None:
        self._turns: CapacityLimiter | None = None
        self._waiting = 0
        self._owners: dict[str, _Owner] = {}
        self._queued = 0

    async def run_for(self, owner: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Run a function on behalf of a principal, which has one at a time.

        So another principal waits for one piece of work of each of the others at most.
        """
        from anyio import fail_after

        if self._queued >= WAITING:
            raise StateError("too much waits for the other process")
        self._queued += 1
        try:
            with fail_after(SECONDS):
                async with self._turn_of(owner):
                    return await self.run(function, *arguments)
        finally:
            self._queued -= 1

    @asynccontextmanager
    async def _turn_of(self, owner: str) -> AsyncIterator[None]:
        own = self._owners.setdefault(owner, _Owner())
        if own.waiting >= OWN:
            raise StateError("too much of one principal waits for the other process")
        own.waiting += 1
        try:
            async with own.lock:
                yield
        finally:
            own.waiting -= 1
            if not own.waiting:
                del self._owners[owner]

    async def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Return what a function returns; it and its arguments can be pickled.

        Raises:
            StateError: too much waits.
            TimeoutError: it took too long; the process is killed.
            BrokenWorkerProcess: the process died.
        """
        # Most workers never need it.
        from anyio import CapacityLimiter, fail_after, lowlevel, to_process

        if self._turns is None:
            self._turns = CapacityLimiter(1)
        if self._waiting >= WAITING:
            raise StateError("too much waits for the other process")
        self._waiting += 1
        try:
            with fail_after(SECONDS):
                # Arguments are written down at once, however large: nothing else in that turn.
                await lowlevel.checkpoint()
                return await to_process.run_sync(
                    _run, function, *arguments, cancellable=True, limiter=self._turns
                )
        finally:
            self._waiting -= 1


class _Owner:
    """The work of one principal."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def _run(function: Callable[..., Any], *arguments: object) -> Any:
    """Run a function in the process that this module starts."""
    if os.getpriority(os.PRIO_PROCESS, 0) < NICE:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    return function(*arguments)


class CallReader(SeparateProcess):
    """Reads the calls of large messages."""

    async def read(self, seal: Seal, questions: Sequence[CallQuestion]) -> list[CallReading]:
        """Return what :func:`guard.pipeline.call_reading.read_calls` does.

        Raises:
            WorkExceededError: the message needs more work than one message may.
            StateError, TimeoutError, BrokenWorkerProcess: as :meth:`run`.
        """
        owner = questions[0].call.identity.principal
        found: list[CallReading] = await self.run_for(owner, read_calls, seal, questions)
        return found

    async def measure(self, principal: str, body: bytes) -> None:
        """Do what :func:`guard.core.work.measure` does.

        Raises:
            WorkExceededError: the structure needs more work than one message may.
            StateError, TimeoutError, BrokenWorkerProcess: as :meth:`run`.
        """
        await self.run_for(principal, measure, body)


class ResultReader(SeparateProcess):
    """Reads large results."""

    async def read(
        self, seal: Seal, policy: Policy, result: ToolResult
    ) -> tuple[list[LabelWrite], bool]:
        """Return what :func:`guard.provenance.intake.metered_writes` does.

        Raises:
            StateError, TimeoutError, BrokenWorkerProcess: as :meth:`run`.
        """
        owner = result.call.call.identity.principal
        found: tuple[list[LabelWrite], bool] = await self.run_for(
            owner, metered_writes, seal, *portable(policy, result)
        )
        return found
