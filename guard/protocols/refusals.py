"""Refusals as an agent reads them: a structured observation, and the same in words.  Pure: no I/O.

Structured, so that a loop can act on it: a reason code, what kind of step would help, whether to
retry, the decision id.  Never the contents of a list, never the text of the refused call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.json_values import quoted
from guard.core.policy import Action

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.errors import MessageError
    from guard.core.model import Json
    from guard.core.policy import Verdict

APPROVAL: Final = (
    "waiting for approval of {id}: a person approves it with `guard approvals grant {id}`; repeat "
    "this exact call after it was given"
)
WITHHELD: Final = frozenset(
    {
        "injection_in_result",
        "memory_contained",
        "result_too_large",
        "result_unlabelled",
        "result_unmatched",
        "selection_unmarked",
    }
)
"""Reasons that concern a result: its call did reach the tool."""
_SHOWN: Final = frozenset({"memory", "selection"})
"""Parts of a reason's data that the agent is shown as well."""
RETRIED = frozenset(
    {"audit_error", "gate_error", "guard_error", "recording_error", "write_conflict"}
)
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
    hint: str = ""
    """What the operator may have meant to set, where the request looks like something else."""
    approval: str = APPROVAL
    """How a person approves it, with ``{id}`` for the decision."""


def observation(refusal: Refusal) -> dict[str, Json]:
    """Return the structured observation of a refusal."""
    verdict = refusal.verdict
    ask = verdict.action is Action.ASK
    remedies = [refusal.hint] if refusal.hint else []
    if ask:
        remedies.append(refusal.approval.format(id=refusal.decision_id))
    reasons: list[Json] = []
    fields: dict[str, Json] = {}
    retry, code = ask, "approval_required" if ask else ""
    for reason in verdict.reasons:
        if reason.action is verdict.action:
            code = code or reason.code
            reasons.append({"code": reason.code, "rule": reason.rule})
            if reason.remedy and reason.remedy not in remedies:
                remedies.append(reason.remedy)
            for shown in _SHOWN.intersection(reason.data):
                fields.setdefault(shown, reason.data[shown])
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


def sentence(fields: Mapping[str, Json]) -> str:
    """Return an observation in words, for a model to read.

    Args:
        fields: as :func:`observation` returns them.
    """
    verb = "needs approval" if fields["decision"] == "ask" else "was refused"
    begins = f"This call {verb} by the egress guard and did not reach the tool. "
    reasons: list[str] = []
    for reason in fields["reasons"]:
        reasons.append(f"{reason['code']} ({reason['rule'] or 'guard'})")
        if reason["code"] in WITHHELD:
            begins = "This call was carried out; its result was withheld by the egress guard. "
    orders = _orders(fields["selection"]) if "selection" in fields else ""
    return (
        f"{begins}"
        f"Reason: {', '.join(reasons) or fields['code']}. {orders}"
        f"What would help: {fields['remedy']}. "
        f"Retry: {_RETRY[fields['decision'] == 'ask', fields['retry']]}. "
        f"Decision id: {fields['decision_id']}."
    )


def _orders(told: Json) -> str:
    """Return both orders of a recalled answer in words; names are a memory's, so they are quoted.

    Args:
        told: of :meth:`guard.graph_memory.comparison.Comparison.document`.
    """
    if not isinstance(told, dict) or "served" not in told:
        return ""
    writer, whose = told["writer"], ""
    if writer is not None:
        who = quoted([writer["principal"]]) if writer["principal"] else "(nobody)"
        whose = f" Structure written by principal {who}, call {writer['call']}, decides it."
    return (
        f"The memory answered: {quoted(told['served'])}. Without structure that nobody "
        f"authenticated: {quoted(told['authenticated']) or 'nothing'}. "
        f"Rose: {quoted(told['rose']) or 'nothing'}.{whose} "
    )


UNREACHABLE: Final = "upstream_unreachable"
"""Code of a request to which its server gave no answer."""
_BAD_GATEWAY: Final = 502
_TRANSIENT: Final = frozenset(
    {UNREACHABLE, "guard_error", "definitions_unchecked", "approval_required", "overloaded"}
)
"""Codes after which the same request may succeed."""
_REMEDIES: Final = {
    UNREACHABLE: "try again later; if it stays so, the operator has to start the tool server",
    "guard_error": "try again later; if it stays so, the operator finds why in the guard's log",
    "definitions_unchecked": "try again later",
    "overloaded": "try again after the time that is named; calls that come sooner only wait",
    "body_too_large": "send less at once",
    "work_exceeded": "send or request less at once",
    "port": "ask the operator to open the port in the policy's `egress.ports`",
    "private_address": "ask the operator to open the address in the policy's `egress.private`",
    "authorization_server": "the operator declares it: `guard run --authorization-server URL`",
    "bad_login": "log in again; if it stays so, the operator finds why in the guard's log",
    "token_elsewhere": "log in at this server",
    "approval_required": "repeat this exact call after a person has approved it",
    "approval_denied": NO_RETRY,
    "bad_credential": "ask the operator for a proxy credential",
}
"""What would help, by the code of what was not read; else, to write it as the error says."""


def remedy(code: str) -> str:
    """Return what would help where a message was refused with a code and not judged."""
    return _REMEDIES.get(code, "write the call another way, so that it can be read one way only")


def unreadable(error: MessageError, decision_id: str) -> dict[str, Json]:
    """Return the observation for a message that was refused without being judged."""
    fields: dict[str, Json] = {
        "decision": "block",
        "decision_id": decision_id,
        "code": error.code,
        "reasons": [{"code": error.code, "rule": ""}],
        "detail": str(error),
        "remedy": remedy(error.code),
        "retry": error.code in _TRANSIENT,
    }
    if error.retry_after:
        fields["retry_after"] = error.retry_after
    return fields


def unreadable_sentence(error: MessageError, decision_id: str) -> str:
    """Return the same in words, for a model to read."""
    begins = "This call was refused by the egress guard and did not reach the tool."
    if error.code == UNREACHABLE:
        begins = (
            "The tool server gave no answer to this call; whether it was carried out is not known."
        )
    elif error.status == _BAD_GATEWAY:
        begins = "This call reached the tool; its answer was withheld by the egress guard."
    retry = "later" if error.code in _TRANSIENT else "no"
    if error.retry_after:
        retry = f"after {error.retry_after} s"
    return (
        f"{begins} Reason: {error.code} ({error}). What would help: {remedy(error.code)}. "
        f"Retry: {retry}. Decision id: {decision_id}."
    )
