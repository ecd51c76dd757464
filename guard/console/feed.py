"""New decisions as server-sent events.

One task reads the log into the index and wakes every browser; each browser then reads from the
index what follows the last decision that it has seen.  A slow browser reads later, so nothing is
buffered for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from sse_starlette import ServerSentEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from guard.console.decisions import DecisionIndex, Row

POLL_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 5.0
"""Longest pause after an error; the first is :data:`POLL_SECONDS`, and each next one doubles."""
BUSY_SECONDS: Final = 0.5
"""Pause after a batch of more than :data:`FEW`: a large one costs less per decision."""
FEW: Final = 20
BROWSERS: Final = 200
MISSED: Final = 2000
"""Maximum number of decisions that a browser catches up with; above it, it reloads the page."""
CHECK_SECONDS: Final = 15.0
"""Time after which a session is checked even if nothing was decided."""
STALE: Final = ServerSentEvent("load the page anew", event="stale")
DEGRADED: Final = ServerSentEvent("the audit log cannot be followed", event="degraded")
RESTORED: Final = ServerSentEvent("the audit log is followed again", event="restored")
_LOGGER: Final = logging.getLogger(__name__)


class Feed:
    """Follows a log and notifies the browsers.

    Args:
        index: index of the log.
        shown: renders the row of one decision as HTML.
        failed: counts an error.
    """

    def __init__(
        self,
        index: DecisionIndex,
        shown: Callable[[Row], str],
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self._index = index
        self._shown = shown
        self._failed = failed
        self._browsers: set[asyncio.Event] = set()
        self.error = ""
        """Reason why the log cannot be followed; empty where it can."""

    async def follow(self) -> None:
        """Follow the log until cancelled.  An error degrades the feed and does not end it."""
        retry = POLL_SECONDS
        while True:
            try:
                pause = await self._step()
                error, retry = "", POLL_SECONDS
            except Exception as failed:  # noqa: BLE001  (tried again; browsers see that it fails)
                self._failed()
                error = f"{type(failed).__name__}: {failed}"
                pause, retry = retry, min(2 * retry, RETRY_SECONDS)
            if error != self.error:
                if error:
                    _LOGGER.warning("the audit log cannot be followed: %s", error)
                self.error = error
                self._wake()
            await asyncio.sleep(pause)

    async def _step(self) -> float:
        """Read one batch; return the seconds until the next."""
        if not self._index.has_news():
            return POLL_SECONDS
        await asyncio.to_thread(self._index.take_in)
        self._wake()
        if self._index.is_behind:
            return 0.0
        return POLL_SECONDS if self._index.taken <= FEW else BUSY_SECONDS

    def _wake(self) -> None:
        for browser in self._browsers:
            browser.set()

    @property
    def full(self) -> bool:
        """True if the maximum number of browsers follows the decisions."""
        return len(self._browsers) >= BROWSERS

    async def events(
        self, after: int | None, signed_in: Callable[[], bool]
    ) -> AsyncIterator[ServerSentEvent]:
        """Yield the events of one browser.

        Args:
            after: id of the last decision it has seen, None for the newest one.
            signed_in: whether its person is still signed in; called before each batch.
        """
        news, error = asyncio.Event(), ""
        self._browsers.add(news)
        try:
            last = self._index.latest if after is None else after
            while signed_in():
                if self.error != error:
                    if bool(self.error) != bool(error):
                        yield DEGRADED if self.error else RESTORED
                    error = self.error
                rows = await self._after(last)
                if len(rows) > MISSED:
                    yield STALE
                    return
                for row in rows:
                    last = row["id"]
                    text = self._shown(row).replace("\r", " ").replace("\n", " ")
                    yield ServerSentEvent(text, event="decision", id=str(last))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_SECONDS):
                        await news.wait()
                news.clear()
        finally:
            self._browsers.discard(news)

    async def _after(self, last: int) -> list[Row]:
        """Return the decisions after an id, the oldest first."""
        if self._index.latest <= last and self._index.latest:
            return []
        rows = await asyncio.to_thread(self._index.page, {}, after=last, limit=MISSED + 1)
        return sorted(rows, key=lambda row: int(row["id"]))
