"""The session store on a real Redis: one EVALSHA per call and direction.

A server is used only if it is fit to hold labels: new enough, and set to evict nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.errors import StateError
from guard.core.labels import (
    NO_QUERY,
    NO_REPLY,
    LabelLookup,
    LabelQuery,
    LabelReply,
    LabelSet,
    LabelWrite,
)
from guard.core.model import ROLES, Identity
from guard.core.policy import StateLimits
from guard.core.trajectory import Snapshot, Window
from guard.settings import Durability
from guard.store.connection import (
    TIMEOUT,
    CommandRefusedError,
    RedisClient,
)
from guard.store.layout import COUNTER_MAX, FRESH_WINDOW, Keys, decode_window, load_script
from guard.store.topology import open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from guard.core.ports import Attempt, Completion
    from guard.store.continuity import ContinuityWatch

MINIMUM_VERSION: Final = (6, 2)
_PAIR: Final = 2
_AREA: Final = attrgetter("area")
_FIELDS: Final = attrgetter("fields")
_ENTRIES: Final = attrgetter("entries")
_HEAD: Final = 3
"""Arguments in front of the fields of an attempt's look-ups."""
COUNTERS: Final = 0x8000
"""Added to the number of an area's fields where they are counters with their amounts."""
_PACKED: Final = 256
"""Look-ups that are kept as they are sent."""
_UNCONFIRMED: Final = "redis did not confirm the end of a call"
_PAGE: Final = 512
"""Fields that one step of a scan looks at."""


def parse_info(reply: object) -> dict[str, str]:
    """Return the fields of an INFO answer.

    Raises:
        StateError: it is not text.
    """
    lines = _text(reply).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def check_version(info: dict[str, str]) -> None:
    """Refuse a server older than ``MINIMUM_VERSION``.

    Raises:
        StateError: it is, or does not say.
    """
    version = info.get("redis_version", "")
    parts = version.split(".")
    if not all(part.isdigit() for part in parts[:2]) or (
        tuple(int(part) for part in parts[:2]) < MINIMUM_VERSION
    ):
        raise StateError(f"redis is version `{version}`; the guard needs 6.2 or newer")


class UnfitError(StateError):
    """The server answers, and is not set to hold labels."""


def check_eviction(settings: dict[str, str]) -> None:
    """Refuse a server that may drop keys to make room: a dropped label would look like none.

    Raises:
        UnfitError: it may, or does not say.
    """
    policy, limit = settings.get("maxmemory_policy", ""), settings.get("maxmemory", "")
    if policy == "noeviction":
        return
    if not policy or not limit.isdigit():
        raise UnfitError("redis does not say how it evicts; allow the guard INFO")
    if int(limit) > 0:
        raise UnfitError(
            f"redis may evict keys (maxmemory-policy `{policy}`) and with them what sessions did; "
            "run CONFIG SET maxmemory-policy noeviction, and set it in redis.conf"
        )


async def _check_settings(client: RedisClient) -> None:
    """Refuse a server that may drop labels, or that does not keep them as the operator wants.

    Raises:
        UnfitError: it may, or does not.
        StateError: it does not answer.
    """
    check_eviction(parse_info(await client.execute("INFO", "memory")))
    if client.durability is Durability.FSYNC:
        await _check_fsync(client)
    elif client.durability is Durability.REPLICATED:
        info = parse_info(await client.execute("INFO", "replication"))
        if info.get("connected_slaves", "0") == "0":
            raise UnfitError("durability is `replicated` and redis has no replica; attach one")


async def _check_fsync(client: RedisClient) -> None:
    wanted = {"appendonly": b"yes", "appendfsync": b"always"}
    for name, value in wanted.items():
        try:
            reply = await client.execute("CONFIG", "GET", name)
        except CommandRefusedError:
            reply = None
        if not isinstance(reply, list) or reply[1:] != [value]:
            raise UnfitError(
                f"durability is `fsync` and redis does not say `{name} {value.decode()}`; set it "
                "in redis.conf and allow the guard CONFIG GET"
            )


def _text(reply: object) -> str:
    if not isinstance(reply, bytes):
        raise StateError("redis answered with something else than text")
    return reply.decode("utf-8", "replace")


