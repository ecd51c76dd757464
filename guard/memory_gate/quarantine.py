"""Reads of partitions that the operator has closed are refused.  No I/O of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in_order
from guard.core.memory import DEFAULT_STORE, MemoryClass
from guard.memory_gate.refusal import with_reasons

if TYPE_CHECKING:
    from guard.core.calls import ClassifiedCall
    from guard.core.memory_policy import MemoryPolicy, ReadMapping
    from guard.core.model import Json
    from guard.core.verdict import Verdict
    from guard.memory_gate.staging import Staging

WHOLE: Final = "default"
"""The partition of whatever names none."""
MOST: Final = 64
"""Partitions that one read may name; with more it is refused."""


async def judge_read(
    memory: MemoryPolicy, staging: Staging, classified: ClassifiedCall, verdict: Verdict
) -> Verdict:
    """Return the verdict of a call, as a block where it reads a closed partition.

    Never raises: a store that does not answer refuses the read.
    """
    mapping = memory.read(classified.call.tool)
    if mapping is None or not verdict.action.forwards:
        return verdict
    named = _named(mapping, dict(classified.call.arguments))
    by_tool = classified.mapping.store if classified.mapping is not None else ""
    store = mapping.store or by_tool or DEFAULT_STORE
    try:
        closed = len(named) > MOST or await staging.is_closed(
            classified.call.identity, store, named
        )
    except Exception as error:  # noqa: BLE001  (what cannot be known to be open is closed)
        return with_reasons(verdict, ("gate_error",), MemoryClass.L4, (), type(error).__name__)
    if not closed:
        return verdict
    return with_reasons(verdict, ("partition_quarantined",), MemoryClass.L4, ())


def _named(mapping: ReadMapping, arguments: Json) -> frozenset[str]:
    if mapping.partition is None:
        return frozenset({WHOLE})
    found = frozenset(
        text for _, value in mapping.partition.find(arguments) for text in strings_in_order(value)
    )
    return found or frozenset({WHOLE})
