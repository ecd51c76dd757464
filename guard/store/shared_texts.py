"""Small texts that guards share for a while: one key each, which expires by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.store.layout import tenant_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.store.connection import RedisClient


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
