"""Records that wait for the consent of a second person: enciphered, in Redis.

So a console that is started anew knows it, and so does every other console of the deployment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from guard.core.errors import GuardError
from guard.core.model import Identity
from guard.provenance.principal_status import read, sealed

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.labels import LabelSet
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore

WAITING: Final = 100
"""Records of one kind and tenant that may wait at a time."""
_KEEP: Final = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1"""


class Waits(Protocol):
    """A record that waits for a second person."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def at(self) -> float:
        """Time of the request, in seconds since the epoch."""


RecordT = TypeVar("RecordT", bound=Waits)


class Awaited(Generic[RecordT]):
    """The records of one kind of one tenant.

    Args:
        store: connected.
        seal: the deployment's key.
        tenant: whose.
        area: where they lie, by their ids.
        made: makes a record of its fields; TypeError where they do not fit.
        seconds: how long one waits.
    """

    def __init__(
        self,
        store: RedisSessionStore,
        seal: Seal,
        tenant: str,
        area: LabelSet,
        made: Callable[..., RecordT],
        seconds: float,
    ) -> None:
        self._store, self._seal, self._tenant, self._area = store, seal, tenant, area
        self._made, self._seconds = made, seconds
        self._key = store.key_of(tenant, area)

    async def listed(self, at: float) -> list[RecordT]:
        """Return what waits, the oldest first; records that were altered are left out."""
        fields = await self._store.fields(Identity("", "", tenant=self._tenant), self._area)
        seal, area, made = self._seal, self._area, self._made
        found = (read(seal, area, name, raw, made) for name, raw in fields.items())
        waiting = (one for one in found if one is not None and one.at + self._seconds > at)
        return sorted(waiting, key=lambda one: one.at)

    async def keep(self, record: RecordT) -> None:
        """Have a record wait.

        Raises:
            GuardError: too many wait already.
        """
        if len(await self.listed(record.at)) >= WAITING:
            raise GuardError("too many wait for a second person")
        field = record.id.encode()
        body = sealed(self._seal, self._area, field, record)
        ttl = self._area.ttl
        await self._store.client.execute("EVAL", _KEEP, "1", self._key, field, body, ttl)

    async def one(self, identifier: str, at: float) -> RecordT | None:
        """Return what waits under an id, None where nothing does."""
        return next((one for one in await self.listed(at) if one.id == identifier), None)

    async def take(self, identifier: str) -> bool:
        """Take a record away; of two who do at once, one is told that it was there."""
        return await self._store.client.execute("HDEL", self._key, identifier.encode()) == 1
