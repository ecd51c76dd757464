"""Passages of private text, as records to know them by where they are sent.  Pure: no I/O."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from guard.core.ports import Write, WriteMode
from guard.core.private_text import KEPT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.model import Identity
    from guard.core.ports import Area
    from guard.core.provenance import Record
    from guard.memory.areas import Areas
    from guard.memory.seal import Seal


def remembered(
    seal: Seal, areas: Areas, identity: Identity, record: Record, passages: Iterable[str]
) -> list[Write]:
    """Return the records of the passages of one result, at most ``KEPT``."""
    grouped: dict[Area, list[tuple[bytes, bytes]]] = {}
    for passage in islice(passages, KEPT):
        mark = seal.fingerprint(passage)
        area = areas.private(identity, mark)
        grouped.setdefault(area, []).append(seal.write(area, mark, record))
    return [Write(area, WriteMode.KEEP, tuple(written)) for area, written in grouped.items()]
