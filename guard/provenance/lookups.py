"""Look-ups of the values of one call in the label sets.  Pure: no I/O."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.labels import LabelLookup, LabelSet
from guard.core.model import Destination, Identity
from guard.provenance.actions import ACTION, OBJECT, PROMPTED
from guard.provenance.errands import ERRAND, GRANTED, NEVER, errand_set, grant_mark
from guard.provenance.label_sets import (
    ATTESTED,
    BUCKETS,
    CLAIM,
    DENIED,
    ESTABLISHED,
    PROMPT,
    READ,
    RECALLED,
    REPLY,
    SELECTED,
    TAINTED,
    WRITTEN,
    LabelSets,
    established_mark,
)
from guard.provenance.ladder import said_values, values_of
from guard.provenance.named_documents import DELEGATED
from guard.provenance.prompts import ANSWER, MENTIONED, WORDS
from guard.values.finding import LINK, MESSAGE, SAID
from guard.values.folders import KIND as FOLDER
from guard.values.folders import above, of_action

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.calls import ClassifiedCall
    from guard.core.policy import Policy
    from guard.provenance.seal import Seal

PLACE_PRIVATE: Final = "private"
PLACE_GRANTED: Final = "granted"
PLACE_PINNED: Final = "pinned"
PLACE_ESTABLISHED: Final = "established"
_SAID: Final = (SAID, MENTIONED, WORDS, ACTION, OBJECT, ANSWER, ERRAND)
_SUPPLIED: Final = (LINK, DELEGATED)
"""Prefixes of values that only a location named by the user attests."""
_PLANS: Final = 256
PLAN_TEXT: Final = 512
"""Characters of the values whose plan is kept at hand: those of a few recipients."""

TAINTS: Final = 1
"""Question about a value: did untrusted text name it?"""
VOUCHED: Final = 2
"""Question about a value: does its user or a directory vouch for it?"""
KNOWN: Final = 7
"""Both, what the memories say of it, and whether an agent claimed or wrote it."""


def asked_of(value: str, about: int) -> int:
    """Return what is asked about a value: a form that is never exact can only taint."""
    return TAINTS if value.startswith("any:") else about


def _made_questions(
    destination: Destination,
    reads: bool,  # noqa: FBT001  (its cache's key)
    delegates: str,
    closed: bool,  # noqa: FBT001
) -> tuple[tuple[str, int], ...]:
    asked, further, hints = values_of(destination, reads=reads)
    said = said_values(destination, asked, delegates, closed=closed)
    found: dict[str, int] = {}
    for values, about in ((asked, KNOWN), (said, VOUCHED), ((*further, *hints), TAINTS)):
        for value in values:
            found[value] = found.get(value, 0) | asked_of(value, about)
    return tuple(found.items())


_kept_questions: Final = lru_cache(maxsize=_PLANS)(_made_questions)


def questions_of(
    destination: Destination, *, reads: bool, delegates: str, closed: bool
) -> tuple[tuple[str, int], ...]:
    """Return the values under which something is known of a destination, and what is asked.

    Args:
        destination: of a call.
        reads: whether nothing is sent there.
        delegates: action of the call, if a named document may supply its recipient.
        closed: only the owner of the called service creates handles in it.
    """
    short = len(destination.canonical) <= PLAN_TEXT
    return (_kept_questions if short else _made_questions)(destination, reads, delegates, closed)


class Slot(NamedTuple):
    """A field that is read, the value that it is about, and its place in an Evidence."""

    field: bytes
    value: str
    place: str


PATHS: Final = 16
"""Paths of one call up to which directories are looked up."""
FIELD: Final = attrgetter("field")


_IN_SESSION: Final = Slot(READ, "", "read")
_LATELY: Final = Slot(RECALLED, "", "recalled")


class _Plan(NamedTuple):
    """Fields of a look-up of some values, independent of caller and time."""

    in_session: tuple[Slot, ...]
    named: tuple[Slot, ...]
    """Fields that exist if a value is the sender of a message that the user named."""
    in_buckets: Mapping[int, tuple[list[Slot], list[Slot], list[Slot], list[Slot]]]
    """By bucket what is read of the principal's own, the memory, the taint of each period, and
    what agents wrote."""
    denied: tuple[Slot, ...]
    """Fields that exist if the user said no to a value, in whatever session."""


def _made_plan(
    seal: Seal, values: tuple[tuple[str, int], ...], *, directories: bool, selections: bool
) -> _Plan:
    """Return the plan for some values, each with what is asked about it.

    Args:
        seal: the deployment's key.
        values: what is looked up, and what about it.
        directories: whether the policy declares any, so that it matters what agents wrote.
        selections: whether the selection of some store is replayed.
    """
    in_session: list[Slot] = []
    named: list[Slot] = []
    buckets: dict[int, tuple[list[Slot], list[Slot], list[Slot], list[Slot]]] = {}
    for value, asked in values:
        mark, known = seal.fingerprint(value), asked == KNOWN
        if value.startswith(_SUPPLIED):
            # Only the user's naming of the place where it stands vouches for it.
            named.append(Slot(mark + REPLY, value, "reply"))
            continue
        if asked & VOUCHED:
            # Naming a message lets its sender have an answer, no more.
            place = "reply" if value.startswith(MESSAGE) else "prompt"
            in_session.append(Slot(mark + PROMPT, value, place))
        if value.startswith(_SAID):
            # Words count for the session that they were said in; nothing taints them.
            continue
        own, memory, taints, written = buckets.setdefault(mark[0] % BUCKETS, ([], [], [], []))
        if asked & VOUCHED:
            named.append(Slot(mark + REPLY, value, "reply"))
            named.append(Slot(mark + ATTESTED, value, "field"))
            own.append(Slot(mark + ATTESTED, value, "own"))
        if not asked & TAINTS:
            continue
        if known:
            in_session.append(Slot(mark + CLAIM, value, "claim"))
            memory.append(Slot(mark + ATTESTED, value, "memory"))
            if directories:
                written.append(Slot(mark + WRITTEN, value, "written"))
        memory.append(Slot(mark + TAINTED, value, "memory_taint"))
        taints.append(Slot(mark, value, "taint"))
        if selections:
            taints.append(Slot(mark + SELECTED, value, "selected"))
    denied = tuple(
        Slot(seal.fingerprint(value) + DENIED, value, "denied")
        for value, asked in values
        if asked & VOUCHED and (value == PROMPTED or not value.startswith((*_SUPPLIED, *_SAID)))
    )
    return _Plan(tuple(in_session), tuple(named), buckets, denied)


class Asker(NamedTuple):
    """Caller, period and policy options of a look-up."""

    seal: Seal
    plain: Seal
    """The same without the values that the policy folds."""
    sets: LabelSets
    tenant: str
    principal: str
    session: str
    epoch: int
    directories: bool
    selections: bool
    saves: bool


class _Asked(NamedTuple):
    """Look-ups in the label sets about some values and receivers."""

    lookups: tuple[LabelLookup, ...]
    seldom: int
    """Number of the first look-ups that are in sets that seldom exist."""
    places: tuple[tuple[LabelSet, Slot], ...]
    """Set and field of each value of the reply."""
    receivers: tuple[bytes, ...]
    """The mark under which it is on record that each receiver was sent to before."""
    session: LabelSet
    named: LabelLookup | None
    named_slots: tuple[Slot, ...]


def made_lookups(
    asker: Asker,
    values: tuple[tuple[str, int], ...],
    tool: tuple[str, str, str],
    receivers: tuple[Destination, ...],
    action: str,
    recipients: tuple[Destination, ...],
) -> _Asked:
    """Return what to look some values and receivers up by, for one session in one period.

    Args:
        asker: who asks.
        values: what is looked up, and what about each.
        tool: listener, upstream and name of the tool that is called.
        receivers: whom it may have reached before.
        action: that an errand grant would bind.
        recipients: that one may cover.
    """
    seal, plain, sets, tenant, principal = asker[:5]
    identity = Identity(principal, asker.session, tenant)
    plan = _made_plan(seal, values, directories=asker.directories, selections=asker.selections)
    marks = [grant_mark(plain, identity, tool[:2], action, one) for one in recipients]
    granted = [Slot(mark + GRANTED, "", PLACE_GRANTED) for mark in marks]
    seldom: list[tuple[LabelSet, Sequence[Slot]]] = [(errand_set(tenant, principal), granted)]
    # Whoever has prompts has such a set: among those that seldom exist, all would be read.
    restricted = sets.restrictions(tenant, principal), (_LATELY, *plan.denied)
    asked: list[tuple[LabelSet, Sequence[Slot]]] = [restricted]
    for bucket, (of_own, of_memory, of_taint, of_written) in plan.in_buckets.items():
        own, memory, taints, written = sets.of_bucket(tenant, principal, bucket, asker.epoch)
        *earlier, current = taints
        seldom += (written, of_written), (memory, of_memory), *zip(earlier, repeat(of_taint))
        asked += (own, of_own), (current, of_taint)
    sent_to: list[bytes] = []
    for destination in receivers:
        mark, _ = established_mark(seal, principal, tool, destination)
        sent_to.append(mark)
        slot = Slot(mark + ESTABLISHED, "", PLACE_ESTABLISHED)
        asked.append((sets.established(tenant, mark), (slot,)))
    session = sets.session(identity)
    asked.append((session, (_IN_SESSION, *plan.in_session) if asker.saves else plan.in_session))
    lookups: list[LabelLookup] = []
    places: list[tuple[LabelSet, Slot]] = []
    first = 0
    for group in (seldom, asked):
        first = len(lookups)
        for area, slots in group:
            if slots:
                lookups.append(LabelLookup(area, tuple(map(FIELD, slots))))
                places += zip(repeat(area), slots)
    named = LabelLookup(session, tuple(map(FIELD, plan.named))) if plan.named else None
    return _Asked(tuple(lookups), first, tuple(places), tuple(sent_to), session, named, plan.named)


short_lookups = lru_cache(maxsize=_PLANS)(made_lookups)


def folders_of(policy: Policy, classified: ClassifiedCall) -> tuple[Destination, ...]:
    """Return the directories that answers may be on record under; none for too many paths."""
    paths = folder_paths(policy, classified)
    found = chain.from_iterable(above(path, kind) for path, kind in paths)
    return tuple(dict.fromkeys(found)) if len(paths) <= PATHS else ()


def folder_paths(policy: Policy, classified: ClassifiedCall) -> list[tuple[str, str]]:
    """Return the paths of a call that an answer for a directory may cover, and the kind of each."""
    call, mapping = classified.call, classified.mapping
    found = [
        (path, FOLDER)
        for rule in policy.needs.folders
        if rule.claims(call.tool)
        for path in rule.paths(call.arguments)
    ]
    action = "" if mapping is None or mapping.action is None else mapping.action.name
    if classified.objects and action not in NEVER and policy.needs.actions.judges(action):
        kind = of_action(action)
        found += [(one.destination.canonical, kind) for one in classified.objects]
    return found
