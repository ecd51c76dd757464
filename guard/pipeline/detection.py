"""Detectors: on calls, on incoming text, and for the rules that withhold results."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.core.json_values import strings_in_order
from guard.core.metrics import ERRORS, FAIL_CLOSED, FINDINGS, Metrics
from guard.core.model import Finding, Json, ToolCall
from guard.core.policy import FAILED, Evidence, Policy
from guard.core.ports import AuditLog, Detector, DetectorOnDemand, ResultDetector, TextDetector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from guard.core.calls import ClassifiedCall, ToolResult
    from guard.core.trajectory import Snapshot
    from guard.pipeline.call_reading import Findings


NO_FINDINGS: Final[Findings] = {}
_NO_TOOLS: Final[frozenset[str]] = frozenset()
_NO_NEEDS: Final[Mapping[str, frozenset[str] | None]] = {}


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

    def for_call(self, policy: Policy | None, call: ToolCall) -> list[Detector]:
        """Return the detectors that inspect a call."""
        needed = _NO_NEEDS if policy is None else policy.needs.detectors
        on_demand, tool = self._on_demand, call.tool
        return [
            detector
            for detector in self._detectors
            if detector.name not in on_demand
            or (tools := needed.get(detector.name, _NO_TOOLS)) is None
            or tool in tools
        ]

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


EVENT: Final = "guard.finding"
"""Value of ``event`` in the audit line of a finding that belongs to no decision."""
TEXT_LIMIT: Final = 256 * 1024
"""Characters of one result, or of one listing, that are looked through."""


class ContentScan:
    """Asks the detectors about texts, and records what they find.

    Args:
        detectors: those that look at texts are asked.
        audit: gets a line for each finding.
        metrics: gets a count.
    """

    def __init__(self, detectors: Sequence[Detector], audit: AuditLog, metrics: Metrics) -> None:
        self._detectors = tuple(one for one in detectors if isinstance(one, TextDetector))
        self._audit = audit
        self._metrics = metrics

    def of_result(self, result: ToolResult, findings: list[Finding] | None = None) -> None:
        """Look through a result.  Never raises.

        Args:
            result: of a call.
            findings: what :meth:`find` has found in it, where that was asked already.
        """
        if findings is None:
            findings = self.find(result.content, deep=False)
        if not findings:
            return
        call = result.call.call
        fields: dict[str, Json] = {
            "decision_id": call.id,
            "tool": call.tool[:128],
            "server": call.server,
            "principal": call.identity.principal[:128],
            "session": call.identity.session[:128],
        }
        for finding in findings:
            self.record(finding.code, "result", {**fields, "detector": finding.detector})

    def find(self, content: Json, *, deep: bool) -> list[Finding]:
        """Return what the detectors find in the texts of a document, each code once.

        A detector that raises is counted and has found nothing: its evidence decides nothing.
        """
        try:
            return found_in(self._detectors, content, deep=deep)
        except Exception:  # noqa: BLE001  (evidence, which no verdict waits for)
            self._metrics.count(ERRORS, "detector")
        return []

    async def find_apart(
        self, apart: Callable[..., Awaitable[Any]], content: Json, *, deep: bool = False
    ) -> list[Finding]:
        """Return the findings of detectors that run in another process or thread; none on failure.

        A thread holds the interpreter for as long as a pattern takes to search the text.
        """
        try:
            found: list[Finding] = await apart(
                partial(found_in, deep=deep), self._detectors, content
            )
        except Exception:  # noqa: BLE001  (evidence, which no verdict waits for)
            self._metrics.count(ERRORS, "detector")
            return []
        return found

    def record(self, code: str, source: str, fields: Mapping[str, Json]) -> None:
        """Write the audit line of a finding and count it.  Never raises.

        Args:
            code: from the closed set of its detector.
            source: what it was found in: ``result``, ``definition``, ``listing`` or ``request``.
            fields: who and what; no text of an argument or a result.
        """
        self._metrics.count(FINDINGS, code, source)
        try:
            self._audit.event(EVENT, {**fields, "code": code, "source": source})
        except Exception:  # noqa: BLE001  (evidence, which no verdict waits for)
            self._metrics.count(ERRORS, "audit")
            self._metrics.set(FAIL_CLOSED, 1, "audit")


def found_in(
    detectors: Sequence[TextDetector], content: Json, *, deep: bool = False
) -> list[Finding]:
    """Return what detectors find in the texts of a document, each code once."""
    if not detectors:
        return []
    found: dict[str, Finding] = {}
    text = "\n".join(strings_in_order(content))[:TEXT_LIMIT]
    for detector in detectors:
        for finding in detector.inspect_text(text, deep=deep):
            found.setdefault(finding.code, finding)
    return list(found.values())


class ResultEvidence:
    """Asks the detectors that the rules of a policy name, in a thread.

    Args:
        detectors: of the guard; those that search results are asked.
        metrics: counts errors.
        aside: runs a function in a thread.
    """

    def __init__(
        self,
        detectors: Sequence[Detector],
        metrics: Metrics,
        aside: Callable[..., Awaitable[Any]],
    ) -> None:
        self._detectors = {one.name: one for one in detectors if isinstance(one, ResultDetector)}
        self._metrics = metrics
        self._aside = aside

    def prepare(self, policy: Policy | None) -> None:
        """Prepare the detectors that a policy names, before it is in force.

        Raises:
            GuardError: a detector cannot be used.
        """
        for name in () if policy is None else policy.needs.detectors:
            if name in self._detectors:
                self._detectors[name].prepare()

    async def find(
        self, policy: Policy, call: ClassifiedCall, contents: Sequence[Json]
    ) -> list[Evidence]:
        """Return the evidence in each content, by detector.

        A detector that fails gives a finding, so its content is withheld.  The evidence of an
        unknown detector is missing, and the rule that needs it raises.
        """
        names = frozenset().union(*(rule.asks(call) for rule in policy.index.result_rules))
        asked = [self._detectors[name] for name in sorted(names) if name in self._detectors]
        if not asked:
            return [{} for _ in contents]
        found: list[Evidence] = await self._aside(
            lambda: [{one.name: self._inspect(one, text) for one in asked} for text in contents]
        )
        return found

    def _inspect(self, detector: ResultDetector, content: Json) -> Finding | None:
        try:
            return detector.inspect_result(content)
        except Exception as error:  # noqa: BLE001  (a result that was not searched is withheld)
            self._metrics.count(ERRORS, "detector")
            detail = f"detector `{detector.name}` failed ({type(error).__name__})"
            return Finding(detector.name, FAILED, None, detail)
