"""The structural ledger of a store in Redis: one list, appended to and read from an index on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import StateError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from guard.core.labels import LabelSet
    from guard.store.store import RedisSessionStore

CHUNK: Final = 4096
"""Entries of one command."""


class RedisLedger:
    """Implements :class:`guard.core.ports.LedgerStore`.

    Args:
        store: whose connection and names of keys are used.
    """

    def __init__(self, store: RedisSessionStore) -> None:
        self._store = store

    async def append(self, tenant: str, area: LabelSet, entries: Sequence[bytes]) -> int:
        """Append entries and return how many the ledger has.

        Raises:
            StateError: the store did not answer in time, or not with a number.
        """
        key, length = self._store.key_of(tenant, area), 0
        for start in range(0, len(entries), CHUNK):
            chunk = entries[start : start + CHUNK]
            reply = await self._store.client.execute("RPUSH", key, *chunk)
            if not isinstance(reply, int):
                raise StateError("redis answered an append to a ledger with no number")
            length = reply
        return length

    async def read(
        self, tenant: str, area: LabelSet, start: int
    ) -> AsyncGenerator[list[object], None]:
        """Yield what the ledger has from an index on, in order.

        Raises:
            StateError: as :meth:`append`.
        """
        key = self._store.key_of(tenant, area)
        while True:
            reply = await self._store.client.rows("LRANGE", key, start, start + CHUNK - 1)
            if reply:
                yield reply
            if len(reply) < CHUNK:
                return
            start += len(reply)
