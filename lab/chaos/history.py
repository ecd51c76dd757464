"""The history of a chaos run as each side saw it, and the invariants that it must not break.

One :class:`Event` is something one side saw of one call.  Every call has a name of its own, which
agents, the upstream and the audit log all have, so the three views can be joined.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Saw(StrEnum):
    """Kinds of events: what was seen, and by whom."""

    ASKED = "asked"
    """Agent: it sent the call."""
    READ = "read"
    """Agent: it got the result of a read, whose text names ``to``.  Its label is acknowledged."""
    DONE = "done"
    """Agent: it got the result of any other call."""
    SAVED = "saved"
    """Agent: it got the result of a memory write.  Its commit is acknowledged."""
    REFUSED = "refused"
    """Agent: the guard refused, and said so."""
    UNRECORDED = "unrecorded"
    """Agent: the guard refused, and said that it could not write the line (`audit_error`)."""
    FAILED = "failed"
    """Agent: anything else: no answer, no connection, an error of the way."""
    RECEIVED = "received"
    """Upstream: the call arrived."""
    ALLOWED = "allowed"
    """Audit log: a line with this verdict."""
    STOPPED = "stopped"
    """Audit log: a line with another verdict."""
    GRANTED = "granted"
    """Audit log: a line of a call that a person's grant allowed; ``to`` is the grant."""
    NOTED = "noted"
    """Audit log: a line of a call that was not judged, or whose answer was not released."""
    WAITS = "waits"
    """Audit log: a line of a call that a person is asked about."""
    COMMITTED = "committed"
    """State store, at the end: the record of a memory write that was committed."""
    APPROVED = "approved"
    """A person: the store has acknowledged a grant, which ``to`` names; ``call`` is his answer."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that one side saw of one call."""

    at: float
    """Seconds since the epoch; all sides share the clock."""
    saw: Saw
    call: str
    principal: str
    to: str = ""
    """The address that was read, or sent to; the grant that was given or used."""
    mark: int = -1
    """Bytes of the audit log: at an arrival, those that were written; of a line, up to its end.  It
    orders both where clocks jump; -1 where it is not known."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant."""

    rule: str
    call: str
    acknowledged: float = -1.0
    """Time at which the lost item was acknowledged, seconds since the epoch; -1 where nothing is
    lost."""

    def is_within(self, spans: Iterable[tuple[float, float]]) -> bool:
        """Return whether the lost item was acknowledged within one of some spans of time."""
        return any(begin <= self.acknowledged <= end for begin, end in spans)


_CARRIED_OUT = (Saw.READ, Saw.DONE, Saw.SAVED)
_ANSWERED = (*_CARRIED_OUT, Saw.REFUSED)
_RECORDS = (Saw.ALLOWED, Saw.STOPPED, Saw.GRANTED, Saw.WAITS, Saw.NOTED)
_FORWARDS = (Saw.ALLOWED, Saw.GRANTED)
_STAYS = (Saw.STOPPED, Saw.WAITS)


def violations(events: Iterable[Event]) -> list[Violation]:
    """Return every broken invariant in a history."""
    by_call: dict[str, list[Event]] = defaultdict(list)
    whole = sorted(events, key=lambda event: event.at)
    for event in whole:
        by_call[event.call].append(event)
    found = [
        Violation(rule, call) for call, seen in by_call.items() for rule in _wrong_in_call(seen)
    ]
    found += [
        Violation("commit_lost", event.call, event.at)
        for event in whole
        if event.saw is Saw.SAVED
        and not any(one.saw is Saw.COMMITTED for one in by_call[event.call])
    ]
    found += [Violation("tainted_became_clean", *one) for one in _tainted_sends(whole)]
    # The grant of a call that the server did not receive is given back, and may be used again.
    used = Counter(
        event.to for event in whole if event.saw is Saw.GRANTED and _arrived(by_call[event.call])
    )
    found += [Violation("grant_used_twice", grant) for grant, times in used.items() if times > 1]
    found += [Violation("grant_lost", *one) for one in _lost_grants(whole, by_call)]
    return found


def _arrived(seen: Iterable[Event]) -> bool:
    return any(event.saw is Saw.RECEIVED for event in seen)


def _wrong_in_call(seen: list[Event]) -> Iterator[str]:
    """Yield the invariants that the events of one call break, in order of time."""
    kinds = Counter(event.saw for event in seen)
    arrived = [event for event in seen if event.saw is Saw.RECEIVED]
    allowed = [event for event in seen if event.saw in _FORWARDS]
    if arrived and not any(_is_before(one, arrived[0]) for one in allowed):
        yield "received_without_earlier_allow"
    if len(arrived) > 1:
        yield "received_twice"
    if (kinds[Saw.REFUSED] or kinds[Saw.UNRECORDED]) and arrived:
        yield "refused_and_received"
    is_carried_out = any(kinds[kind] for kind in _CARRIED_OUT)
    if is_carried_out and not arrived:
        yield "answered_and_never_received"
    if any(kinds[kind] for kind in _ANSWERED) and not any(kinds[kind] for kind in _RECORDS):
        yield "audit_line_lost"
    stays = any(kinds[kind] for kind in _STAYS)
    # A write may be stopped by the memory gate after the policy let it through: a later line.
    if stays and allowed and arrived:
        yield "two_verdicts"
    if stays and is_carried_out:
        yield "stopped_and_answered"
    if len({event.principal for event in seen}) > 1:
        yield "crossed_principals"


def _is_before(line: Event, arrival: Event) -> bool:
    """Return whether a line of the audit log was written when a call arrived."""
    if line.mark >= 0 and arrival.mark >= 0:
        return line.mark <= arrival.mark
    return line.at <= arrival.at


def _lost_grants(
    whole: list[Event], by_call: dict[str, list[Event]]
) -> Iterator[tuple[str, float]]:
    """Yield acknowledged grants whose first use was asked about again, and when they were given.

    A later call may be judged before the first, whose agent has given up, and use the grant.  It
    may also take it and then be refused, because no replica has confirmed that in time: a grant is
    used once at most.
    """
    asked: dict[str, list[Event]] = defaultdict(list)
    used: dict[str, float] = {}
    for event in whole:
        if event.saw is Saw.ASKED and event.to:
            asked[event.to].append(event)
        elif event.saw is Saw.GRANTED:
            used.setdefault(event.to, event.at)
    for given in whole:
        if given.saw is not Saw.APPROVED:
            continue
        first = next((one.call for one in asked[given.to] if one.at >= given.at), None)
        waits = (one for one in by_call.get(first or "", ()) if one.saw is Saw.WAITS)
        stopped = (
            one.at
            for one in asked[given.to]
            if one.at >= given.at and one.call != first
            if any(line.saw is Saw.STOPPED for line in by_call[one.call])
        )
        until = min([used.get(given.to, float("inf")), *stopped])
        if any(one.at < until for one in waits):
            yield given.to, given.at


def _tainted_sends(whole: list[Event]) -> Iterator[tuple[str, float]]:
    """Yield calls that arrived although their receiver had been read as untrusted, and when."""
    asked = {event.call: event.at for event in whole if event.saw is Saw.ASKED}
    read: dict[tuple[str, str], float] = {}
    for event in whole:
        if event.saw is Saw.READ and event.to:
            read.setdefault((event.principal, event.to), event.at)
    granted = {event.call for event in whole if event.saw is Saw.GRANTED}
    for event in whole:
        if event.saw is Saw.RECEIVED and event.to and event.call not in granted:
            since = read.get((event.principal, event.to))
            if since is not None and since <= asked.get(event.call, event.at):
                yield event.call, since
