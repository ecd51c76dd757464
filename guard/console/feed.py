"""New decisions, as server-sent events: read from the log, made into rows once, given to everybody.

A browser that does not keep up is sent away instead of being buffered for; it comes back with the
id of the last event it saw, and gets what it missed from the index.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from guard.console.decisions import DecisionIndex, Row

POLL_SECONDS: Final = 0.05
BUSY_SECONDS: Final = 0.5
"""Pause after a batch of more than :data:`FEW`: a large one costs less per decision."""
FEW: Final = 20
BEHIND: Final = 16
"""Batches that wait for one browser before it is sent away."""
BROWSERS: Final = 200
MISSED: Final = 2000
"""Decisions that a browser that comes back gets; of more it is told to load the page anew."""
STALE: Final = b"event: stale\ndata: load the page anew\n\n"
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
    """

    def __init__(self, index: DecisionIndex, shown: Callable[[Row], str]) -> None:
        self._index = index
        self._shown = shown
        self._browsers: set[_Browser] = set()
        self._told: int | None = None
        """Id of the newest decision that the browsers were told of."""
        self.dropped = 0
        """Browsers that were sent away because they did not keep up."""
        self.error = ""
        """Why the log cannot be followed; empty where it can."""

    async def follow(self) -> None:
        """Follow the log until cancelled."""
        while True:
            if not self._index.has_news():
                await asyncio.sleep(POLL_SECONDS)
                continue
            try:
                # Asked last, so that whoever comes meanwhile finds them in the index.
                rows = await asyncio.to_thread(self._index.take_in, lambda: bool(self._browsers))
                await self._pass_on(rows)
                self.error = ""
            except (OSError, sqlite3.Error, AuditError) as error:
                self.error = f"{type(error).__name__}: {error}"
                _LOGGER.warning("the audit log cannot be followed: %s", self.error)
            if not self._index.is_behind:
                few = self._index.taken <= FEW
                await asyncio.sleep(POLL_SECONDS if few else BUSY_SECONDS)

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
