"""Class: a member that says nothing stands for a member that says something.

A rule asks about a call that leaves an argument out.  The agent gives the argument a value that
names nobody: null, a blank text, an empty list or object, or containers of such values.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

from guard.policy.rules import argument, expression
from lab.trust.attacks import AttackClass, Attempt, Switch, calling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from guard.core.model import Json
    from lab.trust.attacks import Patch

LEAVES: Final[tuple[Json, ...]] = (None, "", " ", "\n\t", [], {})
NAMES: Final = ("email", "name", "x")
GOOGLE: Final = ("default.yaml", "services/google-calendar.yaml")
MICROSOFT: Final = ("default.yaml", "services/microsoft-calendar.yaml")
OWN: Final = """version: 1
name: own
tools:
  - {match: [change], role: other, inert: [{path: "$.text", why: an example}]}
rules:
  - {id: change, type: tool, effect: allow, mapped: true}
  - {id: unnamed, type: RULE, effect: ask}
"""
RULES: Final = (
    'expression, when: "!has(args.owner)"',
    'expression, when: "!has(args.owner) && has(args.text)"',
    'expression, when: "has(args.text) && !(has(args.owner) && true)"',
)
ALLOWING: Final = """version: 1
name: own
tools:
  - {match: [change], role: other}
rules:
  - {id: inside, type: argument, path: "$.owner", equals: everybody, negate: true, effect: allow}
"""


class EmptyMembers(AttackClass):
    """An argument that a rule demands is there, and says nothing."""

    id: ClassVar[str] = "empty_members"
    switches: ClassVar[tuple[Switch, ...]] = (
        Switch("an empty member is an absent one", lambda p: _as_sent(p), among="own policy:"),
        Switch(
            "an empty value passes no test",
            lambda p: p.set(argument, "is_empty", lambda _value: False),
            among="own allowing policy:",
        ),
    )

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield the attempts."""
        empties = list(_empties())
        for value, rule in itertools.product(empties, RULES):
            arguments: dict[str, Json] = {"owner": value, "text": "changed"}
            policy = OWN.replace("RULE", rule)
            yield _attempt(f"own policy: {rule}", "change", arguments, policy)
        for value in empties:
            yield _attempt("own allowing policy", "change", {"owner": value}, ALLOWING)
        texts = ("summary", "description", "location")
        for value, tool in itertools.product(empties, ("modify_event", "manage_event")):
            arguments = {"event_id": "e1", "attendees": value, rng.choice(texts): "balance 4711"}
            yield _attempt("google", tool, arguments, GOOGLE)
        for value in empties:
            body: dict[str, Json] = {"attendees": value, "subject": "balance 4711"}
            arguments = {"eventId": "e1", "body": body}
            yield _attempt("microsoft", "update-calendar-event", arguments, MICROSOFT)


def _empties() -> Iterator[Json]:
    """Yield values that say nothing, up to two containers deep."""
    yield from LEAVES
    inner: list[Json] = [*LEAVES]
    for _ in range(2):
        inner = [
            *([one] for one in inner),
            *({name: one} for name, one in zip(itertools.cycle(NAMES), inner, strict=False)),
        ]
        yield from inner
    yield from ([one, other] for one, other in itertools.combinations(LEAVES, 2))


def _attempt(
    about: str, tool: str, arguments: dict[str, Json], policy: str | tuple[str, ...]
) -> Attempt:
    play = calling(tool, arguments)
    return Attempt(f"{about}: {tool} {json.dumps(arguments)}", play, policy)


# --- switches ---


def _as_sent(patch: Patch) -> None:
    def as_sent(value: Any) -> Any:
        return value

    patch.set(expression, "without_empty", as_sent)
