"""Rule types ``provenance`` and ``private_body``: where values and text of a call came from.

Pure: no I/O.  Reason codes of ``provenance``: ``provenance_listed``, ``provenance_granted``,
``provenance_prompted``, ``provenance_established``, ``provenance_reply``,
``provenance_remembered``, ``provenance_claimed``, ``provenance_unknown``, ``provenance_tainted``,
``provenance_denied``: the weakest rung among the values the rule is about;
``selection_diverged``, ``selection_unreplayed``: it is unknown because a graph memory's selection
does not vouch for the item that it stands in;
``provenance_saturated`` where an unknown value would have been allowed, had a bound not been
reached.  Of ``private_body``: ``private_in_body``, ``private_in_pieces``, and
``too_large_to_inspect`` of a call with more text than is looked through.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from guard.core.labels import Attestation, Rung
from guard.core.policy import Action, Reason, Situation
from guard.policy.rules.base import NEVER_ALLOWED, PolicyOutline, RuleConfig, RungName
from guard.provenance.ladder import attestation_of
from guard.values.decoder import OVERFLOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import Target, TracedCall

DETAILS = {
    Rung.LISTED: "internal or on the allowlist",
    Rung.GRANTED: "granted by a human for this very call",
    Rung.PROMPTED: "named by the user",
    Rung.ESTABLISHED: "sent to before with this tool, as the user or an approval had it",
    Rung.REPLY: "the sender of a message that the user named",
    Rung.REMEMBERED: "known from memory or a result that is authenticated",
    Rung.CLAIMED: "claimed by the agent to be the user's words",
    Rung.UNKNOWN: "nothing trusted has named it",
    Rung.TAINTED: "derived from untrusted text",
    Rung.DENIED: "on the deny list",
}
"""Meaning of a rung for a value, in words."""
SELECTED: Final = {
    "selection_diverged": "it stands in a recalled item that structure of somebody who is not "
    "authenticated brought forward",
    "selection_unreplayed": "it stands in an answer of a graph memory whose selection could not be "
    "replayed",
}
"""Details by code, for what is unknown because a selection does not vouch for it."""
_TARGET: Final = itemgetter(0)
CODES: Final = {rung: f"provenance_{rung.label}" for rung in Rung}


class ProvenanceRule(RuleConfig):
    """Applies to calls with values on the given rungs of the attestation ladder.

    As everywhere, a restricting rule needs one such value and an allowing rule needs all to be
    such.  Where an allowing rule names ``unknown``, an unknown value of a principal whose labels
    reached a bound is asked about instead: it may be tainted.
    """

    codes = frozenset({*CODES.values(), *SELECTED, "provenance_saturated"})
    type: Literal["provenance"]
    rungs: Annotated[tuple[RungName, ...], Field(min_length=1)]
    """The rungs of the ladder that the rule is about."""
    of: Literal["destinations", "guarded"] = "destinations"
    """Values that it looks at: the destinations, or the guarded arguments."""
    kinds: (
        Annotated[
            tuple[Literal["mail", "url", "host", "ip", "handle", "reply", "text", "number"], ...],
            Field(min_length=1),
        ]
        | None
    ) = None
    """Only values of these kinds."""

    def guarded_kinds(self) -> frozenset[str] | None:
        """Return the kinds of guarded values that this rule looks at; None: all."""
        if self.of == "destinations":
            return frozenset()
        return None if self.kinds is None else frozenset(self.kinds)

    def match(self, situation: Situation) -> Reason | None:
        """Return why the rule applies, or None."""
        call = situation.call
        if self.of == "destinations":
            return super().match(situation)
        applies = call.guarded and self.filters_match(call.classified)
        return self.judge(situation, call.guarded) if applies else None

    def concerns(self, call: TracedCall) -> bool | None:
        """Return what the filters say of a call; about guarded values, ``match`` is asked."""
        if self.of == "guarded":
            return None if call.guarded and self.filters_match(call.classified) else False
        return self.lets_through(call)

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:  # noqa: ARG002  (the filters have looked at the call)
        """Return the reason, named after the weakest rung among the values."""
        allowing = self.effect is Action.ALLOW
        found = self._about(targets)
        if not found or (allowing and len(found) != len(targets)):
            return None
        worst, unsure = found[0][1], False
        for _, attested in found:
            unsure = unsure or attested.saturated
            if attested.rung > worst.rung:
                worst = attested
        concerned = tuple(map(_TARGET, found))
        if allowing and unsure:
            detail = "nothing trusted has named it, and it may be tainted"
            reason = self.reason("provenance_saturated", detail, concerned, worst)
            return replace(reason, action=Action.ASK)
        code, detail = CODES[worst.rung], DETAILS[worst.rung]
        if worst.why in SELECTED:
            code, detail = worst.why, SELECTED[worst.why]
        return self.reason(code, detail, concerned, worst)

    def _about(self, targets: tuple[Target, ...]) -> list[tuple[Target, Attestation]]:
        """Return the values of the rule's kinds that stand on its rungs."""
        kinds, rungs = self.kinds, self.rungs
        # INVARIANT (a bound frees nobody): of guarded values nobody is asked about unknown ones, so
        # what was not looked up, or may have been forgotten, counts as tainted.
        may_be_tainted = self.of == "guarded" and Rung.TAINTED in rungs
        found: list[tuple[Target, Attestation]] = []
        for target in targets:
            if (kinds is None or target.destination.kind in kinds) and (
                target.status not in NEVER_ALLOWED or Rung.DENIED in rungs
            ):
                known = target.attestation or attestation_of(target)
                cut_off = may_be_tainted and known.saturated and known.rung is Rung.UNKNOWN
                if known.rung in rungs or cut_off:
                    found.append((target, known))
        return found

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield allowing rules that would allow what is derived from untrusted text."""
        if self.effect is Action.ALLOW and {Rung.TAINTED, Rung.DENIED} & set(self.rungs):
            yield "a value derived from untrusted text must not be allowed; use `ask` or `block`"
        if self.effect is Action.ALLOW and self.of == "guarded":
            yield "guarded arguments can only be restricted; use `ask` or `block`"


class PrivateBodyRule(RuleConfig):
    """Applies to a send with text that a private source has returned.

    Looked through is whatever it says but whom it goes to; encodings are undone.  With ``rungs`` it
    applies to sends to whom nobody vouches for.
    """

    traces_private: ClassVar[bool] = True

    codes = frozenset({"private_in_body", "private_in_pieces", OVERFLOW})
    cannot_allow = "private text is no ground to allow a call"
    type: Literal["private_body"]
    at_least: Annotated[int, Field(ge=1)] = 1
    """Least number of passages: runs of five words, numbers or codes."""
    over_calls: Annotated[float, Field(gt=0, le=1)] | None = None
    """Applies as well where one receiver has been told so much of a private sentence or code in
    pieces, words or parts of a code, over calls and sessions; left out, pieces are not counted.
    Keys and passwords are private, whichever tool returns them."""

    def traces_pieces(self) -> bool:
        """Return whether pieces are counted."""
        return self.over_calls is not None

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason, with the call that the first passage came from."""
        private = situation.call.private
        if private is None:
            return None
        if private.record is not None and private.passages >= self.at_least:
            return self.reason(
                "private_in_body",
                "the body has text from a private source",
                targets,
                passages=private.passages,
                call=private.record.call,
                source=private.record.source,
            )
        if self.over_calls is not None and private.told >= self.over_calls:
            detail = "its receiver has been told a private text in pieces"
            return self.reason("private_in_pieces", detail, targets, share=private.told)
        if not private.complete:
            return self.reason(OVERFLOW, "it has more text than is looked through", targets)
        return None

    def problems(self, outline: PolicyOutline) -> Iterable[str]:
        """Yield a rule without a source of private text."""
        if self.over_calls is None and not any(mapping.private for mapping in outline.mappings):
            yield "no tool mapping says `private: true`, so nothing is private"
