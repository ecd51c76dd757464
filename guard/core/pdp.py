"""The policy decision point: one pure function from a situation to a verdict.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from guard.core.verdict import Action, Mode, Reason, Verdict

if TYPE_CHECKING:
    from guard.core.calls import ClassifiedCall
    from guard.core.model import Json
    from guard.core.policy import Policy, Situation


_ACTION: Final = attrgetter("action")
_RULE_AND_CODE: Final = attrgetter("rule", "code")


def decide(policy: Policy | None, situation: Situation) -> Verdict:
    """Return the verdict of a policy on a call.

    Every rule is asked, in whatever order; the worst action wins.  No policy, no rule that
    speaks for the call, an error before the decision or an error in any rule is a block.

    INVARIANT (order): the verdict does not depend on the order of the rules.
    INVARIANT (monotone): adding a rule that blocks never frees a call.
    """
    if policy is None:
        reason = Reason("no_policy", "", Action.BLOCK, "no policy is loaded")
        return Verdict(Action.BLOCK, Mode.ENFORCE, (reason,), policy="", score=situation.score)
    reasons: list[Reason] = []
    errors = list(situation.errors)
    if errors:
        reasons = [
            Reason("guard_error", "", Action.BLOCK, error, remedy="retry later") for error in errors
        ]
    for rule in policy.rules_about(situation.call):
        try:
            reason_or_none = rule.match(situation)
        except BaseException as error:  # noqa: BLE001  (a rule that raises must block)
            errors.append(f"rule `{rule.id}`: {type(error).__name__}")
            reasons.append(Reason("rule_error", rule.id, Action.BLOCK, type(error).__name__))
        else:
            if reason_or_none is not None:
                reasons.append(_answered(reason_or_none, granted=situation.granted))
    if not reasons:
        reasons.append(
            Reason(
                "no_rule_matched",
                "",
                Action.BLOCK,
                "no rule of the policy speaks for this call",
                remedy="ask the operator for a rule that covers this tool",
            )
        )
    if len(reasons) > 1:
        reasons.sort(key=_RULE_AND_CODE)
        reasons.sort(key=_ACTION, reverse=True)
    action = reasons[0].action
    return Verdict(
        action=action,
        mode=policy.mode,
        reasons=tuple(reasons),
        policy=policy.digest,
        errors=tuple(errors),
        score=situation.score,
        decided_by=tuple([r.rule for r in reasons if r.action is action and r.rule]),
    )


def decide_result(policy: Policy, call: ClassifiedCall, content: Json) -> Verdict | None:
    """Return the block of a result that a rule withholds, None where it is released.

    A rule that raises withholds.
    """
    reasons: list[Reason] = []
    errors: list[str] = []
    for rule in policy.result_rules:
        try:
            reason = rule.match_result(call, content)
        except BaseException as error:  # noqa: BLE001  (a rule that raises must block)
            errors.append(f"rule `{rule.id}`: {type(error).__name__}")
            reason = Reason("rule_error", rule.id, Action.BLOCK, type(error).__name__)
        if reason is not None:
            reasons.append(reason)
    if not reasons:
        return None
    return Verdict(
        action=Action.BLOCK,
        mode=policy.mode,
        reasons=tuple(reasons),
        policy=policy.digest,
        errors=tuple(errors),
        decided_by=tuple(reason.rule for reason in reasons),
    )


def _answered(reason: Reason, *, granted: bool) -> Reason:
    """Return the reason as it counts: a human's grant answers what a rule would ask, once."""
    if granted and reason.action is Action.ASK:
        return replace(reason, code="granted", action=Action.ALLOW)
    return reason
