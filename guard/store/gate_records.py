"""Operators' actions at the memory gate: promote, quarantine, review, restore trust.

Every step is asked for by a person, on the command line; no call waits for any of it.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.errors import GuardError
from guard.memory.candidate import content_digest
from guard.store.layout import load_script
from guard.store.staging import MemoryKeys

if TYPE_CHECKING:
    from guard.core.memory import Fate, MemoryClass
    from guard.provenance.seal import Seal
    from guard.store.connection import RedisClient

TOKEN_PREFIX: Final = "gmt_"  # noqa: S105  (what a token starts with, so that scanners know it)
SHOWN: Final = ("id", "fate", "reasons", "principal", "session", "tool", "store", "partition")
_FIELDS: Final = (
    *SHOWN,
    *("key", "target", "class", "tainted", "digest", "sources", "at", "content", "owner", "server"),
)
LOOKED_AFTER: Final = 1000
"""Most writes in flight that one call of :meth:`GateOperator.in_flight` returns."""


CLOSED_SHOWN: Final = 200


class Closed(NamedTuple):
    """A partition that is closed."""

    store: str
    partition: str
    reason: str
    until: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The record of a candidate, for review."""

    fields: dict[str, str]
    age: float = 0.0
    """Seconds since it was committed, where it is in flight."""

    @property
    def id(self) -> str:
        """The decision id."""
        return self.fields["id"]


class GateOperator:
    """The operator's side of the staging store.

    Args:
        client: the connection.
        namespace: first part of every key.
        tenant: whose memory.
    """

    def __init__(
        self, client: RedisClient, *, namespace: str = "guard", tenant: str = "default"
    ) -> None:
        self._client = client
        self._tenant = tenant
        self._keys = MemoryKeys(namespace, tenant)

    async def candidate(self, identifier: str) -> Reviewed:
        """Return a candidate by its decision id.

        Raises:
            GuardError: it is not known, or not any more.
        """
        values = await self._client.rows("HMGET", self._keys.candidate(identifier), *_FIELDS)
        fields = {
            name: value.decode("utf-8", "replace")
            for name, value in zip(_FIELDS, values, strict=True)
            if value is not None
        }
        if "id" not in fields:
            raise GuardError(
                f"no memory write has the decision id `{identifier}`; it may have expired"
            )
        return Reviewed(fields)

    async def promote(
        self, identifier: str, target: MemoryClass, seconds: int, issuer: str, seal: Seal
    ) -> str:
        """Issue a promotion token for exactly the content and principal of a candidate.

        The agent's retry finds it by its binding; stores with a place for a token may carry it.

        Returns:
            The token; it is kept nowhere in clear.

        Raises:
            GuardError: the candidate is not known, or its content was altered.
        """
        fields = (await self.candidate(identifier)).fields
        secret = f"{TOKEN_PREFIX}{secrets.token_urlsafe(24)}"
        digest, principal = fields["digest"], fields["principal"]
        if content_digest(fields["tool"], fields.get("content", "")) != digest:
            raise GuardError(
                f"the content of `{identifier}` is not what was staged; it was altered or cut"
            )
        until = await self._now() // 1000 * 1000 + seconds * 1000
        binding = self._keys.binding(digest, target, principal)
        names = (binding, self._keys.token(secret))
        mac = seal.promotion(self._tenant, digest, target.name, principal, until)
        script = load_script("promote")
        await self._client.run(script, 2, *names, binding, seconds * 1000, issuer, until, mac)
        return secret

    async def quarantine(self, store: str, partition: str, reason: str, seconds: int) -> None:
        """Close a partition: no write enters it until it is released or the time is over."""
        key = self._keys.quarantine(store, partition)
        await self._client.execute("SET", key, reason or "-", "PX", seconds * 1000)
        until, name = await self._now() + seconds * 1000, json.dumps([store, partition])
        await self._client.execute("ZADD", self._keys.closed, until, name)

    async def release(self, store: str, partition: str) -> bool:
        """Open a partition again; False where it was not closed."""
        await self._client.execute("ZREM", self._keys.closed, json.dumps([store, partition]))
        return await self._client.execute("DEL", self._keys.quarantine(store, partition)) == 1

    async def closed(self) -> list[Closed]:
        """Return the partitions that are closed, the last to be open again first."""
        key = self._keys.closed
        await self._client.execute("ZREMRANGEBYSCORE", key, "-inf", await self._now())
        items = await self._client.rows("ZREVRANGE", key, 0, CLOSED_SHOWN - 1, "WITHSCORES")
        found: list[Closed] = []
        for member, score in zip(items[::2], items[1::2], strict=True):
            store, partition = json.loads(member)
            why = await self._client.execute("GET", self._keys.quarantine(store, partition))
            if isinstance(why, bytes):
                text = why.decode("utf-8", "replace")
                found.append(Closed(store, partition, text, float(score) / 1000))
        return found

    async def _now(self) -> int:
        """Return what time it is in Redis, in milliseconds."""
        seconds, rest = await self._client.rows("TIME")
        return int(seconds) * 1000 + int(rest) // 1000

    async def review(self, limit: int) -> list[Reviewed]:
        """Return the newest refused candidates, and those of unknown fate or still in flight."""
        found: dict[str, Reviewed] = {}
        for key in (self._keys.in_flight, self._keys.review):
            for identifier in await self._client.rows("ZREVRANGE", key, 0, limit - 1):
                with suppress(GuardError):
                    name = identifier.decode()
                    found.setdefault(name, await self.candidate(name))
        return list(found.values())[:limit]

    async def in_flight(self, older_than: float) -> list[Reviewed]:
        """Return committed candidates without a known fate for so many seconds, oldest first."""
        now = await self._now()
        key, limit = self._keys.in_flight, now - int(older_than * 1000)
        bounds = ("-inf", limit, "WITHSCORES", "LIMIT", 0, LOOKED_AFTER)
        items = await self._client.rows("ZRANGEBYSCORE", key, *bounds)
        found: list[Reviewed] = []
        for member, score in zip(items[::2], items[1::2], strict=True):
            name = member.decode()
            try:
                reviewed = await self.candidate(name)
            except GuardError:
                # Its record has expired; there is nothing left to settle.
                await self._client.execute("ZREM", key, name)
                continue
            found.append(Reviewed(reviewed.fields, (now - float(score)) / 1000))
        return found

    async def settle(self, reviewed: Reviewed, fate: Fate, seconds: int) -> None:
        """Record the fate of a candidate, after the store was read back."""
        fields = reviewed.fields
        place = fields["store"], fields["partition"], fields["key"]
        # Reading back says nothing new about what a principal's items say.
        names = self._keys.settled(reviewed.id, *place, fields["principal"])
        await self._client.run(
            load_script("settle"), len(names), *names, reviewed.id, fate.value, seconds * 1000
        )

    async def drift(self) -> list[tuple[str, str]]:
        """Return the drift findings as (principal, subject), newest first."""
        found = await self._client.rows("ZREVRANGE", self._keys.findings, 0, 199)
        names = (item.decode().partition("\n") for item in found)
        return [(principal, subject) for principal, _, subject in names]

    async def restore(self, kind: str, name: str) -> int:
        """Trust a source or principal again; return the level it had."""
        level = await self.trust(kind, name)
        await self._client.execute("DEL", self._keys.trust(kind, name))
        return level

    async def trust(self, kind: str, name: str) -> int:
        """Return the level of a source or principal."""
        level = await self._client.run(load_script("level"), 1, self._keys.trust(kind, name))
        return level if isinstance(level, int) else 0
