"""Requests for approval and remembered answers as JSON values for console, API and commands."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from guard.provenance.questions import deed, questioned, receiver_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.provenance.approvals import ApprovalRequest


def request_document(asked: ApprovalRequest) -> dict[str, Any]:
    """Return a request with its question and the reason of each recipient."""
    document = {
        **asdict(asked),
        "decision": asked.decision,
        "tainted": asked.tainted,
        "question": questioned([asked]).document(),
    }
    for call, shown in zip(asked.calls, document["calls"], strict=True):
        shown["deed"] = deed(call)
        for one, receiver in zip(call.receivers, shown["receivers"], strict=True):
            receiver["reason"] = receiver_reason(one)
    return document


def errand_documents(groups: Sequence[Sequence[ApprovalRequest]]) -> list[dict[str, Any]]:
    """Return one question per group of requests, with the decisions that it is about.

    Requests with a tainted recipient are listed apart: no answer to the group includes them.
    """
    found: list[dict[str, Any]] = []
    for number, group in enumerate(groups):
        plain = [one for one in group if not one.tainted] or [group[0]]
        apart = [one for one in group if one not in plain]
        found.append(
            {
                "group": number,
                "question": questioned(plain).document(),
                "decisions": [one.decision for one in plain],
                "apart": [one.decision for one in apart],
            }
        )
    return found
