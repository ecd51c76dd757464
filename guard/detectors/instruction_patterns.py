"""Patterns of instructions to a model, searched in results, definitions and server requests.

A finding is counted, recorded, and lowers the label of its text.  A ``result`` rule that names this
detector withholds on it.  The patterns are data (:mod:`guard.values.instructions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from guard.core.json_values import strings_in_order
from guard.core.model import Finding, Json
from guard.core.policy import INJECTION, TOO_LARGE
from guard.detectors import DetectorPlugin, DetectorResources
from guard.values.instructions import LIMIT, matched_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import ClassifiedCall
    from guard.core.trajectory import Snapshot


class InstructionPatterns(DetectorPlugin):
    """A detector of text that matches a pattern of instructions to a model."""

    name: ClassVar[str] = "instruction_patterns"
    codes: ClassVar[frozenset[str]] = frozenset({"injection_text"})
    reads_calls: ClassVar[bool] = False

    @classmethod
    def create(cls, resources: DetectorResources) -> Self:
        """Return the detector."""
        return cls()

    def prepare(self) -> None:
        """Compile the patterns."""
        matched_pattern("")

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return no finding: the detector reads results."""
        return ()

    def inspect_text(self, text: str, *, deep: bool) -> Sequence[Finding]:
        """Return a finding if the text, or with ``deep`` a decoding of it, matches a pattern."""
        pattern = matched_pattern(text, deep=deep)
        if pattern is None:
            return ()
        detail = f"the text gives a model instructions (pattern `{pattern}`)"
        return (Finding(self.name, "injection_text", detail=detail),)

    def inspect_result(self, content: Json) -> Finding | None:
        """Return a finding if the texts of a result match a pattern, or are too long."""
        text = "\n".join(strings_in_order(content))
        if len(text) > LIMIT:
            return Finding(self.name, TOO_LARGE, None, "the result is too long to search")
        pattern = matched_pattern(text, deep=True)
        if pattern is None:
            return None
        detail = f"the text gives a model instructions (pattern `{pattern}`)"
        return Finding(self.name, INJECTION, None, detail)
