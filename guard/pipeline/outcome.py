"""Request and outcome of one judgement, and the redaction of calls, exactly or not at all.

Pure: no I/O.

INVARIANT (nothing left): what is forwarded has been looked at and judged again, and allowed.
INVARIANT (same receiver): a redaction changes no destination and no link.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from guard.core.argument_texts import without_spans
from guard.core.errors import MessageError
from guard.core.policy import Action, Policy, Reason, Situation, Verdict, decide
from guard.pipeline.classification import classify
from guard.provenance.remedies import remedies_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from guard.core.calls import ClassifiedCall, TracedCall
    from guard.core.model import Finding, Json, ToolCall

    Rewrite: TypeAlias = Callable[[Sequence[Mapping[str, Json] | None]], None]
    """Puts other arguments into the message that is about to be forwarded, one entry per call and
    None for what stays; raises MessageError where it cannot be done exactly."""


class JudgeRequest(NamedTuple):
    """The calls of one message, which is forwarded whole or not at all."""

    calls: Sequence[ToolCall]
    rewrite: Rewrite | None = None
    """Writes redacted arguments into the message; without it a redaction is a block."""


class JudgedCall(NamedTuple):
    """A call with its verdict, on record."""

    call: TracedCall
    verdict: Verdict


class PendingCall(NamedTuple):
    """A call with its verdict, before it is recorded."""

    call: TracedCall
    verdict: Verdict
    seconds: float
    """Time from the parsed call to the verdict."""


class Outcome(tuple[JudgedCall, ...]):
    """The judged calls of one request, in the order of the request."""

    __slots__ = ()

    @property
    def forwards(self) -> bool:
        """True if the message may be forwarded."""
        return all(judged.verdict.enforced.forwards for judged in self)


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


def redact(
    policy: Policy,
    situation: Situation,
    verdict: Verdict,
    detect: Callable[[ClassifiedCall], Sequence[Finding]],
) -> tuple[TracedCall, Verdict]:
    """Return the call without what the verdict says to redact, or as it is, refused.

    Args:
        policy: the policy in force.
        situation: what was judged.
        verdict: an action ``redact``.
        detect: finds again in the redacted call; may raise, which blocks the call.
    """
    whole = situation.call
    codes = {reason.code for reason in verdict.reasons if reason.action is Action.REDACT}
    spans = [s for finding in situation.findings if finding.code in codes for s in finding.spans]
    arguments = without_spans(dict(whole.call.arguments), spans)
    again = classify(policy, replace(whole.call, arguments=arguments))
    clean = replace(whole, classified=replace(whole.classified, call=again.call, body=again.body))
    if not spans or _receivers(again) != _receivers(whole.classified):
        return whole, redaction_failed(verdict)
    rest = decide(policy, replace(situation, call=clean, findings=tuple(detect(clean.classified))))
    return (clean, verdict) if rest.action is Action.ALLOW else (whole, redaction_failed(verdict))


def rewrite_message(
    rewrite: Rewrite | None, arguments: Sequence[Mapping[str, Json] | None]
) -> None:
    """Put other arguments into a message.

    Args:
        rewrite: None where the way the message came has no such thing.
        arguments: one entry per call, None for what stays.

    Raises:
        MessageError: it cannot be done.
    """
    if rewrite is None:
        raise MessageError("redaction_failed", "messages of this kind are not rewritten")
    rewrite(arguments)


def redaction_failed(verdict: Verdict) -> Verdict:
    """Return the refusal of a call that cannot be redacted exactly."""
    reason = Reason(
        "redaction_failed",
        "",
        Action.BLOCK,
        "what was found cannot be replaced exactly",
        remedy="leave it out and send the call again",
    )
    return replace(verdict, action=Action.BLOCK, reasons=(reason, *verdict.reasons), decided_by=())


def _receivers(call: ClassifiedCall) -> list[tuple[str, str, str]]:
    """Return who receives the call and what it links to; a whole text is what may change."""
    return [
        (target.destination.kind, target.destination.canonical, target.path)
        for target in (*call.targets, *call.guarded)
        if target.destination.kind not in {"text", "number"}
    ]


def with_remedies(policy: Policy | None, traced: TracedCall, verdict: Verdict) -> Verdict:
    """Return a refusal with what would change it."""
    if policy is None or verdict.enforced.forwards:
        return verdict
    return replace(verdict, remedies=remedies_of(policy, traced, verdict))
