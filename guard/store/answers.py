"""Answered requests for approval: a short stream in Redis, one per tenant.

An answer appends its decision id; a guard that holds calls open reads the new entries, once for
all held calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.provenance.approvals import REQUEST_FIELD
from guard.provenance.label_sets import answers, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.ports import Fate
    from guard.store.store import RedisSessionStore

_PAGE: Final = 1000
_DENIED: Final = b"d"
_DENIED_KEPT: Final = 3600 * 1000
"""Milliseconds for which it can be asked of a denied request what became of it."""
_TAKEN: Final = b"t"
"""Stands where a request stood until the grant of it is written: whoever holds the call waits, and
does not have it judged without."""
_TAKEN_KEPT: Final = 60 * 1000
"""Milliseconds after which whoever was to write the grant counts as dead."""
_TAKE: Final = """
local taken = 0
for _, key in ipairs(KEYS) do
  if redis.call('HEXISTS', key, ARGV[1]) == 1 then
    redis.call('DEL', key)
    redis.call('HSET', key, ARGV[2], '1')
    redis.call('PEXPIRE', key, ARGV[3])
    taken = taken + 1
  end
end
return taken"""
_NOTHING: Final = "0-0"
"""The mark of a stream in which nothing stands."""


class RedisAnswers:
    """Implements :class:`guard.core.ports.AnswerFeed`.

    Args:
        store: whose connection and names of keys are used.
    """

    def __init__(self, store: RedisSessionStore) -> None:
        self._store = store

    async def take(self, tenant: str, decisions: Sequence[str], *, granted: bool) -> bool:
        """Take requests away, in one step; return whether nobody had before.

        Where they are denied, that is said in the same step.  Where they are granted, they count as
        open until :meth:`tell`: between the two the grant is written.

        Raises:
            StateError: the store did not answer in time.
        """
        keys = self._places(tenant, decisions)
        said = (_TAKEN, _TAKEN_KEPT) if granted else (_DENIED, _DENIED_KEPT)
        taken = await self._store.client.execute(
            "EVAL", _TAKE, len(keys), *keys, REQUEST_FIELD, *said
        )
        return taken != 0

    def _places(self, tenant: str, decisions: Sequence[str]) -> list[bytes]:
        return [self._store.key_of(tenant, request(tenant, one, 1)) for one in decisions]

    async def tell(self, tenant: str, decisions: Sequence[str], *, granted: bool) -> None:
        """Say that requests were answered.

        Raises:
            StateError: the store did not answer in time.
        """
        area = answers(tenant)
        key, client = self._store.key_of(tenant, area), self._store.client
        if granted:
            await client.execute("DEL", *self._places(tenant, decisions))
        for decision in decisions:
            said = (decision, int(granted))
            await client.execute("XADD", key, "MAXLEN", "~", area.limit, "*", *said)
        await client.execute("PEXPIRE", key, area.ttl)

    async def fate(self, tenant: str, decision: str) -> Fate:
        """See :class:`guard.core.ports.AnswerFeed`."""
        key = self._store.key_of(tenant, request(tenant, decision, 1))
        command = ("HMGET", key, REQUEST_FIELD, _TAKEN, _DENIED)
        asked, taken, denied = await self._store.client.rows(*command)
        if asked is not None or taken is not None:
            return "open"
        return "gone" if denied is None else "denied"

    async def since(self, tenant: str, mark: str) -> tuple[str, list[tuple[str, bool]]]:
        """See :class:`guard.core.ports.AnswerFeed`."""
        key, client = self._store.key_of(tenant, answers(tenant)), self._store.client
        if not mark:
            newest = await client.rows("XREVRANGE", key, "+", "-", "COUNT", 1)
            return (newest[0][0].decode() if newest else _NOTHING), []
        found = await client.rows("XRANGE", key, f"({mark}", "+", "COUNT", _PAGE)
        told = [(said[0].decode(), said[1] == b"1") for _, said in found if said]
        return (found[-1][0].decode() if found else mark), told
