"""Remedies of a verdict: the one place that makes them.  Pure: no I/O.

A tainted value is never asked of the user: the text that named it may have told the agent to ask.
A question to the user has no value of the call, so that nobody can answer
it with a plain yes.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.labels import Context, Rung
from guard.core.model import DestinationStatus
from guard.core.policy import Action, Policy, Reason, Verdict
from guard.core.remedies import NO_REMEDY, Remedy, RemedyKind
from guard.provenance.ladder import is_refused
from guard.provenance.questions import user_question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.calls import Target, TracedCall

USE: Final = "use"
ARGUMENT: Final = "argument"
"""Members of a reason's data: a value that the policy names, and the argument that gets it."""
_LOOKED_UP: Final = 3
"""Directory tools of one refusal."""
_VALUES: Final = frozenset({"provenance_claimed", "provenance_unknown", "provenance_remembered"})
"""Reason codes about values that a directory or the user can attest."""
_LOOKS_UP: Final = _VALUES | {"provenance_tainted"}
"""Likewise for a directory alone: only its owner writes it, so no order has an entry in it."""
_ACTIONS: Final = frozenset({"action_unrequested"})
_ANSWERED: Final = frozenset({"not_requested", "other_object"})
"""Causes of an unrequested action that the user can answer; a refused action stays refused."""
_OF_SERVICE: Final = frozenset({"handle"})
"""Kinds whose values belong to one service."""


def remedies_of(policy: Policy, traced: TracedCall, verdict: Verdict) -> tuple[Remedy, ...]:
    """Return what would help after a refusal, in the order in which to try it."""
    deciding = [one for one in verdict.reasons if one.action is verdict.action]
    found = [*_uses(deciding)]
    codes = {one.code for one in deciding}
    context = traced.context
    if not found and codes and context is not None and not _is_refused(traced, deciding, context):
        found += _looked_up(policy, traced, deciding)
        found += _asked(traced, deciding)
    if verdict.action is Action.ASK:
        found.append(Remedy(RemedyKind.AWAIT_APPROVAL))
    return tuple(found) or NO_REMEDY


def _uses(reasons: list[Reason]) -> list[Remedy]:
    """Return the values that the policy names, if every reason names one."""
    if not reasons or not all(USE in one.data for one in reasons):
        return []
    return [
        Remedy(RemedyKind.USE, argument=one.data.get(ARGUMENT, ""), value=str(one.data[USE]))
        for one in reasons
    ]


def _targets(traced: TracedCall, reasons: list[Reason]) -> list[Target]:
    named = (target for one in reasons for target in one.targets)
    return [*traced.targets, *traced.guarded, *named]


def _is_refused(traced: TracedCall, reasons: list[Reason], context: Context) -> bool:
    """Return whether the user or the policy has denied a value of the call."""
    return any(
        one.status is DestinationStatus.DENIED or is_refused(one.destination, context)
        for one in _targets(traced, reasons)
    )


def _is_tainted(traced: TracedCall, reasons: list[Reason]) -> bool:
    """Return whether untrusted text names a value of the call, or may have named it."""
    targets = _targets(traced, reasons)
    found = [one.attestation for one in targets if one.attestation is not None]
    # A bound was reached, so a value may be tainted.
    return any(
        one.rung is Rung.TAINTED or (one.saturated and one.rung is Rung.UNKNOWN) for one in found
    )


def _looked_up(policy: Policy, traced: TracedCall, reasons: list[Reason]) -> Iterator[Remedy]:
    """Yield the directories that may have the values; an outsider can write none of them."""
    if not all(one.code in _LOOKS_UP for one in reasons):
        return
    values = [target for one in reasons for target in one.targets]
    for tool in _directories(policy, traced, {one.destination.kind for one in values}):
        yield Remedy(RemedyKind.LOOK_UP, tool=tool, argument=_argument(values))


def _asked(traced: TracedCall, reasons: list[Reason]) -> Iterator[Remedy]:
    """Yield the question by whose answer the user attests the values or the action."""
    has_channel = traced.errand is not None and traced.errand.at > 0
    if not all(one.code in _VALUES | _ACTIONS for one in reasons) or not has_channel:
        return
    why = traced.action.why if traced.action is not None else ""
    if any(one.code in _ACTIONS for one in reasons) and why not in _ANSWERED:
        return
    if _is_tainted(traced, reasons):
        return
    values = [target for one in reasons if one.code in _VALUES for target in one.targets]
    kinds = tuple(dict.fromkeys(target.destination.kind for target in values))
    mapping = traced.classified.mapping
    action = "" if mapping is None or mapping.action is None else mapping.action.name
    question = user_question(action, kinds, role=traced.classified.role.value)
    yield Remedy(RemedyKind.ASK_USER, argument=_argument(values), question=question)


def _directories(policy: Policy, traced: TracedCall, kinds: set[str]) -> Iterator[str]:
    """Yield the directory tools whose values may be the recipients, of the call's service first."""
    mapping = traced.classified.mapping
    service = mapping.service if mapping is not None else ""
    found = (
        one
        for one in policy.index.directories
        if (not one.kinds or kinds <= one.kinds)
        and (one.service == service or kinds.isdisjoint(_OF_SERVICE))
    )
    names = dict.fromkeys(one.tool for one in sorted(found, key=lambda one: one.service != service))
    yield from islice(names, _LOOKED_UP)


def _argument(values: list[Target]) -> str:
    """Return the path of the argument that the values come from; empty for several."""
    paths = {one.path for one in values}
    return paths.pop() if len(paths) == 1 else ""
