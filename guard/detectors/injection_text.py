"""Text that instructs a model, in what comes in: results, tool definitions, server requests.

The signals are those of ``content`` and ``result`` rules (:mod:`guard.content.injection_text`);
arguments are looked through by the former, where a policy has it.  A finding is counted, recorded,
and lowers what the text that it was found in may vouch for.  It is no verdict: half of what is
written about injection looks like one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.content.injection_text import instructs
from guard.core.model import Finding
from guard.detectors import DetectorPlugin

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from guard.core.calls import ClassifiedCall
    from guard.core.trajectory import Snapshot
    from guard.detectors import DetectorResources


INJECTION: Final = "injection_text"


class InjectionText(DetectorPlugin):
    """Finds text that gives a model orders."""

    name: ClassVar[str] = "injection_text"
    codes: ClassVar[frozenset[str]] = frozenset({INJECTION})
    reads_calls: ClassVar[bool] = False

    @classmethod
    def create(cls, resources: DetectorResources) -> Self:
        """Return the detector; it needs nothing."""
        del resources
        return cls()

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return nothing: what a call carries is the ``content`` rule's."""
        del call, snapshot
        return ()

    def inspect_text(self, text: str, *, deep: bool) -> Sequence[Finding]:
        """Return one finding where the text instructs a model."""
        if not instructs(text, deep=deep):
            return ()
        return (Finding(self.name, INJECTION, detail="the text gives a model instructions"),)
