"""Operators' actions on labels, approvals and pinned definitions in Redis.

Approve a call, import, list and trace labels, list, compare and approve definitions: each on the
command line, none on the path of a call.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from guard.adapters.redis.answers import RedisAnswers
from guard.core.errors import GuardError, StateError
from guard.core.labels import LabelSet
from guard.core.model import Identity
from guard.destinations.values import find_values, leaf_value
from guard.provenance.approvals import FIRST_FIELD, REQUEST_FIELD, Approvals, Grant
from guard.provenance.established import read_established, read_sent, sent_fields, sent_mark
from guard.provenance.imports import ImportedItem, import_writes
from guard.provenance.intake import excerpt_naming
from guard.provenance.label_sets import (
    ATTESTED,
    ESTABLISHED,
    ESTABLISHED_KIND,
    EXCERPT,
    HOPS,
    ITEM,
    MARKED,
    PINNED,
    SELECTED,
    SHOWN,
    TAINTED,
    WAITING_PARTS,
    LabelSets,
    bucket_of,
    pin_set,
    request,
    waiting,
)
from guard.provenance.ladder import SELECTED_WHY
from guard.provenance.lineage import LIST_LIMIT, entries_in, hops_of, path_of
from guard.provenance.seal import FINGERPRINT
from guard.provenance.selected_values import read_explanation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from guard.adapters.redis.store import RedisSessionStore
    from guard.core.labels import LabelRecord
    from guard.core.model import Json
    from guard.core.policy import StateLimits
    from guard.provenance.approvals import ApprovalRequest, Approver, AskedReceiver
    from guard.provenance.established import Established
    from guard.provenance.lineage import Entries, Hop, Step
    from guard.provenance.seal import Seal
    from guard.tool_pins.pins import Pin, Pins, ToolOffers

KINDS: Final = {ATTESTED: "value", TAINTED: "value", ITEM: "item"}
ONCE: Final = Grant()
_FIRST: Final = """
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then return 0 end
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 1 then return 1 end
return redis.call('HGET', KEYS[1], ARGV[1])"""
"""Keeps the first of two answers to a request that waits: 0 where none waits, 1 where it was the
first, else the answer that was."""
_ASKED: Final = (REQUEST_FIELD, FIRST_FIELD)
_FETCHED: Final = 1000
"""Waiting requests that one write asks for."""
_COUNT: Final = 256
"""Records that one import writes at a time."""


@dataclass(frozen=True, slots=True)
class LabelEntry:
    """One label record and the value or item that it labels."""

    mark: bytes
    """Fingerprint of the value or item."""
    kind: str
    """``item``, ``value`` or ``read`` (seen by one principal)."""
    record: LabelRecord


@dataclass(frozen=True, slots=True)
class LabelTrace:
    """The label records of one value or item, and its lineage."""

    records: list[LabelEntry]
    steps: list[Step]


class LabelOperator:
    """Works on one tenant's labels.

    Args:
        store: connected; its namespace is the guard's.
        seal: the deployment's key.
        limits: of the guard's policy.
        tenant: whose labels.
    """

    def __init__(
        self,
        store: RedisSessionStore,
        seal: Seal,
        limits: StateLimits,
        tenant: str = "default",
    ) -> None:
        self._store = store
        self.seal = seal
        self._approvals = Approvals(seal)
        self._limits = limits
        self._tenant = tenant

    async def waiting(self) -> list[ApprovalRequest]:
        """Return what waits for an answer, the oldest first; records that were altered are not."""
        client = self._store.client
        parts = [waiting(self._tenant, part, 1) for part in range(WAITING_PARTS)]
        keys = [self._store.key_of(self._tenant, part) for part in parts]
        with self._store.together():
            pages = await asyncio.gather(
                *(client.execute("ZRANGEBYSCORE", key, "-inf", "+inf") for key in keys)
            )
        listed = [
            (key, member)
            for key, page in zip(keys, pages, strict=True)
            for member in (page if isinstance(page, list) else ())
        ]
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
                *(client.execute("HMGET", self._place(name), *_ASKED) for name in names)
            )
        raw = {
            name: reply if isinstance(reply, list) else [None, None]
            for name, reply in zip(names, replies, strict=True)
        }
        found: list[ApprovalRequest] = []
        for name, (sealed, first) in raw.items():
            with suppress(GuardError):
                asked = self._opened(name, sealed)
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
                asked = await self._request(decision)
                identity = Identity("", "", tenant=self._tenant)
                await self._store.note(identity, [self._approvals.indexed(asked, decision)])

    def _place(self, decision: str) -> bytes:
        return self._store.key_of(self._tenant, request(self._tenant, decision, 1))

    async def asked(self, decision_id: str) -> ApprovalRequest:
        """Return what is asked under a decision id, with the untrusted text and earlier sends.

        Raises:
            GuardError: nothing is, or its record was altered.
        """
        asked = await self._request(decision_id)
        calls = [
            replace(call, receivers=tuple([await self._known(asked, r) for r in call.receivers]))
            for call in asked.calls
        ]
        return replace(asked, calls=tuple(calls))

    async def deny(self, decision_id: str) -> ApprovalRequest:
        """Take a request away unanswered, with those of the same message; return what was asked.

        Raises:
            GuardError: nothing waits under this id, or it was altered.
        """
        asked = await self._request(decision_id)
        await self._take(asked, granted=False)
        await self._tell(asked, granted=False)
        return asked

    async def approve(
        self, decision_id: str, at: float, grant: Grant = ONCE, by: Approver | None = None
    ) -> ApprovalRequest:
        """Grant the calls of one message, once; return what was asked.

        Args:
            decision_id: of the call that was asked about.
            at: now.
            grant: for how much it holds.
            by: who says so; None for a program that holds the key.

        Returns:
            what was asked; ``released`` is false where a second person has to approve it as well.

        Raises:
            GuardError: no such request waits, it was altered, it has expired, or it is not this
                person's to approve.
        """
        asked = await self._request(decision_id)
        try:
            self._approvals.check(asked, at, by)
            if asked.people > 1 and by is not None:
                raw = await self._first(asked, self._approvals.first(asked, by, at, grant))
                if raw is None:
                    return replace(asked, first=by.name)
                grant = self._approvals.second(asked, raw, by, grant)
            writes = self._approvals.answer(asked, at, grant)
        except ValueError as error:
            raise GuardError(str(error)) from error
        # Taken before the grants are written: of two answers that race, one finds the request.
        await self._take(asked, granted=True)
        await self._store.note(Identity("", "", tenant=self._tenant), writes)
        await self._tell(asked, granted=True)
        return replace(asked, released=True)

    async def _first(self, asked: ApprovalRequest, sealed: bytes) -> bytes | None:
        """Keep the first of two answers; return the one that is there already, None for none.

        Raises:
            GuardError: the request was answered meanwhile.
        """
        key = self._place(asked.key)
        reply = await self._store.client.execute(
            "EVAL", _FIRST, "1", key, FIRST_FIELD, sealed, REQUEST_FIELD
        )
        if reply == 0:
            msg = f"`{asked.decision}` has just been answered by somebody else"
            raise GuardError(msg)
        return reply if isinstance(reply, bytes) else None

    async def _tell(self, asked: ApprovalRequest, *, granted: bool) -> None:
        """Wake who holds the calls; where that fails, they look when their time is up."""
        with suppress(GuardError):
            decisions = [call.decision for call in asked.calls]
            await RedisAnswers(self._store).tell(self._tenant, decisions, granted=granted)

    async def _request(self, decision_id: str) -> ApprovalRequest:
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
            msg = f"no call waits for approval under `{decision_id}`; it may have expired"
            raise GuardError(msg)
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

    async def _take(self, asked: ApprovalRequest, *, granted: bool) -> None:
        """Take the requests of one message away, in one step.

        Raises:
            GuardError: somebody else has.
        """
        decisions, feed = [call.decision for call in asked.calls], RedisAnswers(self._store)
        if not await feed.take(self._tenant, decisions, granted=granted):
            msg = f"`{asked.decision}` has just been answered by somebody else"
            raise GuardError(msg)

    async def _known(self, asked: ApprovalRequest, receiver: AskedReceiver) -> AskedReceiver:
        """Return a receiver with the text that named it and what was sent to it before."""
        sets = LabelSets(self._limits)
        mark = sent_mark(self.seal, asked.principal, receiver.kind, receiver.receiver)
        area = sets.sent(self._tenant, mark)
        key = self._store.key_of(self._tenant, area)
        raw = await self._store.client.execute("HMGET", key, *sent_fields(mark))
        if not isinstance(raw, list):
            msg = "redis answered a look-up of earlier sends with something else"
            raise StateError(msg)
        sent, count = read_sent(self.seal, area, mark, raw)
        text, selection = "", None
        if receiver.channel in SELECTED_WHY:
            selection = await self._explanation(sets, receiver)
        elif receiver.met_in:
            met = bytes.fromhex(receiver.met_in)
            area = sets.excerpt(self._tenant, met, receiver.call, receiver.at)
            key = self._store.key_of(self._tenant, area)
            raw = await self._store.client.execute("HGET", key, EXCERPT)
            text = excerpt_naming(self.seal, area, raw, receiver.receiver)
        return replace(receiver, text=text, selection=selection, sent=tuple(sent), sends=count)

    async def _explanation(
        self, sets: LabelSets, receiver: AskedReceiver
    ) -> dict[str, Json] | None:
        """Return what was found of the recalled answer that a receiver stood in, None if lost."""
        met = bytes.fromhex(receiver.met_in)
        area = sets.explanation(self._tenant, met, receiver.call, receiver.at)
        key = self._store.key_of(self._tenant, area)
        raw = await self._store.client.execute("HGET", key, SELECTED)
        return read_explanation(self.seal, area, raw)

    async def established(self) -> list[Established]:
        """Return the receivers that principals of the tenant may send to again, oldest first."""
        area = LabelSet(ESTABLISHED_KIND, (self._tenant,))
        prefix = self._store.key_of(self._tenant, area).decode()
        found: list[Established] = []
        async for page in self._store.client.scan(prefix):
            for key in page:
                found += read_established(self.seal, area, dict(await self._fields(key)))
        return sorted(found, key=lambda one: one.record.at)

    async def revoke(self, mark: bytes) -> bool:
        """Take an established receiver away, by its mark; return whether it was there."""
        area = LabelSets(self._limits).established(self._tenant, mark)
        key = self._store.key_of(self._tenant, area)
        taken = await self._store.client.execute("HDEL", key, mark + ESTABLISHED, mark + SHOWN)
        return taken != 0

    async def import_items(self, items: Sequence[ImportedItem], at: float) -> None:
        """Label memory that existed before the guard."""
        writes = import_writes(self.seal, LabelSets(self._limits), self._tenant, items, at)
        for start in range(0, len(writes), _COUNT):
            identity = Identity("", "", tenant=self._tenant)
            await self._store.note(identity, writes[start : start + _COUNT])

    async def listed(self) -> AsyncIterator[LabelEntry]:
        """Yield every record of the tenant's memories, in no order."""
        area = LabelSet("m", (self._tenant,))
        prefix = self._store.key_of(self._tenant, area).decode()
        async for page in self._store.client.scan(prefix):
            for key in page:
                for field, raw in await self._fields(key):
                    if field[FINGERPRINT:] == HOPS:
                        continue
                    record = self.seal.read(area, field, raw)
                    if record is not None:
                        kind = KINDS.get(field[FINGERPRINT:], "value")
                        yield LabelEntry(field[:FINGERPRINT], kind, record)

    async def lookup(
        self, text: str, at: float, *, store: str = "", principal: str = ""
    ) -> dict[str, list[LabelEntry]]:
        """Return the records of every value in a text, and of the item of that name.

        Args:
            text: an address, a text with several, or the key of an item.
            at: now.
            store: the memory whose item it may name.
            principal: whose untrusted reading to look through as well.
        """
        traced = await self._marked(text, at, store, principal)
        return {name: records for name, (_, records) in traced.items() if records}

    async def trace(
        self, text: str, at: float, *, store: str = "", principal: str = ""
    ) -> dict[str, LabelTrace]:
        """Return the records and the paths of what :meth:`lookup` finds; the arguments are its."""
        found: dict[str, LabelTrace] = {}
        for name, (mark, records) in (await self._marked(text, at, store, principal)).items():
            if name == leaf_value(text) and find_values(text).plain:
                continue  # Its lineage is that of the values in it.
            entries = await self._hops(mark)
            further = await self._further(mark, entries)
            held = [one.record for one in records if one.kind != "read"]
            steps = path_of(self.seal, entries, held, further)
            if records or steps:
                found[name] = LabelTrace(records, steps)
        return found

    async def _marked(
        self, text: str, at: float, store: str, principal: str
    ) -> dict[str, tuple[bytes, list[LabelEntry]]]:
        """Return mark and records of every value in a text, and of the item of that name."""
        whole = leaf_value(text)
        values = {**find_values(text).plain, **({whole: None} if whole else {})}
        found = {
            value: (self.seal.fingerprint(value), await self._records(value, at, principal))
            for value in values
        }
        if store:
            item = self.seal.fingerprint(f"item:{store}:{text}")
            area = LabelSets(self._limits).memory(self._tenant, item)
            found[f"item {text} of {store}"] = item, await self._one(area, item, ITEM)
        return found

    async def _hops(self, mark: bytes) -> Entries:
        area = LabelSets(self._limits).memory(self._tenant, mark)
        key = self._store.key_of(self._tenant, area)
        raw = await self._store.client.execute("HGET", key, mark + HOPS)
        return entries_in(self.seal, area, mark + HOPS, raw)

    async def _further(self, mark: bytes, entries: Entries) -> list[Hop]:
        """Return the hops of items that an item's text was recalled from, the oldest first."""
        found: list[Hop] = []
        # The hops of a value lie in one list, whichever items it went through.
        hops = [hop for hop in hops_of(entries) if hop.place == mark]
        seen = {mark}
        for _ in range(LIST_LIMIT):
            marks = {hop.parent for hop in hops if hop.parent} - seen
            hops = [hop for mark in marks for hop in hops_of(await self._hops(mark))]
            seen |= marks
            found = hops + found
        return found

    async def _records(self, value: str, at: float, principal: str) -> list[LabelEntry]:
        areas = LabelSets(self._limits)
        mark = self.seal.fingerprint(value)
        memory = areas.memory(self._tenant, mark)
        records = await self._one(memory, mark, ATTESTED)
        records += await self._one(memory, mark, TAINTED)
        if principal:
            bucket, epoch = bucket_of(mark), areas.epoch(at)
            for area in areas.of_bucket(self._tenant, principal, bucket, epoch).taints:
                records += await self._one(area, mark, b"")
        return records

    async def _one(self, area: LabelSet, mark: bytes, suffix: bytes) -> list[LabelEntry]:
        key = self._store.key_of(self._tenant, area)
        raw = await self._store.client.execute("HGET", key, mark + suffix)
        record = self.seal.read(area, mark + suffix, raw)
        return [] if record is None else [LabelEntry(mark, KINDS.get(suffix, "read"), record)]

    async def _fields(self, key: bytes) -> list[tuple[bytes, bytes]]:
        reply = await self._store.client.execute("HGETALL", key)
        if not isinstance(reply, list):
            return []
        return list(zip(reply[::2], reply[1::2], strict=False))


