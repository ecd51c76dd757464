"""Rule types ``content`` and ``result``: what detectors find in arguments and results.

The search reads every coding that a service decodes (:mod:`guard.values.decoder`). It costs time,
so it runs only where a policy needs it. The detector ``secrets`` finds secrets, which can be
redacted. Reason codes: those of the findings, and ``too_large_to_inspect``.  Pure: no I/O.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from guard.core.argument_texts import argument_texts
from guard.core.json_values import strings_in_order
from guard.core.policy import FAILED, INJECTION, TOO_LARGE, Action, Evidence, Reason, Situation
from guard.policy.rules.base import PolicyOutline, RuleConfig
from guard.values.account_numbers import ACCOUNT, has_account, has_seed
from guard.values.decoder import OVERFLOW, content_readings
from guard.values.secret_rules import SECRET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guard.core.calls import ClassifiedCall, Target
    from guard.core.model import Json


CODES: Final = (SECRET, ACCOUNT)
LIMIT: Final = 256 * 1024
"""Maximum characters searched per call; a larger call is a reason of its own."""
DETECTOR: Final = "secrets"
REMOVED_FINDINGS: Final = {
    "dangerous_command": "list the programs in a rule of type `program`",
    "sensitive_path": "use a rule `argument` with the paths that the tool may read",
    "injection_text": "use a detector of instructions, or rely on provenance",
    "hidden_in_host": "use a rule `capacity`",
    "hidden_in_url": "use a rule `capacity`",
    "nested_encoding": "use a rule `capacity`; secrets are found in nested codings",
}
"""Findings of earlier versions, and their replacement."""


class ContentRule(RuleConfig):
    """Rule about calls whose arguments contain something that ``finds`` names."""

    can_redact: ClassVar[bool] = True
    codes = frozenset({*CODES, OVERFLOW})
    cannot_allow = "a finding cannot allow a call"
    type: Literal["content"]
    finds: Annotated[
        list[str],
        Field(
            min_length=1,
            description=f"What to search the arguments for; any of {', '.join(CODES)}.",
        ),
    ]

    @property
    def detectors(self) -> frozenset[str]:
        """The detector of secrets, if the rule needs it."""
        return frozenset({DETECTOR} if SECRET in self.finds else ())

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason for the first finding, in the order of the rule."""
        secrets = next((f for f in situation.findings if f.code == SECRET), None)
        found = found_in_arguments(dict(situation.call.call.arguments), set(self.finds))
        if secrets is not None:
            found.add(SECRET)
        code = next((c for c in (*self.finds, OVERFLOW) if c in found), None)
        if code is None:
            return None
        evidence = dict(secrets.data) if secrets is not None and code == SECRET else {}
        detail = f"the arguments have {code.replace('_', ' ')}"
        reason = self.reason(code, detail, targets, **evidence)
        if code == OVERFLOW and self.effect is Action.REDACT:
            return replace(reason, action=Action.BLOCK)
        return reason

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (mappings do not matter)
        """Yield unknown findings, and effects that do not fit."""
        for code in self.finds:
            if code in REMOVED_FINDINGS:
                replacement = REMOVED_FINDINGS[code]
                yield (
                    f"`{code}` is no longer searched for; {replacement}; "
                    "`guard policy migrate` removes it"
                )
            elif code not in CODES:
                yield f"unknown finding `{code}`; use one of {', '.join(CODES)}"
        if self.effect is Action.REDACT and set(self.finds) != {SECRET}:
            yield f"only `{SECRET}` can be redacted; use `ask` or `block` for the rest"


def found_in_arguments(arguments: dict[str, Json], wanted: set[str]) -> set[str]:
    """Return the codes of findings in arguments, without secrets, which a detector finds."""
    found: set[str] = set()
    room = LIMIT
    for text in argument_texts(arguments):
        room -= len(text.text)
        if room < 0:
            return found | {OVERFLOW}
        readings = content_readings(text.named)
        if not readings.complete:
            found.add(OVERFLOW)
        if ACCOUNT in wanted - found and any(map(has_account, readings.texts)):
            found.add(ACCOUNT)
    # A seed may be a list of words.
    if ACCOUNT in wanted and has_seed([text.lower() for text in strings_in_order(arguments)]):
        found.add(ACCOUNT)
    return found


REMOVED: Final = "injection_text"
"""Name of the removed reader; policies from before it was removed mean it by default."""


class ResultRule(RuleConfig):
    """Applies to a result in which a detector finds instructions, or which none can search."""

    codes = frozenset({INJECTION, TOO_LARGE, FAILED})
    type: Literal["result"]
    finds: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Detectors that search the results: `instruction_patterns`, or the name "
            "that `guard detectors add` was given.",
        ),
    ] = (REMOVED,)

    @property
    def detectors(self) -> frozenset[str]:
        """The detectors that the rule names."""
        return frozenset(self.finds)

    def match(self, situation: Situation) -> Reason | None:  # noqa: ARG002  (a rule about results)
        """Return None: the rule does not judge calls."""
        return None

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:  # noqa: ARG002  (as above)
        """Return None, as for :meth:`match`."""
        return None

    def asks(self, call: ClassifiedCall) -> frozenset[str]:
        """Return the detectors that search the result of a call."""
        return self.detectors if self.filters_match(call) else frozenset()

    def match_result(self, call: ClassifiedCall, evidence: Evidence) -> Reason | None:
        """Return the reason of the first finding, or None.

        Raises:
            KeyError: a detector was not asked; the result is withheld then.
        """
        for name in self.finds if self.filters_match(call) else ():
            found = evidence[name]
            if found is not None:
                return self.reason(found.code, found.detail, ())
        return None

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield effects that a result cannot have, and filters that concern calls."""
        if self.effect is not Action.BLOCK:
            yield "a result is withheld or released; use effect `block`"
        if self.status is not None or self.rungs is not None:
            yield "a result has no destinations; remove `status` and `rungs`"
