"""A budget for unfinished messages: what one process buffers over all of its connections."""

from __future__ import annotations

from typing import Final

LIMIT: Final = 64 * 1024 * 1024
COUNT: Final = 4096
"""Bytes, and messages, that are held at the same time unless the operator says otherwise."""
_OVERDRAFT: Final = 2
"""Times the limit that small messages may fill beside large ones that do not move on."""


class MessageBudget:
    """Counts what is held, by message; says which message must go when it is too much.

    Who holds more than an equal share is refused first: many large bodies that are never finished
    must not keep the short messages of others out.

    Args:
        limit: bytes of all messages.
        count: how many there may be.
    """

    def __init__(self, limit: int = LIMIT, count: int = COUNT) -> None:
        self.limit = limit
        self.count = count
        self._held: dict[int, int] = {}
        self.total = 0
        """Bytes held."""

    def __len__(self) -> int:
        """Return how many messages are held."""
        return len(self._held)

    def hold(self, message: int, size: int) -> bool:
        """Note how much of a message is held; return False, and forget it, where it must go.

        Args:
            message: what tells it from others.
            size: bytes of it, in all.
        """
        self.total += size - self._held.get(message, 0)
        self._held[message] = size
        full = len(self._held) > self.count or self.total > _OVERDRAFT * self.limit
        if full or (self.total > self.limit and size * len(self._held) > self.limit):
            self.release(message)
            return False
        return True

    def release(self, message: int) -> None:
        """Note that nothing of a message is held any more."""
        self.total -= self._held.pop(message, 0)