_TAKE: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
"""
"""Take a mark away, unless the definition has changed again since it was looked at."""


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
                reply = await self._store.client.execute("HGETALL", key)
                fields = reply if isinstance(reply, list) else []
                for name, raw in zip(fields[::2], fields[1::2], strict=False):
                    pin = self._pins.found(bytes(name), bytes(raw))
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
            msg = f"the definition that waits is `{mark.digests[0][:12]}`; look at it again"
            raise GuardError(msg)
        # The pin first: if this ends half way, the tool is good and still marked.
        identity = Identity("", "", tenant=self._tenant)
        await self._store.note(identity, [self._pins.approved(pin, mark, at)])
        key = self._store.key_of(self._tenant, pin_set(upstream))
        name = self._pins.field(tool, MARKED)
        if await self._store.client.execute("EVAL", _TAKE, "1", key, name, raw) != 1:
            msg = f"`{tool}` has changed again since; look at it again"
            raise GuardError(msg)
        return mark

    async def _both(self, upstream: str, tool: str) -> tuple[Pin | None, Pin, bytes]:
        key = self._store.key_of(self._tenant, pin_set(upstream))
        names = (self._pins.field(tool, PINNED), self._pins.field(tool, MARKED))
        reply = await self._store.client.execute("HMGET", key, *names)
        pinned, marked = reply if isinstance(reply, list) else (None, None)
        if not isinstance(marked, bytes):
            msg = f"no changed definition of `{tool}` at `{upstream}` waits; see `guard tools list`"
            raise GuardError(msg)
        mark = self._pins.read(marked, upstream, tool, MARKED)
        if mark is None:
            msg = "the record of this change was altered, or sealed with another key"
            raise GuardError(msg)
        return self._pins.read(pinned, upstream, tool, PINNED), mark, marked
