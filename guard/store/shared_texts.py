"""Small texts that guards share for a while: one key each, which expires by itself.

The structural ledger of a store in Redis: one list, appended to and read from an index on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import StateError
from guard.store.layout import tenant_tag

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from guard.core.labels import LabelSet
    from guard.store.connection import RedisClient
    from guard.store.store import RedisSessionStore


class RedisSharedTexts:
    """Implements :class:`guard.core.ports.SharedTexts`.

    Args:
        client: the connection; whoever opened it closes it.
        namespace: first part of every key.
    """

    def __init__(self, client: RedisClient, *, namespace: str = "guard") -> None:
        self._client = client
        self._namespace = namespace

    async def put(self, tenant: str, name: bytes, text: bytes, seconds: int) -> None:
        """See :class:`guard.core.ports.SharedTexts`."""
        await self._client.execute("SET", self._key(tenant, name), text, "EX", seconds)

    async def take(self, tenant: str, name: bytes) -> bytes | None:
        """See :class:`guard.core.ports.SharedTexts`."""
        reply = await self._client.execute("GETDEL", self._key(tenant, name))
        return reply if isinstance(reply, bytes) else None

    async def drop(self, tenant: str, name: bytes) -> None:
        """See :class:`guard.core.ports.SharedTexts`."""
        await self._client.execute("UNLINK", self._key(tenant, name))

    async def known(self, tenant: str, names: Sequence[bytes]) -> list[bool]:
        """See :class:`guard.core.ports.SharedTexts`."""
        found = await self._client.rows("MGET", *(self._key(tenant, name) for name in names))
        return [one is not None for one in found]

    def _key(self, tenant: str, name: bytes) -> bytes:
        return f"{self._namespace}:{{{tenant_tag(tenant)}}}:i:{name.hex()}".encode()


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
