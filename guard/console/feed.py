"""New decisions, as server-sent events: read from the log, made into rows once, given to everybody.

A browser that does not keep up is sent away instead of being buffered for; it comes back with the
id of the last event it saw, and gets what it missed from the index.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from guard.console.decisions import DecisionIndex, Row

POLL_SECONDS: Final = 0.05
RETRY_SECONDS: Final = 5.0
"""Longest pause after an error; the first is :data:`POLL_SECONDS`, and each next one doubles."""
BUSY_SECONDS: Final = 0.5
"""Pause after a batch of more than :data:`FEW`: a large one costs less per decision."""
FEW: Final = 20
BEHIND: Final = 16
"""Batches that wait for one browser before it is sent away."""
BROWSERS: Final = 200
MISSED: Final = 2000
"""Decisions that a browser that comes back gets; of more it is told to load the page anew."""
STALE: Final = b"event: stale\ndata: load the page anew\n\n"
DEGRADED: Final = b"event: degraded\ndata: the audit log cannot be followed\n\n"
RESTORED: Final = b"event: restored\ndata: the audit log is followed again\n\n"
KEEP_ALIVE_SECONDS: Final = 15.0
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Browser:
    waiting: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(BEHIND))


class Feed:
    """Follows a log and tells the browsers.

    Args:
        index: of the log.
        shown: makes the HTML of one decision's row.
        failed: is called for every error.
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
        self._browsers: set[_Browser] = set()
        self._told: int | None = None
        """Id of the newest decision that the browsers were told of."""
        self.dropped = 0
        """Browsers that were sent away because they did not keep up."""
        self.error = ""
        """Why the log cannot be followed; empty where it can."""

    async def follow(self) -> None:
        """Follow the log until cancelled.  An error degrades the feed and does not end it."""
        retry = POLL_SECONDS
        while True:
            try:
                pause = await self._step()
            except Exception as error:  # noqa: BLE001  (tried again; browsers see that it fails)
                self._degrade(error)
                pause, retry = retry, min(2 * retry, RETRY_SECONDS)
            else:
                retry = POLL_SECONDS
                if self.error:
                    self.error = ""
                    self._tell(RESTORED)
            await asyncio.sleep(pause)

    async def _step(self) -> float:
        """Take in one batch and tell the browsers; return the seconds until the next."""
        if not self._index.has_news():
            return POLL_SECONDS
        # Asked last, so that whoever comes meanwhile finds them in the index.
        rows = await asyncio.to_thread(self._index.take_in, lambda: bool(self._browsers))
        try:
            await self._pass_on(rows)
        except Exception:
            # They are in the index: a page that is loaded anew shows them.
            self._told = self._index.latest
            self._tell(STALE)
            raise
        if self._index.is_behind:
            return 0.0
        return POLL_SECONDS if self._index.taken <= FEW else BUSY_SECONDS

    def _degrade(self, error: Exception) -> None:
        """Log and count an error, and tell the browsers of the first of several."""
        self._failed()
        before, self.error = self.error, f"{type(error).__name__}: {error}"
        if self.error != before:
            _LOGGER.warning("the audit log cannot be followed: %s", self.error)
        if not before:
            self._tell(DEGRADED)

    async def _pass_on(self, rows: list[Row]) -> None:
        """Tell the browsers of what was taken in, after what another console has taken in."""
        latest, taken, told = self._index.latest, self._index.taken, self._told
        if self._browsers and told is not None and latest - taken > told:
            rows = await self._missed(told) or []
            if not rows:
                self._tell(STALE)
        if rows:
            self._tell("".join(map(self._event, rows)).encode("utf-8", "replace"))
        self._told = latest

    async def _missed(self, after: int) -> list[Row] | None:
        """Return the decisions after an id, oldest first; None where they are too many."""
        rows = await asyncio.to_thread(self._index.page, {}, after=after, limit=MISSED + 1)
        return sorted(rows, key=lambda row: int(row["id"])) if len(rows) <= MISSED else None

    def _event(self, row: Row) -> str:
        text = self._shown(row)
        if "\n" in text or "\r" in text:
            text = text.replace("\r", " ").replace("\n", " ")
        return f"id: {row['id']}\nevent: decision\ndata: {text}\n\n"

    def _tell(self, data: bytes) -> None:
        for browser in list(self._browsers):
            try:
                browser.waiting.put_nowait(data)
            except asyncio.QueueFull:
                self._browsers.discard(browser)
                self.dropped += 1
                while not browser.waiting.empty():
                    browser.waiting.get_nowait()
                browser.waiting.put_nowait(None)

    @property
    def full(self) -> bool:
        """Whether no more browsers are let in."""
        return len(self._browsers) >= BROWSERS

    async def events(
        self, after: int | None, signed_in: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Yield the events of one browser, as they are written to it.

        Args:
            after: id of the last decision it saw, None where it saw none.
            signed_in: whether its person still is; asked before each batch.
        """
        browser = _Browser()
        self._browsers.add(browser)
        try:
            yield b"retry: 1000\n\n"
            if self.error:
                yield DEGRADED
            last = 0
            if after is not None:
                rows = await self._missed(after)
                if rows is None:
                    yield STALE
                    return
                for row in rows:
                    last = row["id"]
                    yield self._event(row).encode("utf-8", "replace")
            while (data := await self._next(browser)) is not None and signed_in():
                if fresh := _after(data, last):
                    yield fresh
        finally:
            self._browsers.discard(browser)

    @staticmethod
    async def _next(browser: _Browser) -> bytes | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                return await browser.waiting.get()
        return b": still here\n\n"


def _after(data: bytes, last: int) -> bytes:
    """Return the events of a batch that a browser has not seen: it may stand in both."""
    if not last or not data.startswith(b"id: "):
        return data
    events = data.split(b"\n\n")
    return b"".join(
        one + b"\n\n" for one in events if one and int(one[4 : one.index(b"\n")]) > last
    )
