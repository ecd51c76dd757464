"""Requests that were forwarded and have no answer yet, bounded by bytes, age and principal.

An entry that was removed makes its result unknown: it is withheld, or counts as untrusted, like the
result of a call that was never seen.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from guard.core.calls import TracedCall
from guard.core.metrics import CALLS_FORGOTTEN, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Json

Held = TypeVar("Held")

CallKey: TypeAlias = tuple[Literal["message", "task", "model"], str, str, str, str]
"""How a result names its call (the id of its message, of a task, or of a call in a model's answer),
then listener (a server answers its own calls only), principal, session and the id.  Of a model's
calls listener and session are empty: a history may come back in any."""
_Stream: TypeAlias = tuple[str, str, str, str]
"""A key without the id."""

BYTES: Final = 128 * 1024 * 1024
"""Bytes of all entries."""
SHARE: Final = 4
"""One principal holds at most this fraction of the bytes, so that others keep room."""
SECONDS: Final = 6 * 3600.0
"""Age at which an entry is removed; the store keeps its copy as long."""
OVERHEAD: Final = 2048
"""Bytes of an entry besides its text: what provenance found, and the entry itself."""
_ITEM: Final = 64
"""Bytes of a JSON value besides its text."""


class _Entry(NamedTuple, Generic[Held]):
    held: Held
    size: int
    at: float


class _Owner:
    """The keys of one principal, oldest first, and their bytes."""

    __slots__ = ("keys", "size")

    def __init__(self) -> None:
        self.keys: OrderedDict[CallKey, None] = OrderedDict()
        self.size = 0


class InFlight(Generic[Held]):
    """Entries by key; the oldest are removed where a bound is reached.

    Every method takes a time that does not depend on the number of entries.

    Args:
        limit: bytes of all entries.
        seconds: age at which an entry is removed.
        now: seconds of a clock that is not set back.
        metrics: counts entries that were removed without an answer.
    """

    def __init__(
        self,
        *,
        limit: int = BYTES,
        seconds: float = SECONDS,
        now: Callable[[], float] = time.monotonic,
        metrics: Metrics | None = None,
    ) -> None:
        self._limit, self._share = limit, limit // SHARE
        self._seconds = seconds
        self._now = now
        self._metrics = metrics or Metrics()
        self._entries: OrderedDict[CallKey, _Entry[Held]] = OrderedDict()
        self._owners: dict[str, _Owner] = {}
        self._streams: dict[_Stream, dict[CallKey, None]] = {}
        self.kinds: Counter[str] = Counter()
        """Number of entries by kind of key."""
        self.size = 0
        """Bytes of all entries."""

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def add(self, key: CallKey, held: Held, size: int) -> None:
        """Keep an entry; an entry of the same key is replaced.

        Args:
            key: names the answer.
            held: the entry.
            size: bytes of its text.
        """
        now = self._now()
        self._remove_old(now)
        if key in self._entries:
            self._removed(key)
        size += OVERHEAD + sum(map(len, key))
        self._entries[key] = _Entry(held, size, now)
        owner = self._owners.setdefault(key[2], _Owner())
        owner.keys[key] = None
        owner.size += size
        self._streams.setdefault(key[:-1], {})[key] = None
        self.kinds[key[0]] += 1
        self.size += size
        while owner.size > self._share:
            self._forget(next(iter(owner.keys)), "principal")
        while self.size > self._limit:
            self._forget(next(iter(self._entries)), "bytes")

    def holds(self, key: CallKey) -> bool:
        """Return whether there is an entry of a key."""
        self._remove_old(self._now())
        return key in self._entries

    def open_in(self, stream: CallKey) -> list[str]:
        """Return the ids of the entries whose keys differ from a key in their id alone."""
        self._remove_old(self._now())
        return [key[-1] for key in self._streams.get(stream[:-1], ())]

    def take(self, key: CallKey) -> Held | None:
        """Remove and return an entry; None where there is none."""
        self._remove_old(self._now())
        return self._removed(key) if key in self._entries else None

    def _removed(self, key: CallKey) -> Held:
        found = self._entries.pop(key)
        owner, stream = self._owners[key[2]], self._streams[key[:-1]]
        del owner.keys[key], stream[key]
        owner.size -= found.size
        if not owner.keys:
            del self._owners[key[2]]
        if not stream:
            del self._streams[key[:-1]]
        self.kinds[key[0]] -= 1
        self.size -= found.size
        return found.held

    def _remove_old(self, now: float) -> None:
        oldest = now - self._seconds
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.at > oldest:
                return
            self._forget(key, "age")

    def _forget(self, key: CallKey, bound: str) -> None:
        """Remove an entry that has no answer."""
        self._metrics.count(CALLS_FORGOTTEN, bound)
        self._removed(key)


class CallsInFlight(InFlight[TracedCall]):
    """Calls that were released and have no result yet."""

    def awaited(self) -> int:
        """Return how many calls were forwarded, rather than released in a model's answer."""
        return len(self) - self.kinds["model"]


def text_size(value: Json) -> int:
    """Return the bytes that a JSON value holds, roughly."""
    size = 0
    stack: list[Json] = [value]
    while stack:
        item = stack.pop()
        size += _ITEM
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            size += sum(map(len, item))
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return size
