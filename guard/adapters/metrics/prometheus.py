"""Metrics in the Prometheus text format, with closed label sets.

No session, principal or destination is ever a label, and of tools only the names and patterns that
the policy itself writes: clients choose the rest, and each new value would be a new time series
for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from guard.adapters.metrics.families import MetricFamilies
from guard.adapters.metrics.labels import (
    BOUNDS,
    DECIDED_WITHOUT_RULE,
    FINDING_CODES,
    FINDING_SOURCES,
    NONE,
    OTHER,
    OUTCOMES,
    REASON_CODES,
    RECOVERED,
    REFUSAL_CODES,
    STAGES,
    UNMAPPED,
)
from guard.adapters.metrics.tallies import RecentShare
from guard.core.memory import GATE_REASONS, MemoryClass
from guard.core.model import Role
from guard.core.policy import MEMO_LIMIT, Action, Mode
from guard.core.ports import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from guard.core.policy import Policy, Verdict
    from guard.core.ports import DecisionRecord
    from guard.core.trajectory import Window


LABELS: Final = {action: action.label for action in Action}


class PrometheusMetrics(Metrics):
    """Counters and histograms on a registry of their own.

    Args:
        policy: its rule ids are the values the ``rule`` label may take.
        models: digest of each model by name.
        refusal_codes: the codes ``refusal`` may count; any other counts as ``other``.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        models: Mapping[str, str] | None = None,
        refusal_codes: Iterable[str] = REFUSAL_CODES,
    ) -> None:
        self.registry = CollectorRegistry()
        self._in_force: Policy | None = None
        self._policy_names: tuple[str, str] | None = None
        self._rules: frozenset[str] = frozenset()
        self._tool_labels: dict[str, str] = {}
        self._families = MetricFamilies(self.registry)
        self._saturation = self._shares()
        self._refusal_codes = frozenset(refusal_codes)
        for action in LABELS.values():
            for code in (*REASON_CODES, OTHER):
                self._families.reasons.begin(code, action)
        for code in (*self._refusal_codes, OTHER):
            self._families.refusals.begin(code)
        for code in FINDING_CODES:
            for source in FINDING_SOURCES:
                self._families.findings.begin(code, source)
        for stage in STAGES:
            self._families.errors.begin(stage)
        for outcome in OUTCOMES:
            self._families.memory_writes.begin(outcome, NONE, OTHER)
        self._closed_children = {stage: self._families.closed.labels(stage) for stage in STAGES}
        self._closed_now: dict[str, bool] = dict.fromkeys(STAGES, False)
        if policy is not None:
            self.set_policy(policy)
        for name, digest in (models or {}).items():
            self._families.models.labels(name, digest).set(1)

    def _shares(self) -> dict[str, RecentShare]:
        """Return what the gauge of label bounds shows, by bound."""
        shares = {bound: RecentShare() for bound in BOUNDS}
        for bound, recent in shares.items():
            self._families.saturation.labels(bound).set_function(recent.share)
        return shares

    def set_policy(self, policy: Policy) -> None:
        """Take the rule ids, tool patterns, name and digest of the policy in force."""
        self._in_force = policy
        self._rules = frozenset(rule.id for rule in policy.rules)
        self._tool_labels.clear()
        # The new series first: a scrape in between must not see a guard without a policy.
        names = (policy.digest, policy.name)
        self._families.policy.labels(*names).set(1)
        if self._policy_names not in {None, names}:
            self._families.policy.remove(*self._policy_names)
        self._policy_names = names
        self._begin_at_zero(policy)

    def policy_reload(self, outcome: str, policy: Policy) -> None:
        """Count a reload; ``policy`` is the one in force after it."""
        self._families.policy_reloads.labels(outcome).inc()
        self._families.policy_stale.set(0 if outcome == "swapped" else 1)
        self.set_policy(policy)

    def _begin_at_zero(self, policy: Policy) -> None:
        """Make the series that exist before anything happens.

        A counter that appears with its first event hides that event from every rate, and a share
        of nothing refused would be no share at all.
        """
        for action in LABELS.values():
            for role in Role:
                self._families.decisions.begin(action, role.value, NONE, policy.mode.value)
            for mapping in policy.tools:
                for pattern in mapping.patterns:
                    self._families.tool_decisions.begin(pattern.text, action)
            self._families.tool_decisions.begin(UNMAPPED, action)
        for role in Role:
            self._families.would.begin(role.value, NONE)

    def decision(self, record: DecisionRecord) -> None:
        """Count a decision, its time and its score."""
        verdict, call, families = record.verdict, record.call, self._families
        action, rule = LABELS[verdict.action], self._rule_label(verdict)
        # Roles and modes are texts themselves; `.value` would cost more than the count.
        families.decisions.inc(action, call.role, rule, verdict.mode)
        tool = self._tool_label(call.call.tool) if call.mapped else UNMAPPED
        families.tool_decisions.inc(tool, action)
        self._count_reasons(verdict)
        families.decision_seconds.observe(record.seconds)
        if verdict.score is not None:
            families.score.observe(verdict.score)
        if verdict.mode is Mode.MONITOR and verdict.would_have_blocked:
            families.would.inc(call.role, rule)

    def error(self, stage: str) -> None:
        """Count an error of a stage; an unknown stage counts as ``other``."""
        self._families.errors.inc(stage if stage in STAGES else OTHER)

    def fail_closed(self, stage: str, *, active: bool) -> None:
        """Set the gauge of a stage."""
        known = stage if stage in self._closed_children else OTHER
        if self._closed_now[known] is not active:
            self._closed_now[known] = active
            self._closed_children[known].set(1 if active else 0)

    def failing(self) -> tuple[str, ...]:
        """Return the stages whose fail-closed gauge is set."""
        return tuple(stage for stage, active in self._closed_now.items() if active)

    def redis_latency(self, seconds: float) -> None:
        """Observe one round trip to the session store."""
        self._families.redis_seconds.observe(seconds)

    def finding(self, code: str, source: str) -> None:
        """Count a finding; what is outside the closed sets counts as ``other``."""
        self._families.findings.inc(
            code if code in FINDING_CODES else OTHER,
            source if source in FINDING_SOURCES else OTHER,
        )

    def memory_drift(self) -> None:
        """Count a subject that committed items push."""
        self._families.memory_drift.inc()

    def memory_write(self, outcome: str, reason: str, target: str) -> None:
        """Count what became of a memory write; names outside the closed sets count as other."""
        self._families.memory_writes.inc(
            outcome if outcome in OUTCOMES else OTHER,
            reason if reason in GATE_REASONS or reason in {NONE, RECOVERED} else OTHER,
            target if target in MemoryClass.__members__ else OTHER,
        )

    def upstream_latency(self, seconds: float) -> None:
        """Observe the time an upstream took to begin its answer."""
        self._families.upstream_seconds.observe(seconds)

    def refusal(self, code: str) -> None:
        """Count a message refused before it was a call; an unknown code counts as ``other``."""
        self._families.refusals.inc(code if code in self._refusal_codes else OTHER)

    def session_seen(self, session: Window) -> None:
        """Observe the session of a call, as it was before the call."""
        self._families.session_calls.observe(sum(session.attempted) + 1)
        self._families.refused_in_a_row.observe(session.refused_in_a_row)

    def saturation(self, bound: str, *, reached: bool) -> None:
        """Take one more look at a bound into the share that its gauge shows."""
        self._saturation[bound].add(reached=reached)

    def labels_incomplete(self, *, active: bool) -> None:
        """Set whether labels that the store lost may be missing."""
        self._families.labels_incomplete.set(1 if active else 0)

    def unlabelled_marks(self, count: int) -> None:
        """Set how many results were released that the store could not be told of."""
        self._families.unlabelled.set(count)

    def show_awaited(self, count: Callable[[], int]) -> None:
        """Ask ``count`` on every scrape how many calls were forwarded and not answered yet."""
        self._families.awaited.set_function(count)

    def expect_scores(self, shares: Mapping[float, float]) -> None:
        """Show what share of the scores the model's card expects up to each bound."""
        for bound, share in shares.items():
            self._families.score_expected.labels(str(float(bound))).set(share)
        if shares:
            self._families.score_expected.labels("+Inf").set(1)

    def worker_restarts(self, count: int) -> None:
        """Set how often the supervisor has started this worker anew."""
        self._families.restarts.set(count)

    def _tool_label(self, tool: str) -> str:
        """Return the name or pattern by which the policy claims a tool."""
        try:
            return self._tool_labels[tool]
        except KeyError:
            mapping = self._in_force.mapping(tool) if self._in_force else None
            label = mapping.claimant(tool) if mapping else OTHER
            if len(self._tool_labels) < MEMO_LIMIT:
                self._tool_labels[tool] = label
            return label

    def _count_reasons(self, verdict: Verdict) -> None:
        """Count each reason once per decision, however many rules gave it."""
        counted: list[tuple[str, str]] = []
        for reason in verdict.reasons:
            code = reason.code if reason.code in REASON_CODES else OTHER
            labels = (code, LABELS[reason.action])
            if labels not in counted:
                counted.append(labels)
                self._families.reasons.inc(*labels)

    def _rule_label(self, verdict: Verdict) -> str:
        if verdict.decided_by:
            return verdict.decided_by[0] if verdict.decided_by[0] in self._rules else OTHER
        if not verdict.reasons:
            return NONE
        code = verdict.reasons[0].code
        return code if code in DECIDED_WITHOUT_RULE else OTHER
