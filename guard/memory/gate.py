"""The commit gate: eight deterministic checks, each with a named reason, and their audit lines.

No check reads what the agent says about itself: source types, integrity and sources come from the
wire; trust, nonces, tokens and earlier classes from the staging store.  Checks 4, 5, 6 and 7 are
made once more, atomically, when the candidate is committed.  Pure: no I/O of its own.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from guard.core.memory import (
    Candidate,
    GateDecision,
    MemoryClass,
    Permission,
    SecondLook,
    SourceType,
    StagedFacts,
    TokenState,
    Trust,
)
from guard.core.metrics import ERRORS, MEMORY_DRIFT, MEMORY_WRITES, Metrics
from guard.core.model import LISTED, Destination, DestinationStatus, Integrity
from guard.core.policy import Action, Reason, Verdict
from guard.values.decoder import content_readings, fold, without_markup
from guard.values.finding import (
    find_destinations,
    find_values,
    keys_of,
    suspected_destinations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.core.mappings import MemoryPolicy
    from guard.core.ports import AuditLog

ALONE: Final = 32
"""Texts of one write that are each read by themselves."""
LETTERS: Final = 4
"""Characters of a text below which the texts of a write are parts of words."""
_PARTED: Final = re.compile(r"[\s_*~-]+")
_LETTER_GAP: Final = re.compile(r"(?<=\b\w)[ ._*~-](?=\w\b)")
"""Sign between two single letters, in a word whose letters are spaced."""
_TOKEN_REASONS: Final = {
    TokenState.NONE: "promotion_token_missing",
    TokenState.EXPIRED: "promotion_token_expired",
    TokenState.USED: "promotion_token_replayed",
    TokenState.OTHER: "promotion_token_other",
    TokenState.FORGED: "promotion_token_forged",
}


class CommitGate:
    """Decides on candidates.

    Args:
        policy: the compiled ``memory:`` section.
        status_of: the status of a destination under the whole policy.
    """

    def __init__(
        self, policy: MemoryPolicy, status_of: Callable[[Destination], DestinationStatus]
    ) -> None:
        self._policy = policy
        self._status_of = status_of

    def decide(self, candidate: Candidate, facts: StagedFacts) -> GateDecision:
        """Return whether a staged candidate may be committed, and to which class.

        A candidate that its own class refuses is tried once more in the mapping's fallback class;
        what is committed there is tainted.

        INVARIANT (sources): adding a source type, lowering trust or integrity never commits what
        was refused before.
        """
        reasons = tuple(self._failed(candidate, facts, candidate.target))
        if not reasons:
            return self._commit(candidate, facts, candidate.target)
        lower = candidate.fallback
        if lower is not None and lower > candidate.target:
            again = tuple(self._failed(candidate, facts, lower))
            if not again:
                return self._commit(candidate, facts, lower, demoted=reasons)
            # Both classes refuse it: the agent is told why the lower one does as well.
            reasons = tuple(dict.fromkeys((*reasons, *again)))
        allowed = tuple(
            target for target in MemoryClass if not tuple(self._failed(candidate, facts, target))
        )
        return GateDecision(
            commits=False,
            target=candidate.target,
            tainted=is_tainted(candidate),
            reasons=reasons,
            allowed=allowed,
        )

    def _commit(
        self,
        candidate: Candidate,
        facts: StagedFacts,
        target: MemoryClass,
        demoted: tuple[str, ...] = (),
    ) -> GateDecision:
        return GateDecision(
            commits=True,
            target=target,
            tainted=bool(demoted) or is_tainted(candidate),
            uses_token=self._needs_token(candidate, facts, target),
            evidence={"demoted_for": list(demoted)} if demoted else {},
        )

    def _failed(
        self, candidate: Candidate, facts: StagedFacts, target: MemoryClass
    ) -> Iterator[str]:
        """Yield the reasons against a class, in the order of the paper's checks."""
        yield from candidate.problems
        if facts.quarantined:
            yield "partition_quarantined"
        if self._strictest(candidate, facts, target) is Permission.REFUSE:
            yield "source_class_refused"
        if facts.tokens.get(target) is not TokenState.VALID:
            yield from self._unseen(candidate, facts, target)
        if facts.nonce_digest not in {"", candidate.text_digest}:
            yield "content_hash_mismatch"
        if facts.nonce_used:
            yield "nonce_replayed"
        yield from self._token(candidate, facts, target)
        yield from self._second_look(candidate, facts, target)

    def _unseen(
        self, candidate: Candidate, facts: StagedFacts, target: MemoryClass
    ) -> Iterator[str]:
        """Yield the reasons against a class that a promotion of exactly this content lifts."""
        permission = self._strictest(candidate, facts, target)
        elevated = permission is Permission.ELEVATED or facts.trust >= Trust.DEGRADED
        if elevated and self.is_suspicious(candidate):
            yield "suspicious_content"
        if facts.trust is Trust.UNTRUSTED and _touched(facts, target) != {MemoryClass.L4}:
            yield "source_untrusted"

    def _strictest(
        self, candidate: Candidate, facts: StagedFacts, target: MemoryClass
    ) -> Permission:
        """Return the permission for a class and for that of the item which is written over."""
        return max(self.permission(candidate, touched) for touched in _touched(facts, target))

    def _looks(self, facts: StagedFacts, target: MemoryClass) -> frozenset[SecondLook]:
        """Return who must look again: for a class, and for that of the item written over."""
        return frozenset(self._policy.second_look[touched] for touched in _touched(facts, target))

    def permission(self, candidate: Candidate, target: MemoryClass) -> Permission:
        """Return the strictest permission over the candidate's source types."""
        return max(
            (self._policy.matrix[kind, target] for kind in candidate.evidence.types),
            default=Permission.REFUSE,
        )

    def is_suspicious(self, candidate: Candidate) -> bool:
        """Return whether the text matches a pattern or names a destination nobody vouches for.

        In every reading, and where it stands in several members: who recalls it reads them in turn.
        """
        if candidate.problems:
            return False  # It is refused for these, however long it is.
        texts = (*candidate.texts, *candidate.further)
        if any(map(self._policy.suspicious, _readings(texts))):
            return True
        found = self._policy.suspicious_destinations and _destinations(texts)
        unknown = (one for one in found or () if self._status_of(one) not in LISTED)
        attested = candidate.evidence.attested if self._policy.is_default else frozenset()
        return any(attested.isdisjoint(keys_of(one)) for one in unknown)

    def _needs_token(self, candidate: Candidate, facts: StagedFacts, target: MemoryClass) -> bool:
        return (
            any(self._unseen(candidate, facts, target))
            or _raises(facts, target)
            or self._strictest(candidate, facts, target) is Permission.TOKEN
            or SecondLook.HUMAN in self._looks(facts, target)
        )

    def _token(
        self, candidate: Candidate, facts: StagedFacts, target: MemoryClass
    ) -> Iterator[str]:
        state = facts.tokens.get(target, TokenState.NONE)
        if state is TokenState.OTHER and candidate.token:
            # A token that was presented and does not fit is refused even where none is needed.
            yield _TOKEN_REASONS[state]
        elif (
            _raises(facts, target) or self._strictest(candidate, facts, target) is Permission.TOKEN
        ):
            reason = _TOKEN_REASONS.get(state)
            if reason is not None:
                yield reason

    def _second_look(
        self, candidate: Candidate, facts: StagedFacts, target: MemoryClass
    ) -> Iterator[str]:
        looks = self._looks(facts, target)
        if SecondLook.CHECKER in looks and self.is_suspicious(candidate):
            yield "second_look_failed"
        state = facts.tokens.get(target, TokenState.NONE)
        if SecondLook.HUMAN in looks and state is not TokenState.VALID:
            yield "second_look_required"


