"""Long work is done in a process of its own, so that small calls do not wait for it.

A thread would share the interpreter's lock with the event loop.  A process is started with the
first piece of work, does one after the other, and ends with this one.  Where it dies, takes too
long, or too much waits for it, :meth:`SeparateProcess.run` raises: such a result has no labels,
such a selection is not replayed, and the guard treats them so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import StateError
from guard.provenance.intake import portable, result_writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio import CapacityLimiter

    from guard.core.calls import ToolResult
    from guard.core.labels import LabelWrite
    from guard.core.policy import Policy
    from guard.provenance.seal import Seal

WAITING: Final = 32
"""Pieces of work that may wait for the process, or be done by it."""
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

    @property
    def is_busy(self) -> bool:
        """Whether the process is at work."""
        return self._turns is not None and self._turns.borrowed_tokens > 0

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


def _run(function: Callable[..., Any], *arguments: object) -> Any:
    """Run a function in the process that this module starts."""
    if os.getpriority(os.PRIO_PROCESS, 0) < NICE:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    return function(*arguments)


class ResultReader(SeparateProcess):
    """Reads large results."""

    async def read(
        self, seal: Seal, policy: Policy, result: ToolResult
    ) -> tuple[list[LabelWrite], bool]:
        """Return what :func:`guard.provenance.intake.result_writes` does.

        Raises:
            StateError, TimeoutError, BrokenWorkerProcess: as :meth:`run`.
        """
        found: tuple[list[LabelWrite], bool] = await self.run(
            result_writes, seal, *portable(policy, result)
        )
        return found