ANCHOR: Final = "audit:"
ANCHOR_SECONDS: Final = 90 * 24 * 3600
RECHECK_SECONDS: Final = 10.0
TURN: Final = 256
"""Label records that are stored at once: a script with thousands would hold up all other calls."""
SOURCE_LIMIT: Final = 1_000_000
"""Labels that one source may add for one principal within ``SOURCE_PERIOD`` before the principal
counts as full."""
SOURCE_PERIOD: Final = 7 * 24 * 3600
"""Seconds."""


class RedisSessionStore:
    """Trajectories of sessions and principals; implements :class:`guard.core.ports.SessionStore`.

    Args:
        client: the connection; the store closes it.
        namespace: first part of every key.
        limits: how long the windows outlive their last touch.
        continuity: tells whether the store has lost labels; without it, it never has.

    Raises:
        StateError: the namespace or a limit cannot be used.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        namespace: str = "guard",
        limits: StateLimits | None = None,
        continuity: ContinuityWatch | None = None,
    ) -> None:
        self.client = client
        self._continuity = continuity
        self.namespace = namespace
        """First part of every key."""
        self._keys = Keys(namespace)
        self._unfit = ""
        self.set_limits(limits or StateLimits())
        self._packed: dict[int, tuple[tuple[LabelLookup, ...], str, _Packed]] = {}
        self._attempt = load_script("attempt")
        self._complete = load_script("complete")
        self._note = load_script("note")

    def set_limits(self, limits: StateLimits) -> None:
        """Take the limits of another policy for every window touched from now on.

        Raises:
            StateError: a limit would keep nothing.
        """
        if min(limits.session_idle, limits.principal_window) <= 0:
            raise StateError(
                "state limits must be at least one second, or nothing would be remembered"
            )
        self._ttls = (limits.session_idle * 1000, limits.principal_window * 1000)
        self._labels = limits.labels

    @classmethod
    def at(
        cls,
        url: str,
        *,
        namespace: str = "guard",
        limits: StateLimits | None = None,
        timeout: float = TIMEOUT,
        durability: Durability = Durability.RELAXED,
    ) -> RedisSessionStore:
        """Return a store at a URL of :func:`open_client`; connects on use.

        Raises:
            StateError: the URL cannot be used.
        """
        client = open_client(url, timeout=timeout, durability=durability)
        return cls(client, namespace=namespace, limits=limits)

    async def attempt(self, attempt: Attempt) -> Snapshot:
        """Append the call as attempted and return the state before it, in one EVALSHA.

        ``attempt.unlabelled`` belongs to results released before this call, so the snapshot
        already contains it: the call must not be judged without it.

        Raises:
            StateError: the store did not answer in time, or not with two sound windows.
        """
        if attempt.unlabelled < 0:
            raise StateError("the number of unlabelled results is negative, so marks were lost")
        if self._unfit:
            raise StateError(self._unfit)
        identity = attempt.identity
        query = attempt.query
        areas, fields = self._asked(identity.tenant, query)
        names = self._keys.of(identity)
        reply = await self.client.run(
            self._attempt,
            len(areas) + 4,
            names.session,
            names.principal,
            names.full,
            b"%b%b:" % (names.grants, attempt.grant.encode()),
            *areas,
            ROLES.index(attempt.role),
            *self._ttls,
            min(attempt.unlabelled, COUNTER_MAX),
            *fields,
        )
        told = 0 if query.pieces is None else 1 - len(query.pieces.fields)
        if not isinstance(reply, list) or len(reply) != 4 + max(0, len(fields) - _HEAD + told):
            raise StateError(
                "redis answered an attempt with something else than windows and labels"
            )
        session, principal, full, taken, *labels = reply
        continuity = self._continuity
        if continuity is not None and continuity.has_parts:
            continuity = continuity.of(identity.tenant)
        if continuity is not None and (
            principal == FRESH_WINDOW or self.client.opened != continuity.opened
        ):
            # A principal that is new to the store may be one that the store has lost.
            await continuity.look(self._labels)
        incomplete = continuity is not None and attempt.at < continuity.incomplete_until
        window = decode_window(session)
        return Snapshot(
            window,
            # One session per principal is the common case, and then the two are the same.
            window if principal == session else decode_window(principal),
            NO_REPLY if query is NO_QUERY else _reply(query, labels),
            taken if isinstance(taken, bytes) else None,
            full != 0 or (continuity is not None and continuity.kept and incomplete),
            incomplete,
        )

    def _asked(self, tenant: str, query: LabelQuery) -> tuple[list[bytes], list[bytes | str | int]]:
        """Return keys and arguments of look-ups, as ``attempt.lua`` takes them.

        What is read of one set in a row is one command: a session's set is read for several
        purposes, and ``named`` comes last.

        Raises:
            struct.error: a look-up has more fields than two bytes can count.
        """
        if query is NO_QUERY:
            return [], []
        named, counters, names = query.named, query.counters, self._keys
        begin = [*filter(None, (query.definition, counters))]
        end = [*filter(None, (query.recalls, named))]
        if not (begin or end or query.values):
            return [], []
        first = _packed_lookups(names, tenant, begin) if begin else _NO_LOOKUPS
        found = self._packed.get(id(query.values)) if query.repeats else None
        if found is not None and found[1] == tenant:
            values = found[2]
        else:
            values = _packed_lookups(names, tenant, query.values)
            if query.repeats:
                if len(self._packed) >= _PACKED:
                    self._packed.clear()
                # What is kept cannot be collected, so no other look-ups have its id.
                self._packed[id(query.values)] = query.values, tenant, values
        keys, sizes = [*first.keys, *values.keys], [*first.sizes, *values.sizes]
        fields = [*first.fields, *values.fields]
        if counters is not None:
            sizes[len(begin) - 1] += COUNTERS
        last = query.values[-1].area if query.values else None
        for lookup in end:
            if lookup.area is last:
                sizes[-1] += len(lookup.fields)
            else:
                last = lookup.area
                keys.append(names.area(tenant, last))
                sizes.append(len(lookup.fields))
            fields += lookup.fields
        count = 0 if named is None else len(named.fields)
        receivers = 0 if query.pieces is None else len(query.told)
        at, seldom = len(begin) + query.seldom[0], query.seldom[1]
        # How many sets lie before those that seldom exist, how many they are, and their fields.
        sizes += (at, seldom, sum(sizes[at : at + seldom])) if seldom > 1 else ()
        packed = struct.pack(f">{len(sizes)}H", *sizes)
        arguments: list[bytes | str | int] = [packed, count, receivers, *fields]
        if query.pieces is not None:
            arguments += query.pieces.fields
            keys += names.areas(tenant, (query.pieces.area, *query.told))
        return keys, arguments

    async def complete(self, completion: Completion) -> None:
        """Mark the call executed or refused and store its labels, in one EVALSHA.

        Of the many labels of a large result only the last are stored with the mark, the others
        before it and in turns: what others ask for in the meantime is answered between two.

        Raises:
            StateError: the store did not answer in time, or did not confirm.
        """
        identity = completion.identity
        last: Sequence[LabelWrite] = completion.writes
        if sum(map(len, map(_ENTRIES, last))) > TURN:
            *before, last = _in_turns(last)
            for writes in before:
                await self._store(identity, writes, completion.source, completion.at)
        keys, arguments = _packed_writes(self._keys, identity.tenant, last)
        session_key, principal_key, full_key, sources_key, _ = self._keys.of(identity)
        reply = await self.client.run(
            self._complete,
            len(keys) + 4,
            session_key,
            principal_key,
            full_key,
            sources_key + b"%d" % (completion.at // SOURCE_PERIOD),
            *keys,
            ROLES.index(completion.role),
            *self._ttls,
            "executed" if completion.executed else "refused",
            int(completion.overflow),
            completion.source,
            SOURCE_LIMIT,
            *arguments,
        )
        if reply != 1:
            raise StateError(_UNCONFIRMED)

    def together(self) -> AbstractContextManager[None]:
        """Let what several tasks ask for in here travel in one write."""
        return self.client.together()

    async def note(self, identity: Identity, writes: Sequence[LabelWrite]) -> None:
        """Store label records that belong to no call, in one EVALSHA.

        Raises:
            StateError: as for :meth:`complete`.
        """
        await self._store(identity, writes)

    async def _store(
        self, identity: Identity, writes: Sequence[LabelWrite], source: str = "", at: float = 0.0
    ) -> None:
        """Store label records, which count against a source if one is named."""
        keys, arguments = _packed_writes(self._keys, identity.tenant, writes)
        names = self._keys.of(identity)
        reply = await self.client.run(
            self._note,
            len(keys) + 2,
            names.full,
            names.sources + b"%d" % (at // SOURCE_PERIOD),
            *keys,
            self._ttls[1],
            0,
            source,
            SOURCE_LIMIT,
            *arguments,
        )
        if reply != 1:
            raise StateError(_UNCONFIRMED)

    async def look_up(self, identity: Identity, lookup: LabelLookup) -> tuple[object, ...]:
        """Return label records that belong to no call, in one HMGET.

        Raises:
            StateError: as for :meth:`complete`.
        """
        key = self._keys.area(identity.tenant, lookup.area)
        return tuple(await self.client.rows("HMGET", key, *lookup.fields))

    async def fields(self, identity: Identity, area: LabelSet) -> dict[bytes, bytes]:
        """Return all of one set of records, a page at a time so that nobody waits long.

        Raises:
            StateError: as for :meth:`complete`.
        """
        key = self._keys.area(identity.tenant, area)
        found: dict[bytes, bytes] = {}
        cursor = b"0"
        while True:
            cursor, page = await self.client.rows("HSCAN", key, cursor, "COUNT", _PAGE)
            found.update(zip(page[::2], page[1::2], strict=True))
            if cursor == b"0":
                return found

    async def windows(self, identity: Identity) -> tuple[Window, Window]:
        """Return the windows of a session and of its principal as they are; nothing is appended.

        Raises:
            StateError: as for :meth:`complete`, or one is unreadable.
        """
        keys = self._keys.of(identity)[:2]
        found = [await self.client.execute("GET", key) for key in keys]
        session, principal = (decode_window(FRESH_WINDOW if w is None else w) for w in found)
        return session, principal

    def key_of(self, tenant: str, area: LabelSet) -> bytes:
        """Return the key of one set of label records, for operators' tools."""
        return self._keys.area(tenant, area)

    async def keep_anchor(self, note: str) -> None:
        """Keep a signed checkpoint of the audit log until it is replaced, or for 90 days.

        Raises:
            StateError: as for :meth:`complete`.
        """
        log = note.partition("\n")[0].rpartition("/")[2]
        key = f"{self.namespace}:{ANCHOR}{log}"
        await self.client.execute("SET", key, note, "EX", ANCHOR_SECONDS)

    async def anchors(self) -> list[str]:
        """Return the checkpoints that :meth:`keep_anchor` kept.

        Raises:
            StateError: as for :meth:`complete`.
        """
        notes: list[str] = []
        async for keys in self.client.scan(f"{self.namespace}:{ANCHOR}"):
            for key in keys:
                raw = await self.client.execute("GET", key)
                notes += [raw.decode()] if isinstance(raw, bytes) else []
        return notes

    async def verify(self) -> None:
        """Check that the server is fit to hold labels, and teach it the scripts.

        Raises:
            StateError: it cannot be reached, is too old, or may evict what it was given.
        """
        for server in await self.client.servers():
            if await server.execute("PING") != b"PONG":
                raise StateError("redis answered PING with something else than PONG")
            check_version(parse_info(await server.execute("INFO", "server")))
            await _check_settings(server)
            for script in (self._attempt, self._complete, self._note):
                sha = await server.execute("SCRIPT", "LOAD", script.text)
                if sha != script.sha.encode():
                    raise StateError(
                        f"redis stored another `{script.name}` script than it was given"
                    )
        if self._continuity is not None:
            await self._continuity.look_everywhere(self._labels)

    async def probe(self) -> None:
        """Try what a call needs of the store: that it is fit, runs scripts, and takes writes.

        Raises:
            StateError: it is not, or does not.
        """
        if self._unfit:
            raise StateError(self._unfit)
        await self.note(Identity("", ""), ())
        await self.client.execute("SET", f"{self.namespace}:probe", "1", "EX", 10)

    async def recheck(self) -> None:
        """Look once more whether the server may evict, and whether it is still the same store.

        While it may evict, no call is judged.
        """
        try:
            for server in await self.client.servers():
                await _check_settings(server)
        except UnfitError as error:
            self._unfit = str(error)
        except StateError:
            return  # Gone or slow: every call sees that by itself.
        else:
            self._unfit = ""
        if self._continuity is not None:
            # Gone or slow: every call sees that by itself.
            with suppress(StateError):
                await self._continuity.look_everywhere(self._labels)

    async def watch(self, seconds: float = RECHECK_SECONDS) -> None:
        """Recheck again and again: the server can be reconfigured, or replaced by its replica."""
        while True:
            await asyncio.sleep(seconds)
            await self.recheck()

    async def aclose(self) -> None:
        """Close the connection."""
        await self.client.aclose()


