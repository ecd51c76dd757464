"""Findings of detectors in incoming text: counted and recorded, never a verdict by themselves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in_order
from guard.core.metrics import ERRORS, FAIL_CLOSED, FINDINGS
from guard.core.ports import TextDetector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from guard.core.calls import ToolResult
    from guard.core.metrics import Metrics
    from guard.core.model import Finding, Json
    from guard.core.ports import AuditLog, Detector

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
        """Return the findings of detectors that run in another process; none if that fails.

        A thread would hold the interpreter for as long as a pattern takes to search the text.
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