@lru_cache(maxsize=4)
def _readings(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a model could read some texts as, with what parts their words as a space."""
    whole = (" ".join(texts), " ".join(texts[::-1])) if len(texts) > 1 else ()
    if sum(map(len, texts)) < LETTERS * len(texts):
        whole = (*whole, "".join(texts))
    # Very many texts are decoded only as a whole, so that it takes as long as one text.
    alone = texts if len(texts) <= ALONE else ()
    decoded = (content_readings(text).texts for text in (*alone, *whole))
    found = dict.fromkeys(chain.from_iterable(decoded))
    found |= dict.fromkeys(chain.from_iterable(map(without_markup, found)))
    folded = [fold(view) for view in found]
    parted = [
        _PARTED.sub(" ", view)
        for view in (*folded, *(_LETTER_GAP.sub("", view) for view in folded))
    ]
    return tuple(dict.fromkeys([*found, *parted]))


@lru_cache(maxsize=4)
def _destinations(texts: tuple[str, ...]) -> frozenset[Destination]:
    """Return every destination in some texts, and those that they are codings of.

    A host without a path is only a name: notes are full of names.
    """
    plain = {found for text in texts for found in find_destinations(text)}
    for text in texts:
        suspected = suspected_destinations(find_values(text))
        plain.update(one for one in suspected if one.kind != "host" or one.canonical != one.host)
    for text in texts if len(texts) <= ALONE else (" ".join(texts),):
        for view in content_readings(text).texts[1:]:
            # In what a coding leaves, letters beside a sign are no address written badly.
            plain.update(one for one in find_destinations(view) if one.kind != "malformed")
    return frozenset(plain)


def _touched(facts: StagedFacts, target: MemoryClass) -> frozenset[MemoryClass]:
    """Return the classes that a write into ``target`` changes: to write over an item changes its
    class as well, so it needs what a write into that class needs.
    """
    return facts.item_classes | {target}


def _raises(facts: StagedFacts, target: MemoryClass) -> bool:
    """Return whether a write would put an item into a higher class than it has."""
    return any(target < before for before in facts.item_classes)


def is_tainted(candidate: Candidate) -> bool:
    """Return whether what the candidate is made of may have been written by anybody."""
    return (
        candidate.evidence.integrity is Integrity.UNTRUSTED
        or SourceType.TOOL_RESULT in candidate.evidence.types
    )


PROMOTE: Final = "ask the operator to run `guard memory promote` with the decision id"
_REMEDIES: Final = {
    "source_class_refused": "what this session has read may not be written to this class",
    "suspicious_content": f"leave out destinations and standing orders, or {PROMOTE}",
    "source_untrusted": f"only L4 is open to this source for now; or {PROMOTE}",
    "content_hash_mismatch": "the content differs from what was staged under this nonce",
    "nonce_replayed": "this nonce was used; a new write needs a new one",
    "promotion_token_missing": PROMOTE,
    "promotion_token_expired": "ask the operator for a new promotion token",
    "promotion_token_replayed": "ask the operator for a new promotion token",
    "promotion_token_forged": "this token was not issued by an operator; ask for another",
    "promotion_token_other": "this token is for other content, another class or principal",
    "second_look_required": PROMOTE,
    "second_look_failed": "a person has to write this",
    "partition_quarantined": "the operator has closed this partition",
    "candidate_oversize": "write less at once",
    "candidate_not_text": "write text",
    "class_unknown": "name one of L1, L2, L3, L4",
    "proposal_refused": "the result proposed a memory update and was withheld; go on without it",
    "write_conflict": "another write to the same item came first; read it and try again",
    "gate_error": "retry later",
}


def with_reasons(
    verdict: Verdict,
    codes: tuple[str, ...],
    target: MemoryClass,
    allowed: tuple[MemoryClass, ...],
    detail: str = "",
) -> Verdict:
    """Return the verdict as a block for the gate's reasons."""
    told = {"target_class": target.name, "allowed_classes": [item.name for item in allowed]}
    classes = ", ".join(item.name for item in allowed)
    hint = f"; {classes} would be allowed" if classes else ""
    reasons = tuple(
        Reason(
            code=code,
            rule="",
            action=Action.BLOCK,
            detail=detail or f"memory class {target.name}",
            data={"memory": told},
            remedy=_REMEDIES.get(code, "do not retry the same write") + (hint if not i else ""),
        )
        for i, code in enumerate(codes)
    )
    others = tuple(reason for reason in verdict.reasons if reason.action is Action.BLOCK)
    return replace(verdict, action=Action.BLOCK, reasons=(*reasons, *others), decided_by=())


EVENT: Final = "guard.memory"
EVENT_DRIFT: Final = "guard.memory_drift"


class GateLog:
    """Writes the audit lines of candidates, and counts their outcomes.

    Args:
        audit: one line per candidate, before it is committed.
        metrics: counts outcomes by reason and class.
    """

    def __init__(self, audit: AuditLog, metrics: Metrics) -> None:
        self._audit = audit
        self._metrics = metrics

    def record(
        self,
        candidate: Candidate,
        decision: GateDecision,
        receipt: str,
        reasons: tuple[str, ...],
    ) -> None:
        """Write the audit line of a candidate; without it nothing is committed.

        Raises:
            AuditError: it could not be written.
        """
        self._audit.event(
            EVENT,
            {
                "decision_id": candidate.id,
                "principal": candidate.identity.principal,
                "tool": candidate.tool,
                "store": candidate.store,
                "outcome": "refuse" if reasons else "commit",
                "memory_reasons": list(reasons),
                "memory_class": decision.target.name,
                "tainted": decision.tainted,
                "source_types": sorted(kind.value for kind in candidate.evidence.types),
                "receipt": receipt,
            },
        )

    def drift(self, candidate: Candidate, subject: str) -> None:
        """Raise a finding: the subject is a word of the content, so it goes out as a digest.

        Raises:
            AuditError: it could not be written.
        """
        self._metrics.count(MEMORY_DRIFT)
        fingerprint = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()
        self._audit.event(
            EVENT_DRIFT,
            {
                "decision_id": candidate.id,
                "principal": candidate.identity.principal,
                "store": candidate.store,
                "subject": fingerprint[:24],
            },
        )

    def count(self, outcome: str, reasons: tuple[str, ...], target: MemoryClass) -> None:
        """Count what became of a write, by its first reason and its class."""
        self._metrics.count(MEMORY_WRITES, outcome, reasons[0] if reasons else "none", target.name)

    def failed(self) -> None:
        """Count a failure of the gate itself."""
        self._metrics.count(ERRORS, "memory")
