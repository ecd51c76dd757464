"""Stores that the guard reads and writes, and the marks of results that a store was not told of.

A mark is written to the store with the next attempt of its principal, before anything of that is
judged.  Until then it must not be lost: whoever serves keeps marks where they outlive the process
(:mod:`guard.store.continuity`), and a result whose mark cannot be kept is withheld.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.ports import AsksStore, LedgerStore, SessionStore


class UnlabelledMarks(Protocol):
    """Numbers of marked results, by tenant and principal."""

    @property
    def pending(self) -> Sequence[int]:
        """One number, not zero while there may be any mark; looked at for each call."""

    def add(self, owner: tuple[str, str], count: int) -> None:
        """Keep marks.

        Raises:
            OSError: they cannot be kept; what they are for must not be released.
        """

    def take(self, owner: tuple[str, str]) -> int:
        """Return the marks that go with an attempt; no other attempt of this process gets them.

        Raises:
            OSError: they cannot be read; nothing of the principal may be judged.
        """

    def written(self, owner: tuple[str, str], count: int) -> None:
        """Forget marks that were taken, because the store has them.  Never raises."""

    def put_back(self, owner: tuple[str, str], count: int) -> None:
        """Have marks taken again that the store did not get.  Never raises."""

    def total(self) -> float:
        """Return how many there are."""


class MemoryMarks:
    """Marks of a process whose end is the end of its store as well."""

    def __init__(self) -> None:
        self.pending = bytearray(1)
        self._marks: dict[tuple[str, str], int] = {}

    def add(self, owner: tuple[str, str], count: int) -> None:
        """See :class:`UnlabelledMarks`."""
        self._marks[owner] = self._marks.get(owner, 0) + count
        self.pending[0] = 1

    put_back = add

    def take(self, owner: tuple[str, str]) -> int:
        """See :class:`UnlabelledMarks`."""
        found = self._marks.pop(owner, 0)
        self.pending[0] = bool(self._marks)
        return found

    def written(self, owner: tuple[str, str], count: int) -> None:
        """See :class:`UnlabelledMarks`: they were removed when they were taken."""

    def total(self) -> float:
        """See :class:`UnlabelledMarks`."""
        return sum(self._marks.values())


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
