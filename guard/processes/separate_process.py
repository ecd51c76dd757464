"""Long work is done in a process of its own, so that small calls do not wait for it.

A thread would share the interpreter's lock with the event loop.  A process is started with the
first piece of work, does one after the other, and ends with this one.  Where it dies, takes too
long, or too much waits for it, :meth:`SeparateProcess.run` raises: such a result has no labels,
such a selection is not replayed, and the guard treats them so.

Arguments and results are pickled by a thread, straight into and out of the pipe: the interpreter
is free for the event loop between two frames of 64 KB.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import MessageError, StateError
from guard.pipeline.call_reading import CallQuestion, CallReading, read_calls
from guard.pipeline.large_work import read_json
from guard.provenance.intake import metered_writes, portable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from guard.core.calls import ToolResult
    from guard.core.labels import LabelWrite
    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.provenance.seal import Seal

WAITING: Final = 32
"""Pieces of work that may wait for the process, or be done by it."""
OWN: Final = 8
"""Likewise of one principal; they take turns with those of others."""
SECONDS: Final = 20.0
"""Longest wait for one, its turn and the start of the process included."""
NICE: Final = 5
"""Niceness: where cores are scarce, the process gets a third of the share of a worker, a Redis or a
tool server, because those answer small calls."""


_PROGRAM: Final = (
    "import pickle, sys; sys.path = pickle.load(sys.stdin.buffer); "
    "from guard.processes.separate_process import serve; serve()"
)


class SeparateProcess:
    """One process that runs functions.  Used on one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "separate-process")
        """Talks to the process; its queue is that of the work."""
        self._process: subprocess.Popen[bytes] | None = None
        self._current: _Work | None = None
        """The work that the process does now."""
        self._waiting = 0
        self._owners: dict[str, _Owner] = {}
        self._queued = 0

    async def run_for(self, owner: str, function: Callable[..., Any], *arguments: object) -> Any:
        """Run a function on behalf of a principal, which has one at a time.

        So another principal waits for one piece of work of each of the others at most.
        """
        if self._queued >= WAITING:
            raise StateError("too much waits for the other process")
        self._queued += 1
        try:
            async with asyncio.timeout(SECONDS), self._turn_of(owner):
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
            StateError: too much waits, or the process died.
            TimeoutError: it took too long; the process is killed.
        """
        if self._waiting >= WAITING:
            raise StateError("too much waits for the other process")
        self._waiting += 1
        work = _Work(function, arguments)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SECONDS):
                return await loop.run_in_executor(self._thread, self._done, work)
        finally:
            self._waiting -= 1
            work.is_abandoned = True
            if self._current is work and self._process is not None:
                self._process.kill()

    def _done(self, work: _Work) -> Any:
        """Have the process do some work; called in the thread."""
        self._current = work
        try:
            if self._process is None:
                self._process = _start_process()
                # Not `__del__`: of a cycle, the pipes could be closed first.
                self._finalizer = weakref.finalize(self, _end_process, self._process)
            if work.is_abandoned:
                raise StateError("nobody waits for this work any more")
            has_failed, found = _answer_of(self._process, work)
        except Exception as error:
            self._end()
            raise StateError("the other process failed") from error
        finally:
            self._current = None
        if has_failed:
            raise found
        return found

    def _end(self) -> None:
        if self._process is not None:
            self._process = None
            self._finalizer()


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process; what was not sent any more is lost with it."""
    process.kill()
    with suppress(OSError), process:
        pass


def _start_process() -> subprocess.Popen[bytes]:
    command = (sys.executable, "-P", "-c", _PROGRAM)
    process = subprocess.Popen(  # noqa: S603  (our own code)
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    if process.stdin is not None:
        pickle.dump(sys.path, process.stdin)
    return process


def _answer_of(process: subprocess.Popen[bytes], work: _Work) -> Any:
    """Send some work; return whether it failed, and its result or error."""
    if process.stdin is None or process.stdout is None:
        raise StateError("the other process has no pipes")
    pickle.dump((work.function, work.arguments), process.stdin, pickle.HIGHEST_PROTOCOL)
    process.stdin.flush()
    return pickle.load(process.stdout)  # noqa: S301  (from a process of our own)


def serve() -> None:
    """Do the work that comes by standard input, in the process that this module starts."""
    # A terminal interrupts the whole group; this process ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getpriority(os.PRIO_PROCESS, 0) < NICE:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever the work prints is no answer.
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = pickle.load(source)  # noqa: S301  (from our parent)
        except EOFError:
            return
        try:
            answer = pickle.dumps((False, function(*arguments)), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001  (raised in the parent)
            answer = pickle.dumps((True, error), pickle.HIGHEST_PROTOCOL)
        answers.write(answer)
        answers.flush()
        del function, arguments, answer


@dataclass(slots=True, eq=False)
class _Work:
    """A function to run."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    is_abandoned: bool = False
    """True if no caller waits for it any more."""


class _Owner:
    """The work of one principal."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


class CallReader(SeparateProcess):
    """Reads the calls of large messages."""

    async def read(self, seal: Seal, questions: Sequence[CallQuestion]) -> list[CallReading]:
        """Return what :func:`guard.pipeline.call_reading.read_calls` does.

        Raises:
            WorkExceededError: the message needs more work than one message may.
            StateError, TimeoutError: as :meth:`run`.
        """
        owner = questions[0].call.identity.principal
        found: list[CallReading] = await self.run_for(owner, read_calls, seal, questions)
        return found

    async def read_json(self, principal: str, body: bytes) -> Json | MessageError:
        """Return what :func:`guard.pipeline.large_work.read_json` does.

        Raises:
            WorkExceededError: the structure needs more work than one message may.
            StateError, TimeoutError: as :meth:`run`.
        """
        found: Json | MessageError = await self.run_for(principal, read_json, body)
        return found


class ResultReader(SeparateProcess):
    """Reads large results."""

    async def read(
        self, seal: Seal, policy: Policy, result: ToolResult
    ) -> tuple[list[LabelWrite], bool]:
        """Return what :func:`guard.provenance.intake.metered_writes` does.

        Raises:
            StateError, TimeoutError: as :meth:`run`.
        """
        owner = result.call.call.identity.principal
        found: tuple[list[LabelWrite], bool] = await self.run_for(
            owner, metered_writes, seal, *portable(policy, result)
        )
        return found
