"""Rule types ``sequence`` and ``score``: judge a call by the calls before it.  Pure: no I/O.

The two gates of Leong, arXiv:2606.30566: recall-before-send, and a classifier over the counts of
the calls that came before.  Reason codes of ``sequence``: ``recall_before_send`` (a send after a
recall), ``sequence`` (every other match); of ``score``: ``prefix_score``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.core.model import ROLES, Role
from guard.core.policy import Action, Reason, Situation
from guard.policy.rules.base import PolicyOutline, RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target

CODE: Final = "prefix_score"


class SequenceRule(RuleConfig):
    """Applies to a call if a tool of one of the roles in ``after`` was called before it.

    For a restricting rule, a call that is in flight counts like an executed one (two parallel
    calls see each other), and one window of the scope is enough: the worse wins.  For an allowing
    rule only executed calls count, in every window of the scope.
    """

    codes = frozenset({"recall_before_send", "sequence"})
    type: Literal["sequence"]
    after: Annotated[tuple[Role, ...], Field(min_length=1)]
    """Roles, one of which came before."""
    scope: Literal["session", "principal", "both"] = "both"
    """Before in this session, in the principal's window, or in one of the two."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if one of the roles came before."""
        snapshot, allowing = situation.snapshot, self.effect is Action.ALLOW
        windows = {
            "session": (snapshot.session,),
            "principal": (snapshot.principal,),
            "both": (snapshot.session, snapshot.principal),
        }[self.scope]
        before: list[Role] = []
        for role in self.after:
            position, seen = ROLES.index(role), 0
            for window in windows:
                # Executed calls are asked for too: they hold even if a store lost its attempts.
                seen += window.trajectory.executed[position] > 0 or (
                    not allowing and window.possible(role) > 0
                )
            if seen == len(windows) or (seen > 0 and not allowing):
                before.append(role)
        if not before:
            return None
        is_rbs = situation.call.classified.role is Role.SEND and Role.RECALL in before
        names = ", ".join(role.value for role in before)
        detail = f"this {situation.call.classified.role.value} comes after: {names}"
        return self.reason(
            "recall_before_send" if is_rbs else "sequence",
            detail,
            targets,
            after=[role.value for role in before],
        )

    def problems(self, outline: PolicyOutline) -> Iterable[str]:
        """Yield roles in ``after`` that no tool mapping has: nothing would ever come before."""
        for role in self.after:
            if role not in outline.roles and role is not Role.OTHER:
                yield (
                    f"`after` names role `{role}`, which no tool mapping has; map a tool to it "
                    "or remove it"
                )


class ScoreRule(RuleConfig):
    """Applies to a call whose score by the model reaches the threshold.

    A send that its filters select and that has no score is an error, and so a block: a model that
    did not run must not look like a model that found nothing.
    """

    codes = frozenset({CODE})
    cannot_allow = "a score is no ground to allow a call"
    type: Literal["score"]
    model: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the model, e.g. ``prefix-13``."""
    at_least: Annotated[float, Field(gt=0, le=1)]
    """Score from which the rule applies, in (0, 1]."""

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason if the score reaches the threshold.

        Raises:
            ValueError: a send without a score, or a score that is not a probability.
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
