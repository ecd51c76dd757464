"""Rule type ``content``: speaks for calls by what stands in their arguments.  Pure: no I/O.

Secrets, account numbers, commands, paths, text that instructs a model and data hidden in host
names, in any coding (:mod:`guard.core.leak_patterns`).  The search costs time, so it runs only
where a policy asks for it.  Reason codes: those of what was found, and ``too_large_to_inspect``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from guard.core.leak_patterns import CODES, HOST, find_leaks, hides_data
from guard.core.verdict import Action
from guard.rules import RuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.model import ClassifiedCall, Json, Target
    from guard.core.policy import Situation
    from guard.core.verdict import Reason
    from guard.rules import PolicyOutline

LIMIT: Final = 256 * 1024
"""Characters looked through per call; what is larger is a reason of its own."""
OVERFLOW: Final = "too_large_to_inspect"


class ContentRule(RuleConfig):
    """Applies to a call whose arguments have something of what ``finds`` names."""

    type: Literal["content"]
    finds: Annotated[
        list[str],
        Field(
            min_length=1,
            description=f"What to search the arguments for; any of {', '.join(CODES)}.",
        ),
    ]

    def judge(self, situation: Situation, targets: tuple[Target, ...]) -> Reason | None:
        """Return the reason for the first find, in the order of the rule."""
        there = _found(situation.call)
        code = next((c for c in (*self.finds, OVERFLOW) if c in there), None)
        if code is None:
            return None
        return self.reason(code, f"the arguments have {code.replace('_', ' ')}", targets)

    def problems(self, outline: PolicyOutline) -> Iterable[str]:  # noqa: ARG002  (says nothing about mappings)
        """Yield names of nothing that can be found, and rules that allow by a find."""
        for code in self.finds:
            if code not in CODES:
                yield f"`{code}` cannot be found; what can: {', '.join(CODES)}"
        if self.effect is Action.ALLOW:
            yield "what was found is no ground to allow a call; use effect `ask` or `block`"


def _found(call: ClassifiedCall) -> set[str]:
    found: set[str] = set()
    room = LIMIT
    for text in _texts(call.call.arguments):
        room -= len(text)
        if room < 0:
            return found | {OVERFLOW}
        found |= find_leaks(text)
    if any(hides_data(target.destination.host) for target in call.targets):
        found.add(HOST)
    return found


def _texts(arguments: Json) -> Iterator[str]:
    """Yield every string, with its name where it has one: a name tells a secret from a word."""
    stack: list[tuple[str, Json]] = [("", arguments)]
    while stack:
        name, item = stack.pop()
        if isinstance(item, str):
            yield f"{name}={item}" if name else item
        elif isinstance(item, dict):
            stack.extend((str(key), inner) for key, inner in item.items())
        elif isinstance(item, list):
            stack.extend((name, inner) for inner in item)
