"""Label records in Redis as operators read them: list, look up, trace, import, revoke."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from guard.core.labels import LabelRecord, LabelSet
from guard.core.model import Identity
from guard.provenance.errands import GRANTED, KIND, USED, read_grant
from guard.provenance.established import Established, read_established
from guard.provenance.imports import ImportedItem, import_writes
from guard.provenance.label_sets import (
    ATTESTED,
    ESTABLISHED,
    ESTABLISHED_KIND,
    HOPS,
    ITEM,
    SHOWN,
    TAINTED,
    LabelSets,
    bucket_of,
)
from guard.provenance.lineage import LIST_LIMIT, Entries, Hop, Step, entries_in, hops_of, path_of
from guard.provenance.seal import FINGERPRINT, Seal
from guard.values.finding import find_values, leaf_value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from guard.core.errands import ErrandGrant
    from guard.core.policy import StateLimits
    from guard.store.store import RedisSessionStore

KINDS: Final = {ATTESTED: "value", TAINTED: "value", ITEM: "item"}
_COUNT: Final = 256
"""Number of records that one import writes at a time."""


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


class LabelRecords:
    """Labels of one tenant.

    Args:
        store: a connected store in the guard's namespace.
        seal: the deployment's key.
        limits: state limits of the guard's policy.
        tenant: name of the tenant.
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
        self._limits = limits
        self._tenant = tenant

    async def established(self) -> list[Established]:
        """Return the receivers that principals of the tenant may send to again, oldest first."""
        area = LabelSet(ESTABLISHED_KIND, (self._tenant,))
        prefix = self._store.key_of(self._tenant, area).decode()
        found: list[Established] = []
        async for page in self._store.client.scan(prefix):
            for key in page:
                found += read_established(self.seal, area, await self._store.client.fields(key))
        return sorted(found, key=lambda one: one.record.at)

    async def revoke(self, mark: bytes) -> bool:
        """Take an established receiver away, by its mark; return whether it was there."""
        area = LabelSets(self._limits).established(self._tenant, mark)
        key = self._store.key_of(self._tenant, area)
        taken = await self._store.client.execute("HDEL", key, mark + ESTABLISHED, mark + SHOWN)
        return taken != 0

    async def errand_grants(self, at: float = 0.0) -> list[tuple[bytes, ErrandGrant]]:
        """Return the errand grants in force, each with its mark; those that ended are removed."""
        prefix = self._store.key_of(self._tenant, LabelSet(KIND, (self._tenant,))).decode()
        found: list[tuple[bytes, ErrandGrant]] = []
        async for mark, grant, key in self._errand_fields(prefix):
            if grant is None or grant.until <= at:
                await self._store.client.execute("HDEL", key, mark + GRANTED, mark + USED)
            else:
                found.append((mark, grant))
        return found

    async def _errand_fields(
        self, prefix: str
    ) -> AsyncIterator[tuple[bytes, ErrandGrant | None, bytes]]:
        """Yield mark, errand grant and key of every one; None for one that was altered."""
        area = LabelSet(KIND, (self._tenant,))
        async for page in self._store.client.scan(prefix):
            for key in page:
                fields = await self._store.client.fields(key)
                for field, raw in fields.items():
                    mark = field[:FINGERPRINT]
                    if field[FINGERPRINT:] != GRANTED:
                        continue
                    grant = read_grant(self.seal, area, field, raw)
                    used = self.seal.opened(area, mark + USED, fields.get(mark + USED, b""))
                    if grant is not None and used:
                        grant = replace(grant, used=float(used))
                    yield mark, grant, key

    async def revoke_errand_grant(self, mark: bytes) -> bool:
        """Take an errand grant away, by its mark; return whether it was there."""
        prefix = self._store.key_of(self._tenant, LabelSet(KIND, (self._tenant,))).decode()
        keys = [key async for one, _, key in self._errand_fields(prefix) if one == mark]
        for key in keys:
            await self._store.client.execute("HDEL", key, mark + GRANTED, mark + USED)
        return bool(keys)

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
                for field, raw in (await self._store.client.fields(key)).items():
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
