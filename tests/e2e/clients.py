"""Clients that several tests have: callers in threads, and one that reads an answer as it comes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

from guard.processes.loopback import START_SECONDS
from tests.e2e.running_guard import tool_call, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.running_guard import RunningGuard

SECONDS = 60.0


class Callers:
    """Threads that go on calling until the end of a ``with`` block.

    Args:
        count: of threads.
        run: called in each with its number; returns soon once :attr:`stop` is set.
    """

    def __init__(self, count: int, run: Callable[[int], None]) -> None:
        self.stop = threading.Event()
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()


class Load(Callers):
    """Clients that send to a colleague, each call on a connection of its own."""

    def __init__(self, guard: RunningGuard, clients: int) -> None:
        super().__init__(clients, self._run)
        self._guard = guard
        self.answered = 0

    def wait_for(self, count: int) -> None:
        """Wait until so many more calls have been answered."""
        wanted = self.answered + count
        wait_until(lambda: self.answered >= wanted, f"{count} more answers", START_SECONDS)

    def _run(self, _: int) -> None:
        while not self.stop.is_set():
            try:
                status, answer = self._guard.post(tool_call())
                if status != 200 or "result" not in answer or answer["result"].get("isError"):
                    raise OSError(str(answer))
                self.answered += 1
            except (OSError, ValueError, IndexError, TypeError) as error:
                self.failures.append(repr(error))


class Reading:
    """An answer that a task reads; whoever derives from it adds to the text."""

    def __init__(self) -> None:
        self.text = ""
        self.task: asyncio.Task[Any]

    async def reads(self, text: str) -> None:
        """Wait until something stands in what has come so far."""
        async with asyncio.timeout(SECONDS):
            while text not in self.text:
                assert not self.task.done() or text in self.text, self.text
                await asyncio.sleep(0.02)
