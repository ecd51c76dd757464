"""A budget for unfinished messages: what one process buffers over all of its connections.

Messages that arrive count, and so do answers that their clients have yet to read.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

LIMIT: Final = 64 * 1024 * 1024
COUNT: Final = 4096
"""Bytes, and messages, that are held at the same time unless the operator says otherwise."""
_OVERDRAFT: Final = 2
"""Times the limit that small messages may fill beside large ones that do not move on."""
_OTHERS: Final = 8
"""Share of the limit that one principal leaves to others: one part of so many."""


class MessageBudget:
    """Counts what is held, by message; says which message must go when it is too much.

    Who holds more than an equal share is refused first: many large bodies that are never finished
    must not keep the short messages of others out.  One principal, where it is known, may hold 7/8.

    Args:
        limit: bytes of all messages.
        count: how many there may be.
    """

    def __init__(self, limit: int = LIMIT, count: int = COUNT) -> None:
        self.limit = limit
        self.count = count
        self._held: dict[int, int] = {}
        self._owners: dict[int, str] = {}
        self._owned: Counter[str] = Counter()
        self.total = 0
        """Bytes held."""

    def __len__(self) -> int:
        """Return how many messages are held."""
        return len(self._held)

    def owned(self, owner: str) -> int:
        """Return the bytes that are held of the messages of one principal."""
        return self._owned[owner]

    def hold(self, message: int, size: int, owner: str = "") -> bool:
        """Note how much of a message is held; return False, and forget it, where it must go.

        Args:
            message: what tells it from others.
            size: bytes of it, in all.
            owner: principal that it is of; empty where that is not known.
        """
        grown = size - self._held.get(message, 0)
        self.total += grown
        self._held[message] = size
        full = len(self._held) > self.count or self.total > _OVERDRAFT * self.limit
        if owner:
            owner = self._owners.setdefault(message, owner)
            self._owned[owner] += grown
            full = full or self._owned[owner] > self.limit - self.limit // _OTHERS
        if full or (self.total > self.limit and size * len(self._held) > self.limit):
            self.release(message)
            return False
        return True

    def release(self, message: int) -> None:
        """Note that nothing of a message is held any more."""
        size = self._held.pop(message, 0)
        self.total -= size
        owner = self._owners.pop(message, "")
        if owner:
            self._owned[owner] -= size
            if not self._owned[owner]:
                del self._owned[owner]
