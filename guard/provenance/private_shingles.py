"""Passages of private text, as records to know them by where they are sent.  Pure: no I/O."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from guard.content.shingles import KEPT
from guard.core.labels import LabelWrite, LabelWriteMode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.labels import LabelRecord, LabelSet
    from guard.core.model import Identity
    from guard.provenance.label_sets import LabelSets
    from guard.provenance.seal import Seal


def private_shingle_writes(
    seal: Seal, areas: LabelSets, identity: Identity, record: LabelRecord, passages: Iterable[str]
) -> list[LabelWrite]:
    """Return the records of the passages of one result, at most ``KEPT``."""
    grouped: dict[LabelSet, list[tuple[bytes, bytes]]] = {}
    for passage in islice(passages, KEPT):
        mark = seal.fingerprint(passage)
        area = areas.private(identity, mark)
        grouped.setdefault(area, []).append(seal.write(area, mark, record))
    return [
        LabelWrite(area, LabelWriteMode.KEEP, tuple(written)) for area, written in grouped.items()
    ]
