"""Label records as arguments of the scripts, and their answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.adapters.redis.layout import Keys
    from guard.core.labels import LabelLookup, LabelWrite


def packed_writes(
    names: Keys, tenant: str, writes: Sequence[LabelWrite]
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
    names: Keys, tenant: str, lookups: Sequence[LabelLookup]
) -> tuple[list[bytes], list[bytes | str | int], int]:
    """Return keys and arguments of look-ups, as ``attempt.lua`` takes them, and their answers.

    Returns:
        The keys, the arguments, and how many answers there must be: one per field.

    Raises:
        struct.error: a look-up has more fields than two bytes can count.
    """
    if not lookups:
        return [], [], 0
    keys = names.areas(tenant, [lookup.area for lookup in lookups])
    sizes = [len(lookup.fields) for lookup in lookups]
    fields: list[bytes | str | int] = [
        struct.pack(f">{len(sizes)}H", *sizes),
        lookups[-1].chained,
    ]
    for lookup in lookups:
        fields += lookup.fields
    return keys, fields, len(fields) - 2
