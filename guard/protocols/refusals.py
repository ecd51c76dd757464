"""What an agent reads when a call of it is refused.  Pure: no I/O.

Structured, so that a loop can act on it: a reason code, what kind of step would help, whether to
retry, the decision id.  Never the contents of a list, never the text of the refused call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.policy import Action

if TYPE_CHECKING:
    from guard.core.errors import MessageError
    from guard.core.model import Json
    from guard.core.policy import Verdict

APPROVAL: Final = (
    "waiting for approval of {id}: a person approves it with `guard approvals grant {id}`; repeat "
    "this exact call after it was given"
)
WITHHELD: Final = frozenset(
    {"injection_in_result", "memory_contained", "result_too_large", "result_unmatched"}
)
"""Reasons that concern a result: its call did reach the tool."""
RETRIED = frozenset({"guard_error", "gate_error", "write_conflict"})
NO_RETRY = "do not retry the same call"
_RETRY: Final = {
    (True, True): "after it was approved",
    (False, True): "later",
    (False, False): "no",
}
"""In words, by whether a person is asked and whether the same call may succeed later."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one call of a message does not go out."""

    decision_id: str
    verdict: Verdict


def observation(refusal: Refusal) -> dict[str, Json]:
    """Return the structured observation of a refusal."""
    verdict = refusal.verdict
    ask = verdict.action is Action.ASK
    remedies = [APPROVAL.format(id=refusal.decision_id)] if ask else []
    reasons: list[Json] = []
    fields: dict[str, Json] = {}
    retry, code = ask, "approval_required" if ask else ""
    for reason in verdict.reasons:
        if reason.action is verdict.action:
            code = code or reason.code
            reasons.append({"code": reason.code, "rule": reason.rule})
            if reason.remedy and reason.remedy not in remedies:
                remedies.append(reason.remedy)
            if "memory" in reason.evidence:
                fields.setdefault("memory", reason.evidence["memory"])
            retry = retry or reason.code in RETRIED
    fields |= {
        "decision": verdict.action.label,
        "decision_id": refusal.decision_id,
        "code": code or "refused",
        "reasons": reasons,
        "remedy": "; ".join(remedies) or NO_RETRY,
        "retry": retry,
    }
    return fields


def sentence(refusal: Refusal) -> str:
    """Return the refusal in words, for a model to read."""
    fields = observation(refusal)
    verb = "needs approval" if fields["decision"] == "ask" else "was refused"
    begins = f"This call {verb} by the egress guard and did not reach the tool. "
    reasons: list[str] = []
    for reason in fields["reasons"]:
        reasons.append(f"{reason['code']} ({reason['rule'] or 'guard'})")
        if reason["code"] in WITHHELD:
            begins = "This call was carried out; its result was withheld by the egress guard. "
    return (
        f"{begins}"
        f"Reason: {', '.join(reasons) or fields['code']}. What would help: {fields['remedy']}. "
        f"Retry: {_RETRY[fields['decision'] == 'ask', fields['retry']]}. "
        f"Decision id: {fields['decision_id']}."
    )


def unreadable(error: MessageError, decision_id: str) -> dict[str, Json]:
    """Return the observation for a request that could not be read one way only."""
    return {
        "decision": "block",
        "decision_id": decision_id,
        "code": error.code,
        "reasons": [{"code": error.code, "rule": ""}],
        "remedy": str(error),
        "retry": False,
    }
