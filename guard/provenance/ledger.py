"""The provenance ledger: labels what comes in, traces what goes out.  Pure: no I/O.

Three moments (docs/provenance.md): a call is asked for and every value in it is looked up; the
call has run and what it saved, or what its result contains, is labelled; the user says something.
Each is one list of look-ups or writes that rides on a round trip which is made anyway.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from guard.content.shingles import passages_sent
from guard.core.calls import Target, TracedCall, with_suspects
from guard.core.labels import (
    Channel,
    Context,
    LabelLookup,
    LabelRecord,
    LabelWrite,
    LabelWriteMode,
    PrivateText,
)
from guard.core.memory_writes import remembered_texts, saved_document
from guard.core.model import DestinationStatus, Identity, Integrity, Role
from guard.core.policy import StateLimits
from guard.destinations.amounts import find_numbers
from guard.destinations.values import find_values, hints_of, leaf_value, taints_of
from guard.provenance.intake import REMEMBERING, ResultIntake
from guard.provenance.label_query import LabelQuery
from guard.provenance.label_sets import CLAIM, PROMPT, RECALLS, LabelSets
from guard.provenance.ladder import attest
from guard.provenance.lineage import SHORT, Recalled, place_of, read_recalls, write_recall
from guard.provenance.message_titles import values_asked
from guard.provenance.prompt_text import addresses_named, names_given, own_words
from guard.provenance.saved_text import ask_saved, saved_text, sentences_said
from guard.provenance.saves import Save, item_value, label_write, saved_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ClassifiedCall, ToolResult
    from guard.core.policy import Policy
    from guard.core.tool_mapping import ToolMapping
    from guard.core.trajectory import Snapshot
    from guard.provenance.seal import Seal

SESSIONS_REMEMBERED: Final = 1024


class Ledger:
    """Turns calls, results and prompts into label records, and records into attestations.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self.seal = seal
        self._limits = StateLimits()
        self._in_force = LabelSets(self._limits)
        self._session_digest = lru_cache(maxsize=SESSIONS_REMEMBERED)(seal.digest)

    def _areas(self, policy: Policy) -> LabelSets:
        """Return the areas under a policy's limits; they change with the policy only."""
        if policy.limits is not self._limits:
            self._limits, self._in_force = policy.limits, LabelSets(policy.limits)
        return self._in_force

    def ask(self, policy: Policy, classified: ClassifiedCall) -> LabelQuery:
        """Return what to look up before a call is judged."""
        call = classified.call
        question = LabelQuery(self.seal, self._areas(policy), call.identity, call.at)
        question.complete = classified.searched
        for target in (*classified.targets, *classified.guarded, *classified.suspects):
            # Every other standing decides by itself on which rung a destination stands.
            if target.standing is DestinationStatus.EXTERNAL:
                question.add(values_asked(target.destination))
                question.add(taints_of(target.destination), taint_only=True)
                question.add(hints_of(target.destination), taint_only=True)
        # Private text is a matter of sends to somebody outside.
        if policy.traces_private and question.values and classified.role is Role.SEND:
            question.add_passages(passages_sent(classified.body))
        mapping = classified.mapping
        question.store = classified.saves_to
        if mapping is not None and mapping.store:
            question.item = item_value(mapping, question.store or mapping.store, call.arguments)
        if question.store:
            plain, disguised, overflow = saved_values(saved_document(classified))
            question.add(plain)
            question.add(disguised)
            question.complete = question.complete and not overflow
        write = classified.memory_write
        if write is not None:
            ask_saved(question, remembered_texts(call, write))
        return question

    def lookups(self, question: LabelQuery) -> tuple[LabelLookup, ...]:
        """Return the look-ups of a question; of a save, what its session has recalled first."""
        asked = question.lookups()
        if not question.store:
            return asked
        return LabelLookup(question.areas.session(question.identity), (RECALLS,)), *asked

    def trace(
        self,
        classified: ClassifiedCall,
        question: LabelQuery,
        snapshot: Snapshot,
        *,
        granted: bool,
    ) -> TracedCall:
        """Return the call with the rung of every value in it.

        Raises:
            ValueError: the answer does not fit the question.
        """
        recalled, labels = snapshot.labels[:1], snapshot.labels
        if question.store:
            labels = labels[1:]
        values, read, item = question.read(labels)
        cut_off = snapshot.full or not question.complete or snapshot.principal.unlabelled > 0
        context = Context(
            session=self.session_digest(question.identity),
            granted=granted,
            saturated=cut_off or snapshot.incomplete,
            read_untrusted=read,
            remembers=snapshot.session.possible(Role.RECALL) > 0
            or snapshot.session.possible(Role.LIST) > 0,
            values=values,
        )
        writes: tuple[LabelWrite, ...] = ()
        if question.store:
            session = question.areas.session(question.identity)
            recalls = read_recalls(self.seal, session, RECALLS, *recalled)
            save = Save(question, classified, context, recalls)
            writes = tuple(save.writes(call_index(classified, snapshot)))
        saved = None
        if classified.memory_write is not None:
            saved = saved_text(question, context, unsure=cut_off)
        return TracedCall(
            classified,
            targets=with_suspects(
                [_traced(target, context) for target in classified.targets],
                [_traced(target, context) for target in classified.suspects],
            ),
            guarded=tuple([_traced(target, context) for target in classified.guarded]),
            private=_private(question),
            on_executed=writes,
            index=call_index(classified, snapshot),
            memory_label=item.label if item is not None and item.sealed else None,
            saved=saved,
        )

    def session_digest(self, identity: Identity) -> bytes:
        """Return the digest that names a session in records."""
        return self._session_digest(identity.tenant, identity.principal, identity.session)

    def learn(
        self, policy: Policy, result: ToolResult, *, is_read: bool = True
    ) -> tuple[list[LabelWrite], bool]:
        """Return the labels of what a result contains, and whether a bound cut any off.

        Args:
            policy: in force.
            result: of a call, or what a server says besides.
            is_read: whether the session has now read untrusted text, where it is such.
        """
        areas = self._areas(policy)
        intake = ResultIntake(self.seal, areas, policy, result, is_read=is_read)
        intake.session = self.session_digest(result.call.call.identity)
        writes, overflow = intake.writes()
        mapping = result.call.classified.mapping
        if is_read and mapping is not None and mapping.store and mapping.role in REMEMBERING:
            recalled = self._recalled(result, mapping, intake, whole=not overflow)
            area = areas.session(result.call.call.identity)
            entry = write_recall(self.seal, area, RECALLS, recalled)
            writes.append(LabelWrite(area, LabelWriteMode.APPEND, (entry,)))
        return writes, overflow

    def _recalled(
        self, result: ToolResult, mapping: ToolMapping, intake: ResultIntake, *, whole: bool
    ) -> Recalled:
        """Return what a memory has answered, for the hops of what its session saves next."""
        call = result.call.call
        by = LabelRecord(
            mapping.source, Channel.MEMORY, result.call.index, result.at, intake.session, call.tool
        )
        return Recalled(
            place_of(self.seal, mapping.store, item_value(mapping, mapping.store, call.arguments)),
            by,
            frozenset([self.seal.fingerprint(value)[:SHORT] for value in intake.found()]),
            # Of advisory text nobody looks for values.
            whole and mapping.source is not Integrity.ADVISORY,
        )

    def hear(self, policy: Policy, identity: Identity, text: str, at: float) -> list[LabelWrite]:
        """Return the records of what a user names in a prompt, outside what they pasted."""
        areas = self._areas(policy)
        words = own_words(text)
        named = addresses_named(words)
        record = LabelRecord(
            Integrity.TRUSTED, Channel.PROMPT, -1, at, self.session_digest(identity), "prompt"
        )
        session = areas.session(identity)
        said = (*named, *names_given(words), *find_numbers(words), *sentences_said(words))
        entries = [
            self.seal.write(session, self.seal.fingerprint(value) + PROMPT, record)
            for value in dict.fromkeys(said)
        ]
        writes = [LabelWrite(session, LabelWriteMode.RAISE, tuple(entries))]
        # A name such as "Alice" means somebody else tomorrow; an address does not.
        for value in named:
            mark = self.seal.fingerprint(value)
            area = areas.prompts(identity, mark)
            writes.append(
                LabelWrite(
                    area, LabelWriteMode.KEEP, (self.seal.write(area, mark + PROMPT, record),)
                )
            )
        return writes

    def claims(
        self, policy: Policy, identity: Identity, values: Iterable[str], at: float
    ) -> tuple[LabelWrite, ...]:
        """Return the records of what an agent says that its user named, for this session."""
        area = self._areas(policy).session(identity)
        digest = self.session_digest(identity)
        record = LabelRecord(Integrity.ADVISORY, Channel.CLAIM, -1, at, digest, "user")
        entries = [self.seal.write(area, self.seal.fingerprint(v) + CLAIM, record) for v in values]
        return (LabelWrite(area, LabelWriteMode.KEEP, tuple(entries)),)

    def imported(
        self,
        limits: StateLimits,
        tenant: str,
        items: Iterable[tuple[str, str, Integrity]],
        at: float,
    ) -> list[LabelWrite]:
        """Return the records of memory that existed before the guard.

        Args:
            limits: of the policy in force.
            tenant: whose memory it is.
            items: store, text and label of each.
            at: now.
        """
        areas = LabelSets(limits)
        writes: list[LabelWrite] = []
        for store, text, label in items:
            record = LabelRecord(label, Channel.IMPORTED, -1, at, bytes(8), store)
            whole = leaf_value(text)
            found = find_values(text)
            values = {**found.plain, **({whole: None} if whole else {})}
            if label is Integrity.UNTRUSTED:
                values.update(found.disguised)
            else:
                values = {v: None for v in values if not v.startswith("any:")}
            writes.extend(label_write(self.seal, areas, tenant, value, record) for value in values)
        return writes


def _private(question: LabelQuery) -> PrivateText | None:
    """Return what was found of private text; an altered record counts, as one cannot be made."""
    if not question.private:
        return None
    return PrivateText(len(question.private), min(question.private, key=lambda one: one.at))


def _traced(target: Target, context: Context) -> Target:
    destination, standing = target.destination, target.standing
    return Target(destination, standing, target.path, attest(destination, standing, context))


def call_index(classified: ClassifiedCall, snapshot: Snapshot) -> int:
    """Return the place of a call in its recorded run, else in its session."""
    recorded = classified.call.index
    return sum(snapshot.session.attempted) if recorded is None else recorded
