"""Directories that a person lets one tool use: an answer for the files below.  Pure: no I/O.

INVARIANT (bound): the answer is an established record (:mod:`guard.provenance.established`) of one
principal, listener, upstream and tool.  It lifts the rule that asked about the path
(``remember: directory``), or the question about the one action on it, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.policy import Action, Policy, Verdict
from guard.provenance.lookups import folders_of
from guard.values.folders import KIND, above, of_action

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.calls import TracedCall

_UNREQUESTED: Final = "action_unrequested"
_ANSWERABLE: Final = frozenset({"not_requested", "no_prompt", "other_object"})
"""Causes of an unrequested action that an answer for a directory lifts."""


def offered(policy: Policy, traced: TracedCall, verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return the directories that an answer can cover; none if it cannot answer every reason."""
    known = folders_of(policy, traced.classified)
    found: dict[tuple[str, str], None] = {}
    for path, kind in _asked(policy, traced, verdict):
        nearest = next(iter(above(path, kind)), None)
        if nearest is None or nearest not in known:
            return ()
        found[nearest.kind, nearest.canonical] = None
    return tuple(found)


def _asked(policy: Policy, traced: TracedCall, verdict: Verdict) -> Iterator[tuple[str, str]]:
    """Yield each path that is asked about, with its kind; an empty one for any other reason."""
    call, attested = traced.call, traced.action
    rules = {one.id: one for one in policy.needs.folders if one.claims(call.tool)}
    for reason in verdict.reasons:
        if reason.action is not Action.ASK:
            continue
        rule = rules.get(reason.rule)
        if rule is not None:
            yield from ((path, KIND) for path in rule.paths(call.arguments))
        elif attested and reason.code == _UNREQUESTED and attested.why in _ANSWERABLE:
            objects = [one.destination.canonical for one in traced.classified.objects] or [""]
            yield from ((path, of_action(attested.action)) for path in objects)
        else:
            yield "", KIND
