"""All or none: a message with a refused call is refused, a redacted one is written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.policy import Action, Reason
from guard.pipeline.redaction import redaction_failed, rewrite_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.policy import Verdict
    from guard.pipeline.call_judge import PendingCall
    from guard.pipeline.redaction import Rewrite

BATCH_REFUSED: Final = Reason(
    "batch_refused",
    "",
    Action.BLOCK,
    "another call of the same batch was refused",
    remedy="send this call on its own",
)


def as_one_message(calls: list[PendingCall], rewrite: Rewrite | None) -> list[PendingCall]:
    """Return the calls of a message, rewritten; if one is refused, all are."""
    if any(one.verdict.enforced is Action.REDACT for one in calls):
        calls = _rewritten(calls, rewrite)
    if all_forward(one.verdict for one in calls):
        return calls
    return [one._replace(verdict=refused_with_others(one.verdict)) for one in calls]


def all_forward(verdicts: Iterable[Verdict]) -> bool:
    """Return True if no verdict refuses its call."""
    return all(verdict.enforced.forwards for verdict in verdicts)


def refused_with_others(verdict: Verdict) -> Verdict:
    """Return the verdict on a call of a refused message."""
    return verdict.blocked(BATCH_REFUSED) if verdict.enforced.forwards else verdict


def _rewritten(calls: list[PendingCall], rewrite: Rewrite | None) -> list[PendingCall]:
    """Return the calls of a rewritten message; redacted calls are refused if that fails."""
    if not all_forward(one.verdict for one in calls):
        return calls
    redacted = [one.verdict.enforced is Action.REDACT for one in calls]
    arguments = [
        one.call.call.arguments if changed else None
        for one, changed in zip(calls, redacted, strict=True)
    ]
    try:
        rewrite_message(rewrite, arguments)
    except Exception:  # noqa: BLE001  (a message that could not be rewritten must not go out)
        return [
            one._replace(verdict=redaction_failed(one.verdict)) if changed else one
            for one, changed in zip(calls, redacted, strict=True)
        ]
    return calls
