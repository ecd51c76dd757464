"""Large results are read in a process of their own, so that small calls do not wait for them.

A thread would share the interpreter's lock with the event loop.  The process is started with the
first large result, reads one after the other, and ends with this one.  Where it dies, takes too
long, or too many results wait for it, :meth:`ResultReader.read` raises: such a result has no
labels, and the guard treats it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anyio import CapacityLimiter, fail_after, to_process

from guard.core.errors import StateError
from guard.provenance.intake import portable, result_writes

if TYPE_CHECKING:
    from guard.core.calls import ToolResult
    from guard.core.labels import LabelWrite
    from guard.core.policy import Policy
    from guard.provenance.seal import Seal

WAITING: Final = 32
"""Results that may wait for the process, or be read by it."""
SECONDS: Final = 20.0
"""Longest wait for one, its turn and the start of the process included."""


class ResultReader:
    """One process that reads results.  Used on one event loop."""

    def __init__(self) -> None:
        self._turns = CapacityLimiter(1)
        self._waiting = 0

    @property
    def is_reading(self) -> bool:
        """Whether the process is at work."""
        return self._turns.borrowed_tokens > 0

    async def read(
        self, seal: Seal, policy: Policy, result: ToolResult
    ) -> tuple[list[LabelWrite], bool]:
        """Return what :func:`guard.provenance.intake.result_writes` does.

        Raises:
            StateError: too many wait.
            TimeoutError: it took too long; the process is killed.
            BrokenWorkerProcess: the process died.
        """
        if self._waiting >= WAITING:
            raise StateError("too many large results wait to be read")
        self._waiting += 1
        try:
            with fail_after(SECONDS):
                return await to_process.run_sync(
                    result_writes,
                    seal,
                    *portable(policy, result),
                    cancellable=True,
                    limiter=self._turns,
                )
        finally:
            self._waiting -= 1
