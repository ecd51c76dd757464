"""Texts of a question to a person: no codes, paths or identifiers of the guard in a sentence."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from guard.provenance.approvals import ApprovalRequest, AskedCall

REASONS: Final = {
    "listed": "the policy lists it",
    "granted": "a person has approved it",
    "prompted": "the user named it",
    "established": "a person has approved it before",
    "reply": "it answers somebody who wrote first",
    "remembered": "it comes from a memory, and no trusted source confirms it",
    "claimed": "only the text of its own sender names it",
    "unknown": "nothing on record says where it comes from",
    "tainted": "it appears in text that an outsider can write",
    "denied": "the user or the operator has denied it",
}
"""Reason in words by rung of the attestation ladder."""
ACTIONS: Final = {
    "send": "send {}",
    "pay": "pay {}",
    "buy": "buy {}",
    "share": "share {}",
    "invite": "invite somebody to {}",
    "publish": "publish {}",
    "delete": "delete {}",
    "overwrite": "change {}",
    "change_access": "change who has access to {}",
    "change_credential": "change the password or key of {}",
    "change_setting": "change the settings of {}",
    "execute": "run {}",
    "schedule": "schedule {}",
    "react": "react to {}",
}
"""Verb and place of the object by action."""
CAUSES: Final = {
    "not_requested": "Nobody asked for this in the session.",
    "no_prompt": "No request of the user is known.",
    "other_object": "The user asked for this on something else.",
    "refused": "The user said not to do this.",
    "tainted": "Only text that an outsider can write names it.",
}
"""Sentence by cause of an action that nobody requested."""
NAMED: Final = 3
"""Number of receivers in a sentence."""


def request_document(asked: ApprovalRequest) -> dict[str, Any]:
    """Return a request as JSON values, with its question and the reason of each receiver."""
    document = {**asdict(asked), "decision": asked.decision}
    for call, shown in zip(asked.calls, document["calls"], strict=True):
        shown["question"] = question(asked.principal, call)
        for one in shown["receivers"]:
            one["reason"] = REASONS.get(one["rung"], "it was not traced")
    return document


def question(principal: str, call: AskedCall) -> str:
    """Return what one call does: principal, tool and receivers, and a change nobody requested."""
    names = [one.receiver for one in call.receivers[:NAMED]]
    more = len(call.receivers) + call.more - len(names)
    reach = ", ".join([*names, *([f"{more} more"] if more else [])])
    who = principal or "An agent without a proven name"
    cause = CAUSES.get(call.change.get("why", ""))
    if cause is None:
        return f"{who} wants to call {call.tool}{f' and reach {reach}' if reach else ''}."
    named = " ".join(call.change["object"].replace("`", "'").split())
    act = ACTIONS[call.change["action"]].format(f"`{named}`" if named else "something")
    return f"{who} wants to {act} with {call.tool}{f' and reach {reach}' if reach else ''}. {cause}"
