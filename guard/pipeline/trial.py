"""Another policy beside the one in force: for nobody (shadow), for a share of principals, for all.

Both policies judge every call of a trial on the same state; one of the two verdicts is carried out,
by the principal, and the pair is counted.  So a jump of asks or blocks is seen on the very calls
that met it, and not against other calls of other principals.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.labels import LabelLookup, LabelQuery, LabelReply
from guard.core.policy import Action, Policy, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.calls import ClassifiedCall
    from guard.core.model import Identity
    from guard.core.trajectory import Snapshot
    from guard.pipeline.call_reading import Findings
    from guard.provenance.seal import Seal
    from guard.provenance.tracing import Tracing


FACT: Final = "policy_trial"
"""Name of the fact that an audit line has where the two policies differ."""
ACTION_FACT: Final = "action_rules_on_trial"
"""Likewise where action rules, which are on trial after an upgrade, would have asked or blocked."""
ACTION_CODES: Final = frozenset({"action_unrequested", "action_tainted"})
CANDIDATE: Final = "candidate"
BASE: Final = "base"
FAILED: Final = "failed"


class VerdictPair(NamedTuple):
    """Verdicts of both policies on a call, as they are counted."""

    decided_by: str
    """``candidate`` or ``base``."""
    base: str
    """Action of the policy in force."""
    candidate: str


class Trial:
    """A candidate, and for whom it decides.

    Args:
        identifier: of the trial; which principals are drawn depends on it and on the key.
        candidate: compiled; of the same frame as the policy in force.
        share: of the principals for whom it decides, 0 to 1; a larger share includes those of a
            smaller one.
        principals: for whom it decides besides.
        seal: the deployment's key, so that nobody can choose a name that is drawn.
    """

    def __init__(
        self,
        identifier: str,
        candidate: Policy,
        share: float,
        principals: frozenset[str],
        seal: Seal,
    ) -> None:
        self.id = identifier
        self.candidate = candidate
        self.share = share
        self.principals = principals
        self._seal = seal
        self.counts: Counter[VerdictPair] = Counter()
        """Counts of this process, until they are taken."""

    def decides(self, identity: Identity) -> bool:
        """Return whether the candidate decides on the calls of a principal."""
        if identity.principal in self.principals or self.share >= 1:
            return True
        if self.share <= 0:
            return False
        drawn = self._seal.digest("trial", self.id, identity.tenant, identity.principal)
        return int.from_bytes(drawn, "big") < self.share * 2**64

    def policy(self, base: Policy | None, identity: Identity) -> Policy | None:
        """Return the policy that decides on the calls of a principal; without a base, none."""
        return self.candidate if base is not None and self.decides(identity) else base


@dataclass(slots=True)
class ShadowCall:
    """A call as the policy that does not decide reads it."""

    policy: Policy
    decided_by: str
    """Deciding policy, one of the two."""
    classified: ClassifiedCall
    tracing: Tracing
    query: LabelQuery
    findings: Findings = field(default_factory=dict)
    """Findings of detectors so far."""
    first: LabelQuery = field(default_factory=LabelQuery)
    asked: bool = False
    snapshot: Snapshot | None = None
    """The state before the call with its own labels; None where they could not be read."""

    def joined(self, first: LabelQuery) -> LabelQuery:
        """Return the query of the policy that decides, with that of the other behind it."""
        own = self.query
        if first.named and own.named and first.named.area != own.named.area:
            return first
        if first.counters and own.counters and first.counters != own.counters:
            return first
        self.first = first
        named = first.named or own.named
        if first.named and own.named:
            named = LabelLookup(first.named.area, first.named.fields + own.named.fields)
        self.asked = True
        return LabelQuery(
            first.values + own.values,
            named,
            first.recalls or own.recalls,
            first.definition or own.definition,
            first.counters or own.counters,
        )

    def taken(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot of the policy that decides; keep that of the other."""
        if not self.asked:
            return snapshot
        reply, first, own = snapshot.labels, self.first, self.query
        values = sum(len(one.fields) for one in first.values)
        named = len(first.named.fields) if first.named else 0
        behind = LabelReply(
            reply.values[values:],
            reply.named[named:],
            reply.recalls if own.recalls else None,
            reply.definition if own.definition else None,
            reply.counters if own.counters else (),
        )
        self.snapshot = replace(snapshot, labels=behind, grant=None)
        before = LabelReply(
            reply.values[:values],
            reply.named[:named],
            reply.recalls if first.recalls else None,
            reply.definition if first.definition else None,
            reply.counters if first.counters else (),
        )
        return replace(snapshot, labels=before)


