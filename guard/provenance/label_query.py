"""What to ask the store about the values of one call, and how to read its answer.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.labels import Evidence, LabelLookup
from guard.core.model import Integrity
from guard.destinations.values import SAID
from guard.provenance.label_sets import (
    ATTESTED,
    CLAIM,
    ITEM,
    PROMPT,
    READ,
    REPLY,
    TAINTED,
    bucket_of,
)
from guard.provenance.message_titles import LINK, TITLE
from guard.provenance.seal import FINGERPRINT, NAMES_AT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guard.core.labels import LabelRecord, LabelSet
    from guard.core.model import Identity
    from guard.provenance.label_sets import LabelSets
    from guard.provenance.seal import Seal

PRIVATE: Final = "private"
ASK_LIMIT: Final = 256
"""Values asked about for one call; a target beyond it stays unknown, and suspicious."""
_PLANS: Final = 1024
_PLAN_TEXT: Final = 512
"""Characters of the values whose plan is kept at hand: those of a few recipients."""


class _Slot(NamedTuple):
    """A field that is asked for, the value that it is about, and its place in an Evidence."""

    field: bytes
    value: str
    place: str


class _Ask(NamedTuple):
    """What is asked of one area."""

    fields: tuple[bytes, ...]
    slots: tuple[_Slot, ...]


class _Plan(NamedTuple):
    """Which fields some values are looked up under, whoever asks and whenever."""

    in_session: _Ask
    """Last whether a value is the sender of a message that the user named."""
    chained: int
    """How many of the last fields those are."""
    in_buckets: tuple[tuple[int, _Ask, _Ask, _Ask], ...]
    """Bucket, and what is asked of the prompts, the memory and the taint of each period."""


def _ask(slots: list[_Slot]) -> _Ask:
    return _Ask(tuple([slot.field for slot in slots]), tuple(slots))


_WHOLE_SESSION: Final = _ask([_Slot(READ, "", "read")])


def _joined(first: _Ask, second: _Ask) -> _Ask:
    return _Ask(first.fields + second.fields, first.slots + second.slots)


def _made_plan(seal: Seal, values: tuple[tuple[str, bool], ...]) -> _Plan:
    """Return the plan for some values, each with whether it may be attested or only taints."""
    in_session: list[_Slot] = []
    replies: list[_Slot] = []
    buckets: dict[int, list[tuple[str, bytes, bool]]] = {}
    for value, known in values:
        if value.startswith((TITLE, LINK)):
            # It says which message or link; only the user's naming of its place vouches for it.
            if known:
                replies.append(_Slot(seal.fingerprint(value) + REPLY, value, "reply"))
            continue
        mark = seal.fingerprint(value)
        if known:
            in_session.append(_Slot(mark + PROMPT, value, "prompt"))
            if value.startswith(SAID):
                # Words count for the session that they were said in; nothing taints them.
                continue
            in_session.append(_Slot(mark + ATTESTED, value, "field"))
            in_session.append(_Slot(mark + CLAIM, value, "claim"))
            replies.append(_Slot(mark + REPLY, value, "reply"))
        buckets.setdefault(bucket_of(mark), []).append((value, mark, known))
    return _Plan(
        _ask(in_session + replies),
        len(replies),
        tuple([(bucket, *_in_bucket(group)) for bucket, group in buckets.items()]),
    )


_short_plan = lru_cache(maxsize=_PLANS)(_made_plan)


def _in_bucket(values: list[tuple[str, bytes, bool]]) -> tuple[_Ask, _Ask, _Ask]:
    """Return what is asked about values whose records of one kind lie in one area."""
    known = [(value, mark) for value, mark, may_be_attested in values if may_be_attested]
    prompts = [_Slot(mark + PROMPT, value, "earlier_prompt") for value, mark in known]
    memory = [_Slot(mark + ATTESTED, value, "memory") for value, mark in known]
    memory += [_Slot(mark + TAINTED, value, "memory_taint") for value, mark, _ in values]
    return _ask(prompts), _ask(memory), _ask([_Slot(mark, v, "taint") for v, mark, _ in values])


@dataclass(slots=True)
class LabelQuery:
    """Values of one call to look up in one round trip."""

    seal: Seal
    areas: LabelSets
    identity: Identity
    at: float
    item: str = ""
    """Value of the memory item that the call names, if it names one."""
    values: dict[str, bool] = field(default_factory=dict)
    """Whether a value may be attested, by value; the others only taint."""
    store: str = ""
    """The memory that the call saves into, so that it matters what its session has read."""
    passages: tuple[bytes, ...] = ()
    """Fingerprints of the passages of the body."""
    private: tuple[LabelRecord, ...] = ()
    """Records of the passages that a private source has returned, once the answer is read."""
    complete: bool = True
    """Whether no value was left out."""
    saved: tuple[str, ...] = ()
    """Values in a text that is about to be saved."""
    said: tuple[str, ...] = ()
    """Its sentences, where each can be told apart."""
    _asked: Sequence[tuple[LabelSet, _Ask]] = ()
    """What is asked of each area, in the order of the answers."""
    _chained: int = 0
    """Of how many of the last answers the names in them were looked up too."""

    def add(self, values: Iterable[str], *, taint_only: bool = False) -> None:
        """Ask about some more values, or only whether untrusted text named them."""
        asked = self.values
        for value in values:
            known = not taint_only and not value.startswith("any:")
            if value in asked:
                asked[value] = known or asked[value]
            elif len(asked) >= ASK_LIMIT:
                self.complete = False
                return
            else:
                asked[value] = known

    def add_passages(self, passages: Iterable[str]) -> None:
        """Ask whether a private source has returned some passages."""
        self.passages = tuple([self.seal.fingerprint(passage) for passage in passages])

    def lookups(self) -> tuple[LabelLookup, ...]:
        """Return the look-ups, one per area; what the session was told comes last."""
        if not self.values and not self.store and not self.item:
            return ()
        plan, areas, identity = self._plan(), self.areas, self.identity
        asked: list[tuple[LabelSet, _Ask]] = []
        epoch = areas.epoch(self.at)
        for bucket, of_prompts, of_memory, of_taint in plan.in_buckets:
            prompts, memory, taints = areas.of_bucket(identity, bucket, epoch)
            if of_prompts.fields:
                asked.append((prompts, of_prompts))
            asked.append((memory, of_memory))
            asked += [(taint, of_taint) for taint in taints]
        if self.passages:
            asked += self._private_asked()
        if self.item:
            mark = self.seal.fingerprint(self.item)
            asked.append(
                (areas.memory(identity.tenant, mark), _ask([_Slot(mark + ITEM, "", "item")]))
            )
        if self.store or plan.in_session.fields:
            in_session = _joined(_WHOLE_SESSION, plan.in_session) if self.store else plan.in_session
            asked.append((areas.session(identity), in_session))
        self._asked, self._chained = asked, plan.chained
        found = [LabelLookup(area, ask.fields) for area, ask in asked]
        if plan.chained:
            found[-1] = LabelLookup(found[-1].area, found[-1].fields, plan.chained)
        return tuple(found)

    def _plan(self) -> _Plan:
        values = tuple(self.values.items())
        short = sum(map(len, self.values)) <= _PLAN_TEXT
        return (_short_plan if short else _made_plan)(self.seal, values)

    def _private_asked(self) -> Iterable[tuple[LabelSet, _Ask]]:
        """Return what is asked of the private texts."""
        private: dict[int, tuple[LabelSet, list[_Slot]]] = {}
        for mark in self.passages:
            area = self.areas.private(self.identity, mark)
            private.setdefault(id(area), (area, []))[1].append(_Slot(mark, "", PRIVATE))
        return [(area, _ask(slots)) for area, slots in private.values()]

    def read(
        self, labels: tuple[object, ...]
    ) -> tuple[dict[str, Evidence], LabelRecord | None, LabelRecord | None]:
        """Return what is known of each value, the session's first untrusted read, the item.

        Raises:
            ValueError: the answer does not fit the question.
        """
        asked = self._asked
        if len(labels) != sum([len(ask.fields) for _, ask in asked]):
            raise ValueError("the store answered other look-ups than were asked")
        places: dict[str, dict[str, LabelRecord]] = {}
        there = [index for index, raw in enumerate(labels) if raw is not None]
        if there:
            fields = [(area, slot) for area, ask in asked for slot in ask.slots]
            plain = len(labels) - self._chained
            for index in there:
                area, slot = fields[index]
                if index < plain:
                    self._keep(places, area, slot, labels[index])
                else:
                    self._keep_reply(places, area, slot, labels[index])
        whole = places.pop("", {})
        evidence = {value: Evidence(**found) for value, found in places.items()}
        return evidence, whole.get("read"), whole.get("item")

    def _keep(
        self, places: dict[str, dict[str, LabelRecord]], area: LabelSet, slot: _Slot, raw: object
    ) -> None:
        """Keep what a field holds, the earliest record of a place: taint has one per period."""
        record = self.seal.read(area, slot.field, raw)
        if record is None:
            return
        if slot.place == PRIVATE:
            self.private += (record,)
            return
        found = places.setdefault(slot.value, {})
        before = found.get(slot.place)
        if before is None or (record.at, record.call) < (before.at, before.call):
            found[slot.place] = record

    def _keep_reply(
        self, places: dict[str, dict[str, LabelRecord]], area: LabelSet, slot: _Slot, answer: object
    ) -> None:
        """Keep the sender of a message that the user has named in this session."""
        if not isinstance(answer, list) or len(answer) != 2:  # noqa: PLR2004 - record, names
            return
        raw, named = answer
        record = self.seal.read(area, slot.field, raw)
        if record is None or not record.sealed or not isinstance(raw, bytes):
            return
        for name, found in zip(_names_in(raw), named, strict=False):
            by = self.seal.read(area, name + PROMPT, found)
            if by is not None and by.sealed and by.label >= Integrity.AUTHENTICATED:
                places.setdefault(slot.value, {})["reply"] = record
                return


def _names_in(raw: bytes) -> list[bytes]:
    """Return the fingerprints behind a record's source."""
    start = NAMES_AT + raw[NAMES_AT - 1] if len(raw) >= NAMES_AT else len(raw)
    return [
        raw[at : at + FINGERPRINT] for at in range(start, len(raw) - FINGERPRINT + 1, FINGERPRINT)
    ]
