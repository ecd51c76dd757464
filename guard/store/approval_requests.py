"""Requests for approval in Redis: the index of waiting requests, answers, untrusted text.

An answer appends its decision id to a short stream, one per tenant; a guard that holds calls open
reads the new entries, once for all held calls.

Records that wait for the consent of a second person are enciphered in Redis, so that every console
of the deployment knows them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from guard.core.errors import GuardError
from guard.core.model import Identity, Json
from guard.provenance.approvals import (
    FIRST_FIELD,
    REQUEST_FIELD,
    ApprovalRequest,
    Approvals,
    AskedReceiver,
)
from guard.provenance.established import Established, SendRecord, read_sent, sent_fields, sent_mark
from guard.provenance.intake import excerpt_naming
from guard.provenance.label_sets import (
    EXCERPT,
    SELECTED,
    WAITING_PARTS,
    LabelSets,
    answers,
    request,
    waiting,
)
from guard.provenance.ladder import SELECTED_WHY
from guard.provenance.principal_status import (
    read,
    sealed,
)
from guard.provenance.seal import SOURCE_LIMIT, Seal
from guard.provenance.selected_values import read_explanation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.labels import LabelSet
    from guard.core.policy import StateLimits
    from guard.core.ports import Fate
    from guard.store.store import RedisSessionStore


_FIRST: Final = """
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return 0 end
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 1 then return 1 end
return redis.call('HGET', KEYS[1], ARGV[1])"""
"""Keep the first of two answers: 0 if the request is gone, 1 for the first, else that answer."""
_ASKED: Final = (REQUEST_FIELD, FIRST_FIELD)
_FETCHED: Final = 1000
"""Maximum number of requests in one read."""


class ApprovalRequests:
    """Requests for approval of one tenant.

    Args:
        store: a connected store in the guard's namespace.
        seal: the deployment's key.
        limits: state limits of the guard's policy.
        tenant: name of the tenant.
    """

    def __init__(
        self, store: RedisSessionStore, seal: Seal, limits: StateLimits, tenant: str
    ) -> None:
        self._store = store
        self._seal = seal
        self._limits = limits
        self._tenant = tenant
        self._approvals = Approvals(seal)

    async def listed(self) -> list[ApprovalRequest]:
        """Return what waits for an answer, the oldest first; records that were altered are not."""
        client = self._store.client
        parts = [waiting(self._tenant, part, 1) for part in range(WAITING_PARTS)]
        keys = [self._store.key_of(self._tenant, part) for part in parts]
        with self._store.together():
            pages = await asyncio.gather(
                *(client.rows("ZRANGEBYSCORE", key, "-inf", "+inf") for key in keys)
            )
        listed = [(key, member) for key, page in zip(keys, pages, strict=True) for member in page]
        found: list[ApprovalRequest] = []
        for start in range(0, len(listed), _FETCHED):
            found += await self._listed(listed[start : start + _FETCHED])
        return sorted(found, key=lambda one: one.at)

    async def _listed(self, listed: Sequence[tuple[bytes, bytes]]) -> list[ApprovalRequest]:
        """Return the requests of some entries of the index; take out what waits no longer."""
        client = self._store.client
        names = [member.decode("utf-8", "replace") for _, member in listed]
        with self._store.together():
            replies = await asyncio.gather(
                *(client.rows("HMGET", self._place(name), *_ASKED) for name in names)
            )
        raw = dict(zip(names, replies, strict=True))
        found: list[ApprovalRequest] = []
        for name, (body, first) in raw.items():
            with suppress(GuardError):
                asked = self._opened(name, body)
                # Of several calls of one message, one keeps who was the first to approve it.
                kept = raw.get(asked.key, (None, first))[1]
                found.append(self._with_first(asked, kept))
        gone = [one for one, name in zip(listed, names, strict=True) if raw[name][0] is None]
        with self._store.together():
            await asyncio.gather(*(client.execute("ZREM", *one) for one in gone))
        return found

    async def list_again(self, keys: Sequence[bytes]) -> None:
        """List requests that were put back, by their keys."""
        prefix = len(self._place(""))
        for key in keys:
            with suppress(GuardError):
                decision = key[prefix:].decode("utf-8", "replace")
                asked = await self.read(decision)
                identity = Identity("", "", tenant=self._tenant)
                await self._store.note(identity, [self._approvals.indexed(asked, decision)])

    def _place(self, decision: str) -> bytes:
        return self._store.key_of(self._tenant, request(self._tenant, decision, 1))

    async def read(self, decision_id: str) -> ApprovalRequest:
        """Return a waiting request.

        Raises:
            GuardError: no request waits under this id, or its record was altered.
        """
        key = self._place(decision_id)
        asked = self._opened(
            decision_id, await self._store.client.execute("HGET", key, REQUEST_FIELD)
        )
        if asked.people > 1:
            key = self._place(asked.key)
            asked = self._with_first(
                asked, await self._store.client.execute("HGET", key, FIRST_FIELD)
            )
        return asked

    def _opened(self, decision_id: str, raw: object) -> ApprovalRequest:
        """Return a request as it is kept.

        Raises:
            GuardError: none is, or its record was altered.
        """
        if not isinstance(raw, bytes):
            raise GuardError(
                f"no call waits for approval under `{decision_id}`; it may have expired"
            )
        try:
            return self._approvals.read(self._tenant, decision_id, raw)
        except ValueError as error:
            raise GuardError(str(error)) from error

    def _with_first(self, asked: ApprovalRequest, raw: object) -> ApprovalRequest:
        """Return a request with the name of the first of two people who approve it."""
        if asked.people == 1 or not isinstance(raw, bytes):
            return asked
        found = self._approvals.first_of(asked, raw)
        return replace(asked, first=found[0].name) if found else asked

    async def keep_first(self, asked: ApprovalRequest, sealed: bytes) -> bytes | None:
        """Keep the first of two answers; return the one that is there already, None for none.

        Raises:
            GuardError: the request was answered meanwhile.
        """
        key = self._place(asked.key)
        reply = await self._store.client.execute(
            "EVAL", _FIRST, "1", key, FIRST_FIELD, sealed, REQUEST_FIELD
        )
        if reply == 0:
            raise GuardError(f"`{asked.decision}` has just been answered by somebody else")
        return reply if isinstance(reply, bytes) else None

    async def take(self, asked: ApprovalRequest, *, granted: bool) -> None:
        """Take the requests of one message away, in one step.

        Raises:
            GuardError: somebody else has.
        """
        decisions, feed = [call.decision for call in asked.calls], RedisAnswers(self._store)
        if not await feed.take(self._tenant, decisions, granted=granted):
            raise GuardError(f"`{asked.decision}` has just been answered by somebody else")

    async def tell(self, asked: ApprovalRequest, *, granted: bool) -> None:
        """Wake who holds the calls; where that fails, they look when their time is up."""
        with suppress(GuardError):
            decisions = [call.decision for call in asked.calls]
            await RedisAnswers(self._store).tell(self._tenant, decisions, granted=granted)

    async def with_context(self, asked: ApprovalRequest, receiver: AskedReceiver) -> AskedReceiver:
        """Return a receiver with the text that named it and what was sent to it before."""
        sets = LabelSets(self._limits)
        sent, count = await self._sends(asked.principal, receiver.kind, receiver.receiver)
        text, selection = "", None
        if receiver.channel in SELECTED_WHY:
            selection = await self._explanation(sets, receiver)
        elif receiver.met_in:
            met = bytes.fromhex(receiver.met_in)
            area = sets.excerpt(self._tenant, met, receiver.call, receiver.at)
            key = self._store.key_of(self._tenant, area)
            raw = await self._store.client.execute("HGET", key, EXCERPT)
            text = excerpt_naming(self._seal, area, raw, receiver.receiver)
        return replace(receiver, text=text, selection=selection, sent=tuple(sent), sends=count)

    async def last_send(self, one: Established) -> float:
        """Return the time of the last send of a principal's tool to a receiver; 0 for none."""
        sent, _ = await self._sends(one.principal, one.kind, one.receiver)
        return max((was.at for was in sent if was.tool == one.tool[:SOURCE_LIMIT]), default=0.0)

    async def _sends(
        self, principal: str, kind: str, receiver: str
    ) -> tuple[list[SendRecord], int]:
        """Return the earlier sends on record to a receiver, and how many there were."""
        mark = sent_mark(self._seal, principal, kind, receiver)
        area = LabelSets(self._limits).sent(self._tenant, mark)
        key = self._store.key_of(self._tenant, area)
        raw = await self._store.client.rows("HMGET", key, *sent_fields(mark))
        return read_sent(self._seal, area, mark, raw)

    async def _explanation(
        self, sets: LabelSets, receiver: AskedReceiver
    ) -> dict[str, Json] | None:
        """Return what was found of the recalled answer that a receiver stood in, None if lost."""
        met = bytes.fromhex(receiver.met_in)
        area = sets.explanation(self._tenant, met, receiver.call, receiver.at)
        key = self._store.key_of(self._tenant, area)
        raw = await self._store.client.execute("HGET", key, SELECTED)
        return read_explanation(self._seal, area, raw)


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