def verdict_pair(
    shadow: ShadowCall, verdict: Verdict, other: Verdict
) -> tuple[VerdictPair, Verdict]:
    """Return what is counted, and the verdict, which says so where the two differ."""
    here, there = verdict.enforced.label, other.enforced.label
    by_candidate = shadow.decided_by == CANDIDATE
    pair = VerdictPair(shadow.decided_by, *((there, here) if by_candidate else (here, there)))
    if here == there:
        return pair, verdict
    by = ", ".join(other.decided_by)
    note = f"{shadow.decided_by} decides; the other: {there}" + (f" ({by})" if by else "")
    return pair, replace(verdict, facts={**verdict.facts, FACT: note})


def worsened(totals: Counter[VerdictPair]) -> tuple[int, int]:
    """Return how many calls a candidate decided, and how many of them it alone asks or blocks."""
    strength = {action.label: action for action in Action}
    decided = worse = 0
    for pair, count in totals.items():
        if pair.decided_by == CANDIDATE and pair.candidate in strength:
            decided += count
            stronger = strength[pair.candidate] > strength[pair.base]
            worse += count * (stronger and not strength[pair.candidate].forwards)
    return decided, worse


def jumped(totals: Counter[VerdictPair], jump: float) -> bool:
    """Return whether asks or blocks have jumped: surely more than a share of a candidate's calls.

    Surely: the lower bound of Wilson's 95 % interval.
    """
    decided, worse = worsened(totals)
    if not decided:
        return False
    z, share = 1.96, worse / decided
    spread = z * (share * (1 - share) / decided + z * z / (4 * decided**2)) ** 0.5
    lowest: float = (share + z * z / (2 * decided) - spread) / (1 + z * z / decided)
    return lowest > jump


class ActivePolicies:
    """Policies that decide in one process.

    Args:
        policy: the policy in force; None blocks every call.
    """

    def __init__(self, policy: Policy | None) -> None:
        self.policy = policy
        """The policy in force; only :meth:`swap_policy` replaces it."""
        self.trial: Trial | None = None
        """A candidate beside it; only :meth:`try_policy` replaces it."""
        self.action_trial_end = 0.0
        """Time until which action rules are judged without effect, in seconds since the epoch."""
        self._bare: tuple[Policy, Policy] | None = None
        self._listeners: list[Callable[[], None]] = []

    def swap_policy(self, policy: Policy) -> None:
        """Put another validated policy in force for every call judged from now on.

        A trial ends: its candidate was compared with the previous policy.
        """
        self.policy = policy
        self.trial = None
        self._notify()

    def try_policy(self, trial: Trial | None) -> None:
        """Judge every call by a candidate as well from now on; None ends the trial."""
        self.trial = trial
        self._notify()

    def without_action_rules(self, policy: Policy) -> Policy:
        """Return a policy without its rules about actions."""
        if self._bare is None or self._bare[0] is not policy:
            rules = tuple(r for r in policy.rules if not getattr(r, "reads_actions", False))
            self._bare = policy, replace(policy, rules=rules)
        return self._bare[1]

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a function, on the event loop, after each change of policy."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def policy_for(self, identity: Identity) -> Policy | None:
        """Return the policy that decides on the calls of a principal."""
        return self.policy if self.trial is None else self.trial.policy(self.policy, identity)
