"""Remedies of a verdict: the one place that makes them.  Pure: no I/O.

A tainted value is never looked up and never asked of the user: the text that named it may have
told the agent to ask.  A question to the user has no value of the call, so that nobody can answer
it with a plain yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.labels import Rung
from guard.core.policy import Action
from guard.core.remedies import NO_REMEDY, Remedy, RemedyKind
from guard.provenance.ladder import is_refused
from guard.provenance.questions import user_question

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.calls import Target, TracedCall
    from guard.core.policy import Policy, Reason, Verdict

USE: Final = "use"
ARGUMENT: Final = "argument"
"""Members of a reason's data: a value that the policy names, and the argument that gets it."""
_LOOKED_UP: Final = 3
"""Directory tools of one refusal."""
_VALUES: Final = frozenset({"provenance_claimed", "provenance_unknown", "provenance_remembered"})
"""Reason codes about values that a directory or the user can attest."""
_ACTIONS: Final = frozenset({"action_unrequested"})
_ANSWERED: Final = frozenset({"not_requested", "other_object"})
"""Causes of an unrequested action that the user can answer; a refused action stays refused."""
_UNFIT: Final = frozenset({Rung.TAINTED, Rung.DENIED})


def remedies_of(policy: Policy, traced: TracedCall, verdict: Verdict) -> tuple[Remedy, ...]:
    """Return what would help after a refusal, in the order in which to try it."""
    deciding = [one for one in verdict.reasons if one.action is verdict.action]
    found = [*_uses(deciding)]
    codes = {one.code for one in deciding}
    if not found and codes and codes <= _VALUES | _ACTIONS and not _is_tainted(traced, deciding):
        found += _attesting(policy, traced, deciding)
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


def _is_tainted(traced: TracedCall, reasons: list[Reason]) -> bool:
    """Return whether untrusted text or a denial stands behind a value of the call."""
    named = (target for one in reasons for target in one.targets)
    targets = (*traced.targets, *traced.guarded, *named)
    found = [one.attestation for one in targets if one.attestation is not None]
    if any(one.rung in _UNFIT for one in found):
        return True
    context = traced.context
    if context is None or any(is_refused(one.destination, context) for one in targets):
        return True
    # A bound was reached, so a value may be tainted.
    return any(one.saturated and one.rung is Rung.UNKNOWN for one in found)


def _attesting(policy: Policy, traced: TracedCall, reasons: list[Reason]) -> Iterator[Remedy]:
    """Yield the steps by which a directory or the user attests the values or the action."""
    values = [target for one in reasons if one.code in _VALUES for target in one.targets]
    acts = [one for one in reasons if one.code in _ACTIONS]
    if values and not acts:
        for tool in policy.index.directories[:_LOOKED_UP]:
            yield Remedy(RemedyKind.LOOK_UP, tool=tool, argument=_argument(values))
    why = traced.action.why if traced.action is not None else ""
    has_channel = traced.errand is not None and traced.errand.at > 0
    if has_channel and (not acts or why in _ANSWERED):
        kinds = tuple(dict.fromkeys(target.destination.kind for target in values))
        action = traced.action.action if traced.action is not None else ""
        question = user_question(action, kinds, role=traced.classified.role.value)
        yield Remedy(RemedyKind.ASK_USER, argument=_argument(values), question=question)


def _argument(values: list[Target]) -> str:
    """Return the path of the argument that the values come from; empty for several."""
    paths = {one.path for one in values}
    return paths.pop() if len(paths) == 1 else ""
