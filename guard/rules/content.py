"""Rule type ``content``: matches calls by what stands in their arguments.  Pure: no I/O.

Secrets, account numbers, paths, text that instructs a model and data hidden in host
names, in any coding (:mod:`guard.content.leak_patterns`).  The search costs time, so it runs only
where a policy asks for it.  Secrets are found by :mod:`guard.detectors.secrets`, and can be
redacted.  Reason codes: those of what was found, and ``too_large_to_inspect``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from guard.content.account_numbers import has_seed
from guard.content.host_names import host_hides_data, questions, resolved_names
from guard.content.ignore_lists import left_out
from guard.content.leak_patterns import (
    ACCOUNT,
    CODES,
    HOST,
    INJECTION,
    OVERFLOW,
    PATH,
    SECRET,
    URL,
    find_leaks,
)
from guard.content.service_purposes import reads_prompts, without_business
from guard.content.url_parts import links_hide_data, url_hides_data
from guard.core.argument_texts import argument_texts
from guard.core.json_values import strings_in_order
from guard.core.policy import Action
from guard.destinations.canonical import read_url
from guard.provenance.ladder import was_given
from guard.rules.base import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from guard.core.calls import Target, TracedCall
    from guard.core.model import Json
    from guard.core.policy import Reason, Situation
    from guard.rules.base import PolicyOutline

LIMIT: Final = 256 * 1024
"""Characters looked through per call; what is larger is a reason of its own."""
DETECTOR: Final = "secrets"
REPLACED: Final = {"dangerous_command": "list what may run in a rule of type `program`"}
"""Finds of earlier versions, with their replacement."""


class ContentRule(RuleConfig):
    """Applies to a call whose arguments have something of what ``finds`` names."""

    can_redact: ClassVar[bool] = True
    looks_at_guarded = False
    codes = frozenset({*CODES, OVERFLOW})
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
        """The detector of secrets, where the rule asks for them."""
        return frozenset({DETECTOR} if SECRET in self.finds else ())

    def asks_who_wrote(self) -> bool:
        """Return whether URLs are looked at."""
        return URL in self.finds

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason for the first find, in the order of the rule."""
        secrets = next((f for f in situation.findings if f.code == SECRET), None)
        there = _found(situation.call, set(self.finds))
        if secrets is not None:
            there.add(SECRET)
        code = next((c for c in (*self.finds, OVERFLOW) if c in there), None)
        if code is None:
            return None
        evidence = dict(secrets.data) if secrets is not None and code == SECRET else {}
        detail = f"the arguments have {code.replace('_', ' ')}"
        reason = self.reason(code, detail, targets, **evidence)
        if code == OVERFLOW and self.effect is Action.REDACT:
            return replace(reason, action=Action.BLOCK)
        return reason

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield names of nothing that can be found, and rules that allow by a find."""
        for code in self.finds:
            if code not in CODES:
                hint = REPLACED.get(code) or f"use one of {', '.join(CODES)}"
                yield f"`{code}` cannot be found; {hint}"
        if self.effect is Action.ALLOW:
            yield "what was found is no ground to allow a call; use effect `ask` or `block`"
        if self.effect is Action.REDACT and set(self.finds) != {SECRET}:
            yield f"only `{SECRET}` can be redacted; use `ask` or `block` for the rest"


def _found(call: TracedCall, wanted: set[str]) -> set[str]:
    hosts = [target.destination.host for target in call.targets]
    return found_in_arguments(
        dict(call.call.arguments), hosts, wanted, lambda url: _was_given(call, url)
    )


def found_in_arguments(
    arguments: dict[str, Json],
    hosts: Iterable[str],
    wanted: set[str],
    given: Callable[[str], bool] = lambda _: False,
) -> set[str]:
    """Return the codes of what stands in arguments; secrets are a detector's.

    Args:
        arguments: of a call.
        hosts: that it goes to.
        wanted: codes that are looked for.
        given: whether a URL was given to whoever calls, whole.
    """
    found: set[str] = set()
    room = LIMIT
    called = list(hosts)
    asked = [*called, *questions(arguments)]
    # What a service is there for is no leak to it.  Who is called, no argument says.
    business = without_business(called)
    told = {INJECTION, PATH} if reads_prompts(called) else set()
    leaves_out = left_out(arguments)
    for text in argument_texts(arguments):
        room -= len(text.text)
        if room < 0:
            return found | {OVERFLOW}
        if "://" in text.text[:10]:
            asked += resolved_names(text.text)
        if wanted - {SECRET}:
            searched = business(text.text) if business else text.text
            excused = told | ({PATH} if text.name in leaves_out else set())
            found |= find_leaks(searched, text.name) - excused
        if URL in wanted and (
            url_hides_data(text.text) and not given(text.text)
            if "://" in text.text[:10]
            else links_hide_data(text.text)
        ):
            found.add(URL)
    if ACCOUNT in wanted and has_seed([text.lower() for text in strings_in_order(arguments)]):
        found.add(ACCOUNT)
    if any(map(host_hides_data, asked)):
        found.add(HOST)
    return found


def _was_given(call: TracedCall, url: str) -> bool:
    """Return whether a URL that the call goes to was given to its principal, whole."""
    context = call.context
    return context is not None and any(
        target.destination.kind == "url"
        and read_url(url) == target.destination
        and was_given(target.destination, context)
        for target in call.targets
    )
