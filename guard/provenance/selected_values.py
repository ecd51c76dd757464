"""Records of the values in recalled items that a selection does not vouch for.  Pure: no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guard.core.labels import (
    Channel,
    LabelLookup,
    LabelRecord,
    LabelSet,
    LabelWrite,
    LabelWriteMode,
)
from guard.core.model import Integrity, Json
from guard.provenance.label_sets import SELECTED, LabelSets
from guard.provenance.result_documents import leaves_of
from guard.values.finding import find_numbers, find_values, leaf_value, look_alikes, number_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.calls import ToolResult
    from guard.provenance.seal import Seal

LIMIT: Final = 2000
"""Values of one answer."""


def selected_writes(
    seal: Seal,
    sets: LabelSets,
    result: ToolResult,
    items: Iterable[Json],
    channel: Channel,
    seconds: float,
) -> list[LabelWrite]:
    """Return the records to store before an answer is released.

    Args:
        seal: the deployment's key.
        sets: of the policy in force.
        result: of the recall.
        items: those of its items that vouch for nothing.
        channel: ``SELECTION`` or ``UNREPLAYED``.
        seconds: how long the records hold.

    Raises:
        ValueError: there are more values in the items than are marked.
    """
    call = result.call.call
    identity = call.identity
    record = LabelRecord(
        Integrity.UNTRUSTED,
        channel,
        result.call.index,
        result.at,
        seal.session(identity),
        call.tool,
        until=result.at + seconds,
    )
    grouped: dict[LabelSet, list[tuple[bytes, bytes]]] = {}
    epoch = sets.epoch(result.at)
    values = dict.fromkeys(value for item in items for value in values_in(item))
    if len(values) > LIMIT:
        raise ValueError("an answer has more values than are marked")
    for value in values:
        mark = seal.fingerprint(value)
        area = sets.taint(identity, mark, epoch)
        grouped.setdefault(area, []).append(seal.write(area, mark + SELECTED, record))
    return [
        LabelWrite(area, LabelWriteMode.REPLACE, tuple(entries))
        for area, entries in grouped.items()
    ]


def explanation_write(
    seal: Seal, sets: LabelSets, result: ToolResult, told: dict[str, Json]
) -> LabelWrite:
    """Return the record of what a selection's comparison found, enciphered.

    It is found again by the session, call and time in the marks of the answer's values.
    """
    call = result.call
    session, tenant = seal.session(call.call.identity), call.call.identity.tenant
    area = sets.explanation(tenant, session, call.index, result.at)
    sealed = seal.enciphered(area, SELECTED, json.dumps(told).encode())
    return LabelWrite(area, LabelWriteMode.REPLACE, ((SELECTED, sealed),))


def explanation_lookup(sets: LabelSets, tenant: str, record: LabelRecord) -> LabelLookup:
    """Return where the explanation of a mark is."""
    area = sets.explanation(tenant, record.session, record.call, record.at)
    return LabelLookup(area, (SELECTED,))


def read_explanation(seal: Seal, area: LabelSet, raw: object) -> dict[str, Any] | None:
    """Return what a selection's comparison found; None where it is not kept, or was altered."""
    body = seal.deciphered(area, SELECTED, raw) if isinstance(raw, bytes) else None
    return None if body is None else json.loads(body)


def values_in(item: Json) -> Iterator[str]:
    """Yield whatever in an item can be a destination or a guarded value."""
    for leaf in leaves_of(item, None, Integrity.UNTRUSTED):
        found = find_values(leaf.text)
        yield from found.plain
        yield from found.disguised
        yield from find_numbers(leaf.text)
        for value in (leaf_value(leaf.text), number_value(leaf.text)) if leaf.whole else ():
            if value is not None:
                yield from (value, *look_alikes(value))
