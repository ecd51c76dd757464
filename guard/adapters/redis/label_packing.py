"""Label records as arguments of the scripts, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.errors import StateError

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


def read_labels(reply: list[object], lookups: Sequence[Lookup]) -> tuple[tuple[object, ...], ...]:
    """Return the answers to the look-ups.

    Raises:
        StateError: they are not one per field.
    """
    found: list[tuple[object, ...]] = []
    for lookup, answer in zip(lookups, reply, strict=True):
        if not isinstance(answer, list) or len(answer) != len(lookup.fields):
            msg = "redis answered a look-up of labels with something else"
            raise StateError(msg)
        found.append(tuple(answer))
    return tuple(found)
