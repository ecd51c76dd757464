"""Stores that the guard reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guard.pipeline.unlabelled_marks import MemoryMarks

if TYPE_CHECKING:
    from guard.core.ports import AsksStore, LedgerStore, SessionStore
    from guard.pipeline.unlabelled_marks import UnlabelledMarks


@dataclass(frozen=True, slots=True)
class Stores:
    """Stores of one deployment."""

    sessions: SessionStore
    """Store of trajectories and labels."""
    ledger: LedgerStore | None = None
    """Structure of graph memories; without it no selection of one vouches for anything."""
    memories: AsksStore | None = None
    """Repeats a recall at a memory server, without the items that do not count."""
    marks: UnlabelledMarks = field(default_factory=MemoryMarks)
    """Marks of results that were released without labels.  The default ends with the process."""
