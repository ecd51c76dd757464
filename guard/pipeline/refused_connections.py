"""Connections for which there was no room: counted one by one, recorded in summaries.

Whoever opens connections without end must not decide how long the event loop writes audit lines.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from guard.core.metrics import ERRORS, OTHER, REFUSALS
from guard.pipeline.admission import OVERLOADED

if TYPE_CHECKING:
    from guard.core.metrics import Metrics
    from guard.core.ports import AuditLog

EVENT: Final = "guard.connections_refused"
SUMMARY_SECONDS: Final = 10.0
"""Length of the interval that one line is about."""
ADDRESSES: Final = 64
"""Addresses with a line of their own in one interval; the others share one."""


class RefusedConnections:
    """Counts refused connections by the address they came to.

    Args:
        audit: gets one line per address and interval, written by a thread.
        metrics: counts each.
    """

    def __init__(self, audit: AuditLog, metrics: Metrics) -> None:
        self._audit = audit
        self._metrics = metrics
        self._counts: Counter[str] = Counter()

    def add(self, server: str) -> None:
        """Count one."""
        self._metrics.count(REFUSALS, OVERLOADED)
        is_known = server in self._counts or len(self._counts) < ADDRESSES
        self._counts[server if is_known else OTHER] += 1

    async def write(self) -> None:
        """Write what was counted since; what cannot be written stays counted."""
        counts, self._counts = self._counts, Counter()
        for server, count in counts.items():
            fields = {"server": server, "code": OVERLOADED, "action": "block", "count": count}
            try:
                await asyncio.to_thread(self._audit.event, EVENT, fields)
            except Exception:  # noqa: BLE001  (nothing was let in)
                self._metrics.count(ERRORS, "audit")
                self._counts[server] += count

    async def run(self) -> None:
        """Write a summary per interval until cancelled."""
        while True:
            await asyncio.sleep(SUMMARY_SECONDS)
            await self.write()
