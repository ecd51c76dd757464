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
    """Return the sentence about one call: principal, tool and receivers."""
    names = [one.receiver for one in call.receivers[:NAMED]]
    more = len(call.receivers) + call.more - len(names)
    reach = ", ".join([*names, *([f"{more} more"] if more else [])])
    who = principal or "An agent without a proven name"
    return f"{who} wants to call {call.tool}{f' and reach {reach}' if reach else ''}."
