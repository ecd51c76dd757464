"""Evidence of detectors in results, for the rules that withhold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.metrics import ERRORS
from guard.core.model import Finding
from guard.core.policy import FAILED
from guard.core.ports import ResultDetector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from guard.core.calls import ClassifiedCall
    from guard.core.metrics import Metrics
    from guard.core.model import Json
    from guard.core.policy import Evidence, Policy
    from guard.core.ports import Detector


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
