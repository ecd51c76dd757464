"""Requests for approval in Redis: the index of waiting requests, answers, untrusted text.

An answer appends its decision id to a short stream, one per tenant; a guard that holds calls open
reads the new entries, once for all held calls.

Pinned tool definitions in Redis as operators work on them: list, compare, approve.

Operators' actions on a principal's status: end a pause, open and close a break-glass.

Records that wait for the consent of a second person: enciphered, in Redis.

So a console that is started anew knows it, and so does every other console of the deployment.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from guard.core.errors import GuardError
from guard.core.model import Identity, Json
from guard.provenance.approvals import (
    FIRST_FIELD,
    REQUEST_FIELD,
    UNNAMED,
    ApprovalRequest,
    Approvals,
    Approver,
    AskedReceiver,
)
from guard.provenance.established import Established, SendRecord, read_sent, sent_fields, sent_mark
from guard.provenance.intake import excerpt_naming
from guard.provenance.label_sets import (
    BUCKETS,
    EXCERPT,
    MARKED,
    PINNED,
    SELECTED,
    WAITING_PARTS,
    LabelSets,
    answers,
    pin_set,
    request,
    waiting,
)
from guard.provenance.ladder import SELECTED_WHY
from guard.provenance.principal_status import (
    ASKED_SECONDS,
    GLASS,
    PAUSE,
    BreakGlass,
    Pause,
    asked_set,
    mark_of,
    principal_status_set,
    read,
    sealed,
    write,
)
from guard.provenance.seal import SOURCE_LIMIT, Seal
from guard.provenance.selected_values import read_explanation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from guard.core.labels import LabelSet
    from guard.core.policy import StateLimits
    from guard.core.ports import Fate
    from guard.memory.pins import Pin, Pins, ToolOffers
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


_TAKE_MARK: Final = """
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
        if await self._store.client.execute("EVAL", _TAKE_MARK, "1", key, name, raw) != 1:
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


_KINDS: Final[dict[bytes, Callable[..., Pause | BreakGlass]]] = {PAUSE: Pause, GLASS: BreakGlass}


class PrincipalStatusOperator:
    """Works on what is on record of the principals of one tenant.

    Args:
        store: connected.
        seal: the deployment's key.
        tenant: whose principals.
    """

    def __init__(self, store: RedisSessionStore, seal: Seal, tenant: str) -> None:
        self._store = store
        self._seal = seal
        self._tenant = tenant
        self._asked = Awaited(store, seal, tenant, asked_set(tenant), BreakGlass, ASKED_SECONDS)

    async def in_force(self, at: float) -> tuple[list[Pause], list[BreakGlass]]:
        """Return the pauses and the break-glasses in force."""
        found = [one async for one in self._records() if one.until > at]
        pauses = [one for one in found if isinstance(one, Pause)]
        return pauses, [one for one in found if isinstance(one, BreakGlass)]

    async def asked_glasses(self, at: float) -> list[BreakGlass]:
        """Return the break-glasses for which a second person is missing."""
        return await self._asked.listed(at)

    async def resume(self, principal: str) -> bool:
        """End the pause of a principal; return whether there was one."""
        return await self._drop(principal, PAUSE)

    async def close_glass(self, principal: str) -> bool:
        """End the break-glass of a principal; return whether there was one."""
        return await self._drop(principal, GLASS)

    async def ask_glass(self, glass: BreakGlass, by: Approver, at: float) -> BreakGlass:
        """Keep a break-glass until a second person opens it; return it with its id.

        Args:
            glass: principal, tool, seconds and why.
            by: who asks for it.
            at: now.

        Raises:
            GuardError: it is not this person's to ask for, or too many wait.
        """
        _check(glass.principal, by)
        asked = replace(
            glass,
            id=secrets.token_hex(6),
            at=at,
            until=0.0,
            first=by.name,
            realm=by.realm,
            subject=by.subject,
        )
        await self._asked.keep(asked)
        return asked

    async def open_glass(
        self, identifier: str, by: Approver, at: float, longest: int
    ) -> BreakGlass:
        """Open a break-glass that another person asked for; return it.

        Args:
            identifier: of what was asked for.
            by: the second person.
            at: now.
            longest: seconds, by the policy.

        Raises:
            GuardError: none waits, or this person cannot be the second.
        """
        asked = await self._asked.one(identifier, at)
        if asked is None:
            raise GuardError("no break-glass waits under this id; it may have expired")
        _check(asked.principal, by)
        if (asked.realm, asked.subject) == (by.realm, by.subject) or asked.realm != by.realm:
            raise GuardError("another person has to open it, who signed in as the first did")
        # Taken first: of two who open it at once, one finds it.
        if not await self._asked.take(identifier):
            raise GuardError("somebody else has just opened it")
        until = at + min(asked.seconds, longest)
        opened = replace(asked, at=at, until=until, second=by.name)
        identity = Identity("", "", tenant=self._tenant)
        await self._store.note(identity, [write(self._seal, self._tenant, GLASS, opened)])
        return opened

    async def _drop(self, principal: str, kind: bytes) -> bool:
        mark = mark_of(self._seal, principal)
        key = self._key(principal_status_set(self._tenant, mark))
        return await self._store.client.execute("HDEL", key, mark + kind) == 1

    async def _records(self) -> AsyncIterator[Pause | BreakGlass]:
        identity = Identity("", "", tenant=self._tenant)
        areas = [principal_status_set(self._tenant, bytes([bucket])) for bucket in range(BUCKETS)]
        with self._store.together():
            every = await asyncio.gather(*(self._store.fields(identity, area) for area in areas))
        for area, fields in zip(areas, every, strict=True):
            for field, raw in fields.items():
                kind = _KINDS.get(field[-1:])
                found = read(self._seal, area, field, raw, kind) if kind else None
                if found is not None:
                    yield found

    def _key(self, area: LabelSet) -> bytes:
        return self._store.key_of(self._tenant, area)


def _check(principal: str, by: Approver) -> None:
    if by.realm in UNNAMED:
        raise GuardError(
            "a break-glass needs two people who sign in by name, not by the printed link"
        )
    if by.is_principal(principal):
        raise GuardError(f"`{by.name}` cannot open what an agent in the same name would do")
