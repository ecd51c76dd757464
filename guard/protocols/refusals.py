"""Refusals as an agent reads them: a structured observation, and the same in words.  Pure: no I/O.

Structured, so that a loop can act on it: a reason code, what kind of step would help, whether to
retry, the decision id.  Never the contents of a list, never the text of the refused call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.errors import Fate, MessageError
from guard.core.json_values import quoted
from guard.core.policy import Action, Verdict
from guard.core.remedies import NO_REMEDY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json

APPROVAL: Final = (
    "waiting for approval of {id}: a person approves it with `guard approvals grant {id}`; repeat "
    "this exact call after it was given"
)
BEGINS: Final = {
    Fate.NOT_SENT: "This call {verb} by the egress guard and did not reach the tool.",
    Fate.WITHHELD: "This call reached the tool; its result was withheld by the egress guard.",
    Fate.UNKNOWN: "This call got no result; whether the tool carried it out is not known.",
}
"""The first sentence of a refusal, by what became of the request."""
_REPEATED: Final = {
    Fate.WITHHELD: "a repeated call would be carried out a second time",
    Fate.UNKNOWN: "check first: a repeated call may be carried out a second time",
}
"""Warning to an agent before it repeats such a call."""
_SHOWN: Final = frozenset({"memory", "selection"})
"""Parts of a reason's data that the agent is shown as well."""
RETRIED = frozenset(
    {"audit_error", "gate_error", "guard_error", "recording_error", "write_conflict"}
)
NO_RETRY = "do not retry the same call"
_RETRY: Final = {
    (True, True): "after it was approved",
    (True, False): "no",
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
    """Setting that the operator may have meant, where the request looks like something else."""
    fate: Fate = Fate.NOT_SENT
    """Fate of the request."""
    approval: str = APPROVAL
    """Instruction to approve it, with ``{id}`` for the decision."""


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
    steps = verdict.remedies
    if refusal.fate is not Fate.NOT_SENT:
        # No step helps after a call that was carried out.
        retry, steps = False, NO_REMEDY
        remedies.append(_REPEATED[refusal.fate])
    fields |= {
        "decision": verdict.action.label,
        "decision_id": refusal.decision_id,
        "code": code or "refused",
        "reasons": reasons,
        "remedy": "; ".join(remedies) or NO_RETRY,
        "remedies": [one.document() for one in steps],
        "request": refusal.fate.value,
        "retry": retry,
    }
    return fields


def sentence(fields: Mapping[str, Json]) -> str:
    """Return an observation in words, for a model to read.

    Args:
        fields: as :func:`observation` returns them.
    """
    verb = "needs approval" if fields["decision"] == "ask" else "was refused"
    begins = BEGINS[Fate(fields["request"])].format(verb=verb)
    reasons = [f"{reason['code']} ({reason['rule'] or 'guard'})" for reason in fields["reasons"]]
    orders = _orders(fields["selection"]) if "selection" in fields else ""
    return (
        f"{begins} "
        f"Reason: {', '.join(reasons) or fields['code']}. {orders}"
        f"What would help: {fields['remedy']}. {_steps(fields['remedies'])}"
        f"Retry: {_RETRY[fields['decision'] == 'ask', fields['retry']]}. "
        f"Decision id: {fields['decision_id']}."
    )


_STEPS: Final = {
    "look_up": "call `{tool}` and use its entry for `{argument}`",
    "ask_user": "ask the user: “{question}”",
    "use": "use `{value}` for `{argument}`",
}


def _steps(remedies: Json) -> str:
    """Return the steps that an agent can take by itself, in words."""
    said = [
        _STEPS[one["kind"]].format_map({"argument": "the argument", **one})
        for one in remedies
        if one["kind"] in _STEPS
    ]
    return f"Try in this order: {'; '.join(said)}. " if said else ""


def _orders(comparison: Json) -> str:
    """Return both orders of a recalled answer in words; names are a memory's, so they are quoted.

    Args:
        comparison: of :meth:`guard.extensions.graph_memory.comparison.Comparison.document`.
    """
    if not isinstance(comparison, dict) or "served" not in comparison:
        return ""
    writer, whose = comparison["writer"], ""
    if writer is not None:
        who = quoted([writer["principal"]]) if writer["principal"] else "(nobody)"
        whose = f" Structure written by principal {who}, call {writer['call']}, decides it."
    return (
        f"The memory answered: {quoted(comparison['served'])}. Without structure that nobody "
        f"authenticated: {quoted(comparison['authenticated']) or 'nothing'}. "
        f"Rose: {quoted(comparison['rose']) or 'nothing'}.{whose} "
    )


UNREACHABLE: Final = "upstream_unreachable"
"""Code of a request to which its server gave no answer."""
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
"""Remedies by the code of the content that was not read; else, to write it as the error says."""


def unanswered(message: str) -> MessageError:
    """Return the error of a request that was sent, or begun, and got no answer."""
    return MessageError(UNREACHABLE, message, status=502, fate=Fate.UNKNOWN)


def remedy(code: str) -> str:
    """Return what would help where a message was refused with a code and not judged."""
    return _REMEDIES.get(code, "write the call another way, so that it can be read one way only")


def _remedy_of(error: MessageError) -> str:
    """Return what would help, with what a repeated call would do where this one was sent."""
    if error.fate is Fate.NOT_SENT:
        return remedy(error.code)
    helps = _REMEDIES.get(error.code, "") if error.fate is Fate.UNKNOWN else ""
    return "; ".join(filter(None, (helps, _REPEATED[error.fate])))


def _may_repeat(error: MessageError) -> bool:
    return error.fate is not Fate.WITHHELD and error.code in _TRANSIENT


def unreadable(error: MessageError, decision_id: str) -> dict[str, Json]:
    """Return the observation for a message that was refused without being judged."""
    fields: dict[str, Json] = {
        "decision": "block",
        "decision_id": decision_id,
        "code": error.code,
        "reasons": [{"code": error.code, "rule": ""}],
        "detail": str(error),
        "remedy": _remedy_of(error),
        "remedies": [one.document() for one in NO_REMEDY],
        "request": error.fate.value,
        "retry": _may_repeat(error),
    }
    if error.retry_after:
        fields["retry_after"] = error.retry_after
    return fields


def unreadable_sentence(error: MessageError, decision_id: str) -> str:
    """Return the same in words, for a model to read."""
    begins = BEGINS[error.fate].format(verb="was refused")
    retry = "later" if _may_repeat(error) else "no"
    if error.retry_after:
        retry = f"after {error.retry_after} s"
    return (
        f"{begins} Reason: {error.code} ({error}). What would help: {_remedy_of(error)}. "
        f"Retry: {retry}. Decision id: {decision_id}."
    )
