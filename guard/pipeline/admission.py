"""Admission of requests: a bounded number at once, a fair queue, then a refusal with a delay.

A worker judges on one core.  More requests at once make each slower and none faster, and one that
is judged after its client has given up is work for nobody.  So a bounded number is judged at once;
the others wait, for a bounded time, in one queue per principal, which take turns.  Clients have one
call open or a few, and make the next one once it is answered: a wait makes them ask less often, and
a refusal at once makes them ask at once.  So nobody is refused before the wait has ended unless
there is no room, and whoever came first goes on first.  Whoever is refused (``overloaded``) is told
when there will be room (``Retry-After``, RFC 9110, section 10.2.3), and has not been judged:
nothing of the request was forwarded.

All waits are as long, so they end in the order in which they began: one timer serves them all.

A refusal is returned and not raised: an exception that a waiting request holds refers, by its
traceback, to what waits, and such a circle stays until Python's collector comes.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from guard.core.errors import MessageError

OVERLOADED: Final = "overloaded"
UNAVAILABLE: Final = 503
RETRIES_PER_SECOND: Final = 50
"""Refused requests of one principal that are asked back for any one second."""
LONGEST_RETRY: Final = 30
"""Seconds that nobody is sent away for longer than."""
OTHERS: Final = 8
"""Divisor of the limit: one slot in this many, at least one, is left to other principals.  A new
one takes turns with the principal that has the rest, so it need not find more of them free."""
_PRINCIPALS: Final = 1000
"""Principals whose next retry is remembered before those that are over are forgotten."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one worker."""

    judged: int = 32
    """Requests judged at the same time; one principal leaves an eighth of them to others.  0: no
    limits."""
    waiting: int = 3072
    """Requests that wait for that."""
    patience: float = 1.0
    """Seconds that one waits before it is refused."""
    forwarded: int = 0
    """Requests of one principal whose tool servers have not answered yet; 0: any number."""


class _Waiter:
    """A request that waits for its turn."""

    __slots__ = ("ends", "has_place", "principal", "turn")

    def __init__(self, principal: str, patience: float) -> None:
        self.principal = principal
        self.has_place = False
        """True if it was given a slot, even if its client left in the same turn of the loop."""
        loop = asyncio.get_running_loop()
        self.ends = loop.time() + patience
        """Time at which it is refused, by the clock of the event loop."""
        self.turn: asyncio.Future[MessageError | None] = loop.create_future()
        """Ends with None where it goes on, else with why it is refused."""

    def end(self, error: MessageError | None = None) -> None:
        """Let it go on, or refuse it."""
        if not self.turn.done():
            self.turn.set_result(error)


class Admission:
    """Lets requests in to be judged; called from the event loop's thread only.

    INVARIANT (nobody waits beside a free place): whenever a place is free, each principal that has
    a request waiting has its full share of places.

    Args:
        limits: of this worker.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._free = limits.judged
        self._share = max(1, limits.judged - max(1, limits.judged // OTHERS))
        self._judged: Counter[str] = Counter()
        self._forwarded: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[_Waiter]] = OrderedDict()
        """Waiting requests by principal; the first principal has the next turn, and each has at
        least one."""
        self._ending: OrderedDict[_Waiter, None] = OrderedDict()
        """Waiting requests, in the order in which their waits end."""
        self._timer: asyncio.TimerHandle | None = None
        """Set while there is any of them."""
        self._next_retry: dict[str, float] = {}

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a turn."""
        return len(self._ending)

    def enter(self, principal: str) -> _Waiter | MessageError | None:
        """Take a place.

        Returns:
            None where one was free; what to :meth:`wait` for; or why it is refused at once.
        """
        if not self.limits.judged:
            return None
        if 0 < self.limits.forwarded <= self._forwarded[principal]:
            return self._refusal(principal, "too many requests of this principal are unanswered")
        if self._free and self._judged[principal] < self._share:
            self._free -= 1
            self._judged[principal] += 1
            return None
        return self._queue(principal)

    async def wait(self, waiter: _Waiter) -> MessageError | None:
        """Wait for a turn; return None, or why the request is refused: it did not come in time."""
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if waiter.has_place:
                self.leave(waiter.principal)  # The turn came while its client left.
            else:
                self._drop(waiter)
            raise

    def leave(self, principal: str) -> None:
        """Give a place back, to who is next."""
        if not self.limits.judged:
            return
        self._free += 1
        one_less(self._judged, principal)
        if self._queues:
            self._go_on()

    def sent(self, principal: str) -> None:
        """Note a request that is forwarded."""
        self._forwarded[principal] += 1

    def answered(self, principal: str) -> None:
        """Note the end of one that was forwarded."""
        one_less(self._forwarded, principal)

    def _go_on(self) -> None:
        """Hand free places to those who wait, one principal after the other."""
        for principal in list(self._queues):
            if not self._free:
                return
            queue = self._queues[principal]
            if self._judged[principal] >= self._share:
                continue
            waiter = queue.popleft()
            waiter.has_place = True
            del self._ending[waiter]
            self._free -= 1
            self._judged[principal] += 1
            if queue:
                self._queues.move_to_end(principal)
            else:
                del self._queues[principal]
            waiter.end()

    def _queue(self, principal: str) -> _Waiter | MessageError:
        """Let a request wait; where there is no room, one of the longest queue has to go.

        Returns:
            why it is this one, where it is.
        """
        queue = self._queues.get(principal)
        if self.waiting >= self.limits.waiting:
            longest = max(self._queues.values(), key=len, default=None)
            if longest is None or len(longest) <= len(queue or ()) + 1:
                return self._refusal(principal)
            # The last in line: it has waited the least.
            self._refuse(longest[-1])
        if queue is None:
            queue = self._queues[principal] = deque()
        waiter = _Waiter(principal, self.limits.patience)
        queue.append(waiter)
        self._ending[waiter] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(waiter.ends, self._end)
        return waiter

    def _end(self) -> None:
        """Refuse those whose wait has ended by now."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        while first := next(iter(self._ending), None):
            if first.ends > now:
                self._timer = loop.call_at(first.ends, self._end)
                return
            self._refuse(first)

    def _refuse(self, waiter: _Waiter) -> None:
        self._drop(waiter)
        waiter.end(self._refusal(waiter.principal))

    def _drop(self, waiter: _Waiter) -> None:
        """Take somebody out who waits no longer."""
        if waiter not in self._ending:
            return
        del self._ending[waiter]
        queue = self._queues[waiter.principal]
        queue.remove(waiter)
        if not queue:
            del self._queues[waiter.principal]

    def _refusal(
        self, principal: str, message: str = "the guard has more requests than it can judge in time"
    ) -> MessageError:
        """Return why a request is refused, with the seconds after which there is room for it.

        Those that are refused together are told different seconds: they must not come back
        together.
        """
        now, retries = asyncio.get_running_loop().time(), self._next_retry
        if len(retries) > _PRINCIPALS:
            self._next_retry = retries = {who: at for who, at in retries.items() if at > now}
        at = max(retries.get(principal, now), now) + 1 / RETRIES_PER_SECOND
        retries[principal] = min(at, now + LONGEST_RETRY)
        seconds = min(1 + int(at - now), LONGEST_RETRY)
        return MessageError(OVERLOADED, message, status=UNAVAILABLE, retry_after=seconds)


def one_less(counter: Counter[str], name: str) -> None:
    """Count one less, and forget a name that has none: a client can make principals up."""
    left = counter[name] - 1
    if left > 0:
        counter[name] = left
    else:
        counter.pop(name, None)
