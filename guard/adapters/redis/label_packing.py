"""Label records as arguments of the scripts, and their answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.adapters.redis.layout import Keys
    from guard.core.ports import Lookup, Write


def packed_writes(
    names: Keys, tenant: str, writes: Sequence[Write]
) -> tuple[list[bytes], list[bytes | str | int]]:
    """Return keys and arguments of label records, as ``labels.lua`` takes them."""
    keys: list[bytes] = []
    arguments: list[bytes | str | int] = []
    for write in writes:
        area = write.area
        keys.append(names.area(tenant, area))
        arguments += (write.mode.value, area.ttl, area.limit, int(write.unless is not None))
        if write.unless is not None:
            keys.append(names.area(tenant, write.unless))
        arguments.append(len(write.entries))
        for field, record in write.entries:
            arguments += (field, record)
    return keys, arguments


def packed_lookups(
    names: Keys, tenant: str, lookups: Sequence[Lookup]
) -> tuple[list[bytes], list[bytes | str | int]]:
    """Return keys and arguments of look-ups, as ``attempt.lua`` takes them.

    Raises:
        struct.error: a look-up has more fields than two bytes can count.
    """
    if not lookups:
        return [], []
    keys = [names.area(tenant, lookup.area) for lookup in lookups]
    counts = struct.pack(f">{len(keys)}H", *[len(lookup.fields) for lookup in lookups])
    fields = [field for lookup in lookups for field in lookup.fields]
    return keys, [counts, int(lookups[-1].chained), *fields]


def answers_expected(lookups: Sequence[Lookup]) -> int:
    """Return how many answers the store must give: one per field."""
    return sum([len(lookup.fields) for lookup in lookups])
