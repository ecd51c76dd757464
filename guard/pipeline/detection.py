"""Detectors that inspect calls: all of them, or those that a rule of the policy needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.core.metrics import ERRORS
from guard.core.ports import DetectorOnDemand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guard.core.calls import ClassifiedCall
    from guard.core.metrics import Metrics
    from guard.core.model import Finding, ToolCall
    from guard.core.policy import Policy
    from guard.core.ports import Detector
    from guard.core.trajectory import Snapshot
    from guard.pipeline.call_reading import Findings

NO_FINDINGS: Final[Findings] = {}
_NO_TOOLS: Final[frozenset[str]] = frozenset()


class Detection:
    """Detectors of one guard.

    Args:
        detectors: run in this order.
        metrics: counts failures.
    """

    def __init__(self, detectors: Sequence[Detector], metrics: Metrics) -> None:
        self._detectors = tuple(d for d in detectors if getattr(d, "reads_calls", True))
        self._on_demand = {d.name: d for d in detectors if isinstance(d, DetectorOnDemand)}
        self._metrics = metrics

    def prepare(self, policies: Iterable[Policy | None]) -> None:
        """Prepare the detectors that some policy needs for every tool.

        A detector for some tools prepares itself at the first call of one of them.
        """
        wanted = [policy.needs.detectors for policy in policies if policy is not None]
        for detector in self._on_demand.values():
            if any(tools.get(detector.name, _NO_TOOLS) is None for tools in wanted):
                detector.prepare()

    def for_call(self, policy: Policy | None, call: ToolCall) -> Iterator[Detector]:
        """Yield the detectors that inspect a call."""
        for detector in self._detectors:
            if detector.name in self._on_demand:
                tools = (
                    _NO_TOOLS
                    if policy is None
                    else policy.needs.detectors.get(detector.name, _NO_TOOLS)
                )
                if tools is not None and call.tool not in tools:
                    continue
            yield detector

    def findings(
        self,
        policy: Policy | None,
        classified: ClassifiedCall,
        snapshot: Snapshot,
        errors: list[str],
        known: Findings = NO_FINDINGS,
    ) -> list[Finding]:
        """Return the findings of the detectors; a detector that fails blocks the call.

        Args:
            policy: in force.
            classified: the call.
            snapshot: the state before it.
            errors: gets a line for each detector that fails.
            known: findings of detectors that have inspected the call already.
        """
        findings: list[Finding] = []
        for detector in self.for_call(policy, classified.call):
            found = known.get(detector.name)
            try:
                if found is None:
                    found = detector.inspect(classified, snapshot)
                if not isinstance(found, str):
                    findings.extend(found)
                    continue
                error = found
            except BaseException as failure:  # noqa: BLE001  (no await here: nothing is cancelled)
                error = type(failure).__name__
            errors.append(f"detector `{detector.name}`: {error}")
            self._metrics.count(ERRORS, "detector")
        return findings

    def findings_or_raise(
        self, policy: Policy, classified: ClassifiedCall, snapshot: Snapshot
    ) -> list[Finding]:
        """Return the findings in a redacted call.

        Raises:
            GuardError: a detector failed.
        """
        errors: list[str] = []
        findings = self.findings(policy, classified, snapshot, errors)
        if errors:
            raise GuardError(errors[0])
        return findings
