"""Pinned tool definitions in Redis as operators work on them: list, compare, approve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.core.model import Identity
from guard.provenance.label_sets import MARKED, PINNED, pin_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from guard.memory.pins import Pin, Pins, ToolOffers
    from guard.store.store import RedisSessionStore

_TAKE: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
"""
"""Remove a mark, unless the definition has changed again since it was shown."""


class PinOperator:
    """Works on the pins of one tenant.

    Args:
        store: connected; its namespace is the guard's.
        pins: with the deployment's key.
        tenant: whose pins.
    """

    def __init__(self, store: RedisSessionStore, pins: Pins, tenant: str = "default") -> None:
        self._store = store
        self._pins = pins
        self._tenant = tenant

    async def listed(self) -> AsyncIterator[Pin | None]:
        """Yield every pin and every mark, in no order; None for a record that was altered."""
        tenant, kind = self._place()
        async for found in self._read(self._store.client.scan(tenant + kind)):
            yield found

    def _place(self) -> tuple[str, str]:
        """Return how the keys of the tenant begin, and what follows in those of pins."""
        one = self._store.key_of(self._tenant, pin_set("")).decode()
        # Every upstream's; the digest of one is no part of it.
        tenant, end, rest = one.rsplit(":", 2)[0].partition("}")
        return tenant + end, f"{rest}:"

    async def _read(self, pages: AsyncIterator[list[bytes]]) -> AsyncIterator[Pin | None]:
        async for page in pages:
            for key in page:
                for name, raw in (await self._store.client.fields(key)).items():
                    pin = self._pins.found(name, raw)
                    if pin is None or pin.tool:
                        yield pin

    async def note_offers(self, offers: ToolOffers, served: Callable[[str], bool]) -> None:
        """Note which tools servers have offered before: a name of two servers is ambiguous.

        Whichever tenant's agents they offered them to: a worker serves all of them.

        Args:
            offers: where they are noted.
            served: whether an upstream can still be reached, by its host and port.  One that has
                moved would share every name with itself.
        """
        _, kind = self._place()
        every = self._store.client.scan(f"{self._store.namespace}:{{", f"}}{kind}")
        async for pin in self._read(every):
            if pin is not None and served(pin.upstream.partition("/")[0]):
                offers.note(pin.upstream, (pin.tool,))

    async def compared(self, upstream: str, tool: str) -> tuple[Pin | None, Pin]:
        """Return the pin of a tool and the changed definition that waits.

        Raises:
            GuardError: none waits, or its record was altered.
        """
        pin, mark, _ = await self._both(upstream, tool)
        return pin, mark

    async def pin(self, upstream: str, tool: str) -> Pin | None:
        """Return the pin of a tool; None where it has none, or its definition has changed."""
        key = self._store.key_of(self._tenant, pin_set(upstream))
        fields = [self._pins.field(tool, kind) for kind in (PINNED, MARKED)]
        raw, marked = await self._store.client.rows("HMGET", key, *fields)
        return None if marked is not None else self._pins.read(raw, upstream, tool, PINNED)

    async def approve(self, upstream: str, tool: str, digest: str, at: float) -> Pin:
        """Make the definition that waits a good one, and take the mark away.

        Args:
            upstream: the server, as listed.
            tool: its tool.
            digest: what the definition's digest must begin with; empty for the one that waits.
            at: now.

        Raises:
            GuardError: none waits, it is another one, or its record was altered.
        """
        pin, mark, raw = await self._both(upstream, tool)
        if not mark.digests[0].startswith(digest):
            raise GuardError(
                f"the definition that waits is `{mark.digests[0][:12]}`; look at it again"
            )
        # The pin first: if this ends half way, the tool is good and still marked.
        identity = Identity("", "", tenant=self._tenant)
        await self._store.note(identity, [self._pins.approved(pin, mark, at)])
        key = self._store.key_of(self._tenant, pin_set(upstream))
        name = self._pins.field(tool, MARKED)
        if await self._store.client.execute("EVAL", _TAKE, "1", key, name, raw) != 1:
            raise GuardError(f"`{tool}` has changed again since; look at it again")
        return mark

    async def _both(self, upstream: str, tool: str) -> tuple[Pin | None, Pin, bytes]:
        key = self._store.key_of(self._tenant, pin_set(upstream))
        names = (self._pins.field(tool, PINNED), self._pins.field(tool, MARKED))
        pinned, marked = await self._store.client.rows("HMGET", key, *names)
        if not isinstance(marked, bytes):
            raise GuardError(
                f"no changed definition of `{tool}` at `{upstream}` waits; see `guard tools list`"
            )
        mark = self._pins.read(marked, upstream, tool, MARKED)
        if mark is None:
            raise GuardError("the record of this change was altered, or sealed with another key")
        return self._pins.read(pinned, upstream, tool, PINNED), mark, marked
