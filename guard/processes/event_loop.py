"""The event loop of a worker: it polls for a moment before it sleeps."""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_APART: Final = 1024
"""Short waits after which a selector looks again at the latest, however little that gave before."""

if sys.platform == "linux":

    class PollingSelector(selectors.EpollSelector):
        """Looks again for a while before it sleeps, as long as that pays.

        Falling asleep and being woken takes longer than a Redis or a tool server nearby needs to
        answer.  As in the halt polling of hypervisors, a wait that took long is a sign that the
        next will: it sleeps at once then, until one has been short.  What comes as soon as it
        sleeps may have waited for its core: if that goes on it looks ever less often, and
        least of all where others are given the core while it looks.

        Args:
            seconds: how long it looks.
            clock: gives seconds.
        """

        def __init__(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> None:
            super().__init__()
            self._seconds = seconds
            self._clock = clock
            self._apart, self._left = 0, 1
            """Short waits that it sleeps through between two that it looks in, and those left."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """See :class:`selectors.BaseSelector`."""
            if timeout is not None and timeout <= 0:
                return super().select(timeout)
            looks = not self._left
            began = self._clock()
            if looks:
                found, taken = self._look(timeout)
                if taken > 2 * self._seconds:
                    # Others were given the core meanwhile: who uses his share up waits for more.
                    self._apart = self._left = MOST_APART
                elif found:
                    self._apart = 0
                if found:
                    return found
                began += taken
            found = super().select(timeout)
            soon = self._clock() - began < self._seconds
            if looks and soon:
                self._apart = min(2 * self._apart or 1, MOST_APART)
            self._left = self._left - 1 if soon and not looks else max(self._apart, 1)
            return found

        def _look(
            self, timeout: float | None
        ) -> tuple[list[tuple[selectors.SelectorKey, int]], float]:
            """Return what has come, nothing if that takes too long, and the seconds it took."""
            began = now = self._clock()
            end = began + (self._seconds if timeout is None else min(self._seconds, timeout))
            found: list[tuple[selectors.SelectorKey, int]] = []
            while not found and now < end:
                found = super().select(0)
                now = self._clock()
            return found, now - began


def new_loop(polling: float, workers: int) -> asyncio.AbstractEventLoop:
    """Return an event loop.

    Args:
        polling: seconds that it looks for news before it sleeps.
        workers: how many processes do so.  Without a core to spare they would keep whoever is to
            answer from doing so.
    """
    if sys.platform == "linux" and polling and len(os.sched_getaffinity(0)) > workers:
        return asyncio.SelectorEventLoop(PollingSelector(polling))
    return asyncio.new_event_loop()