def _in_turns(writes: Sequence[LabelWrite]) -> list[Sequence[LabelWrite]]:
    """Return label records in portions of at most ``TURN``, in their order."""
    portions: list[Sequence[LabelWrite]] = []
    portion: list[LabelWrite] = []
    room = TURN
    for write in writes:
        left = write.entries
        while left:
            portion.append(replace(write, entries=left[:room]))
            left, room = left[room:], room - len(portion[-1].entries)
            if not room:
                portions.append(portion)
                portion, room = [], TURN
    return [*portions, portion] if portion else portions


def _packed_writes(
    names: Keys, tenant: str, writes: Sequence[LabelWrite]
) -> tuple[list[bytes], list[bytes | str | int]]:
    """Return keys and arguments of label records, as ``labels.lua`` takes them."""
    areas: list[LabelSet] = []
    arguments: list[bytes | str | int] = []
    for write in writes:
        area = write.area
        areas.append(area)
        if write.unless is not None:
            areas.append(write.unless)
        has_exceptions, count = int(write.unless is not None), len(write.entries)
        arguments += (write.mode.value, area.ttl, area.limit, has_exceptions, count)
        arguments += chain.from_iterable(write.entries)
    return names.areas(tenant, areas), arguments


class _Packed(NamedTuple):
    """Look-ups as ``attempt.lua`` takes them."""

    keys: list[bytes]
    sizes: list[int]
    """Number of fields that are read of each."""
    fields: list[bytes]


