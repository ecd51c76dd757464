"""State of the replays of one store."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import ToolResult
    from guard.core.labels import LabelSet
    from guard.core.mappings import RankedMapping, SelectionPolicy
    from guard.extensions.graph_memory.answers import Ranked
    from guard.extensions.graph_memory.ledger import Ledger, LedgerReader
    from guard.extensions.graph_memory.selectors import Selector

RECENT: Final = 100
"""Answers over which the share that the replica made alike is taken."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A write that is under way."""

    at: float
    """When it was asked for."""
    landed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that is replayed."""

    selector: Selector
    mapping: RankedMapping
    result: ToolResult
    ranked: Ranked
    started: float
    last: bool
    """Whether it is not looked at again."""


@dataclass(slots=True)
class Replica:
    """The ledger of one store as this process has it."""

    selection: SelectionPolicy
    area: LabelSet
    reader: LedgerReader
    ledger: Ledger
    read: int = 0
    """Entries of the store that have been read."""
    last: object = None
    """The newest of them: the store must still have it."""
    lost: bool = False
    """Whether the store no longer has what it had: the ledger has a gap."""
    faithful: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    compared_at: int = -1
    """Version at which the replica was last compared with an answer."""
    recalls: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_as_compared(self) -> bool:
        """True if everything counts, and nothing was written since the replica was compared."""
        whole = not (self.lost or self.reader.faults or self.lock.locked())
        return whole and self.ledger.uncounted == 0 and self.compared_at == len(self.ledger)


def extend_replica(replica: Replica, entries: Sequence[object]) -> None:
    """Read new entries of the ledger."""
    replica.ledger.extend(replica.reader.read(entries))
    replica.read += len(entries)
    replica.last = entries[-1]
