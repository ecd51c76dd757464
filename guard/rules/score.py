"""Rule type ``score``: speaks for calls by the score a model gave them.  Pure: no I/O.

Reason code: ``prefix_score``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.core.model import Role
from guard.core.policy import Action
from guard.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target
    from guard.core.policy import Reason, Situation
    from guard.rules.base import PolicyOutline

CODE: Final = "prefix_score"


class ScoreRule(RuleConfig):
    """Applies to a call whose score by the model reaches the threshold.

    A send that its filters select and that has no score is an error, and so a block: a model that
    did not run must not look like a model that found nothing.
    """

    looks_at_guarded = False
    codes = frozenset({CODE})
    type: Literal["score"]
    model: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the model, e.g. ``prefix-13``."""
    at_least: float
    """In (0, 1]."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the score reaches the threshold.

        Raises:
            ValueError: a send without a score, or a score that is no probability.
        """
        scores: list[float | None] = []
        for finding in situation.findings:
            if finding.code == CODE and finding.data.get("model") == self.model:
                scores.append(finding.score)
        if not scores:
            if situation.call.classified.role is Role.SEND:
                raise ValueError(f"model `{self.model}` gave this send no score")
            return None
        worst = -1.0
        for score in scores:
            if score is None or not 0.0 <= score <= 1.0:
                raise ValueError(f"model `{self.model}` gave a score outside 0 to 1")
            worst = max(worst, score)
        if worst < self.at_least:
            return None
        detail = f"score {worst:.3f} of model {self.model} reaches {self.at_least}"
        return self.reason(CODE, detail, targets, score=worst, model=self.model)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield thresholds that no score or every score reaches, and rules that allow by score."""
        if not 0.0 < self.at_least <= 1.0:
            yield f"`at_least` is {self.at_least}, but scores lie between 0 and 1; e.g. 0.5"
        if self.effect is Action.ALLOW:
            yield "a score is no ground to allow a call; use effect `ask` or `block`"