_NO_LOOKUPS: Final = _Packed([], [], [])


def _packed_lookups(names: Keys, tenant: str, lookups: Sequence[LabelLookup]) -> _Packed:
    asked = [*map(_FIELDS, lookups)]
    keys = names.areas(tenant, [*map(_AREA, lookups)])
    return _Packed(keys, [*map(len, asked)], [*chain.from_iterable(asked)])


def _reply(query: LabelQuery, labels: list[object]) -> LabelReply:
    """Return the answers to :func:`_packed_lookups` part by part."""
    begin, end = 0, len(labels)
    told = 0
    named: tuple[object, ...] = ()
    counters: tuple[object, ...] = ()
    recalls = definition = None
    if query.definition is not None:
        definition = labels[0]
        begin = 1
    if query.counters is not None:
        begin += len(query.counters.fields)
        counters = tuple(labels[begin - len(query.counters.fields) : begin])
    if query.pieces is not None:
        end -= 1
        told = _thousandths(labels[end])
    if query.named is not None:
        end -= len(query.named.fields)
        named = tuple(labels[end : end + len(query.named.fields)])
    if query.recalls is not None:
        end -= 1
        recalls = labels[end]
    return LabelReply(tuple(labels[begin:end]), named, recalls, definition, counters, told)


def _thousandths(reply: object) -> int:
    if not isinstance(reply, int):
        raise StateError("redis answered a look-up of pieces without how much was told")
    return reply


_REPLAY_TIMEOUT: Final = 10.0
"""Seconds for one answer of the store.  Nobody waits for a replay's verdict, so it may be long."""


@asynccontextmanager
async def fresh_store(url: str, limits: StateLimits) -> AsyncIterator[RedisSessionStore]:
    """Yield a store in a namespace that nobody has used; every key in it is removed at the end.

    Args:
        url: the Redis to use; others may use it too.
        limits: of the policy that is replayed.

    Raises:
        StateError: the server cannot be reached or is not fit to hold state.
    """
    namespace = f"guard-replay-{secrets.token_hex(8)}"
    store = RedisSessionStore.at(url, namespace=namespace, limits=limits, timeout=_REPLAY_TIMEOUT)
    try:
        await store.verify()
        try:
            yield store
        finally:
            async for keys in store.client.scan(f"{namespace}:"):
                # One by one: those of a Cluster's node need not be of one slot.
                with store.together():
                    await asyncio.gather(*(store.client.execute("UNLINK", key) for key in keys))
    finally:
        await store.aclose()
