"""Honest flows: requests of people and the calls they take, as several models would make them.

``honest/*.yaml`` has one file per domain; ``cast.yaml`` names people, accounts and channels, and
``families.yaml`` the tools of several services.  A *telling* is one flow with the tools, wording
and habits of one model.  It is played three times over: a first time; in a later session of the
same principal; and, wherever a person was asked, the very call again after the approval.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML

from guard.settings import policies_directory
from lab.trust.harness import OTHER, TOOLS, Agent, Compose, Outcome, world_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WEEK: Final = 7 * 24 * 3600.0
_VALUE: Final = re.compile(r"\$\{([a-z_][a-z0-9_.]*)\}")
_WHOLE: Final = re.compile(r"\$([a-z_][a-z0-9_.]*)")
_MISSING: Final = ()
"""Value of a name that a step does not have."""
HONEST: Final = Path(__file__).with_name("honest")


@dataclass(frozen=True, slots=True)
class Habit:
    """Spelling of receivers by one model, and its unrequested look-ups."""

    joined: bool = False
    """Receivers as one string, where the tool takes a list."""
    display: bool = False
    """Receivers with their names."""
    capitals: bool = False
    """Addresses in title case."""
    curious: bool = False
    """Looks through the inbox before it does anything."""

    def spelling(self, person: Mapping[str, str]) -> str:
        """Return a person's address as this model spells it."""
        mail = person["mail"].title() if self.capitals else person["mail"]
        return f"{person['name']} <{mail}>" if self.display else mail


HABITS: Final = (
    Habit(),
    Habit(joined=True, curious=True),
    Habit(display=True),
    Habit(capitals=True, joined=True),
)
LOOK: Final = {
    "tool": "get_unread_emails",
    "args": {},
    "result": "From: newsletter@deals.test\nSubject: Sale\n\nEverything must go: https://deals.test/sale",
}
"""Call of a curious model: what it reads is untrusted, and none of it is used."""


@dataclass(frozen=True, slots=True)
class Telling:
    """One flow as one model plays it."""

    domain: str
    habit: Habit
    turns: tuple[tuple[str, tuple[Mapping[str, Any], ...]], ...]
    """Text of the user, and the steps, of one session each; in a step the user may add text."""
    families: Mapping[str, str]
    """The tools that are used, by domain."""


@dataclass(frozen=True, slots=True)
class Course:
    """The outcome of one telling."""

    first: set[str] = field(default_factory=set)
    """Tools that were asked about the first time."""
    second: set[str] = field(default_factory=set)
    """Tools that were asked about a later time."""
    again: set[str] = field(default_factory=set)
    """Tools that were asked about although they had been approved."""
    blocked: set[str] = field(default_factory=set)
    """Tools that nobody could have approved, with the reasons."""


def tellings() -> Iterator[Telling]:
    """Yield every flow, once per habit."""
    services = {name: list(tools) for name, tools in _book("families")["families"].items()}
    for path in sorted(HONEST.glob("*.yaml")):
        domain = _book(path.stem)
        for number, flow in enumerate(domain.get("flows", ())):
            parts = [flow, *([flow["next"]] if "next" in flow else [])]
            for turn, habit in enumerate(HABITS):
                yield Telling(
                    domain=domain["domain"],
                    habit=habit,
                    turns=tuple(
                        (
                            str(filled(_in_turn(part["prompts"], turn), _cast())),
                            tuple(part["steps"]),
                        )
                        for part in parts
                    ),
                    families={n: _in_turn(tools, number + turn) for n, tools in services.items()},
                )


def _in_turn(several: Sequence[str], turn: int) -> str:
    return several[turn % len(several)]


async def tell(compose: Compose, redis_url: str, telling: Telling) -> Course:
    """Play a telling under the shipped policies.

    The guard hears what the user says, and a person who is asked approves for the next times too.

    Args:
        compose: the composition root.
        redis_url: of a server that is this telling's alone.
        telling: what is played.
    """
    course = Course()
    async with world_of(compose, redis_url, shipped_policies(telling)) as world:
        for name, asked in (("first", course.first), ("second", course.second)):
            for number, (prompt, steps) in enumerate(telling.turns):
                agent = world.agent("alice", f"{name}-{number}")
                await agent.prompt(prompt)
                for step in (*([LOOK] if telling.habit.curious else ()), *steps):
                    if "say" in step:
                        await agent.prompt(str(filled(step["say"], _cast())))
                    else:
                        call = step if step is LOOK else rendered(step, telling)
                        await _made(agent, call, asked, course)
                await world.clock.advance(3600)
            await world.clock.advance(WEEK)
    return course


async def _made(agent: Agent, call: Mapping[str, Any], asked: set[str], course: Course) -> None:
    """Make a call, and once more where a person is asked, who approves."""
    for questions in (asked, course.again):
        outcome = await sent(agent, call)
        reasons = f"{call.get('tool', call.get('http'))}: {', '.join(outcome.codes)}"
        if outcome.verdict == "block":
            course.blocked.add(reasons)
        if outcome.verdict != "ask":
            return
        questions.add(reasons)
        await agent.world.approve(outcome.decision_id, remember=True)


async def sent(agent: Agent, call: Mapping[str, Any]) -> Outcome:
    """Make a rendered call."""
    if "http" in call:
        body = json.dumps(call["json"]).encode() if "json" in call else b""
        kind = {"content-type": "application/json"} if body else {}
        return await agent.http(call["http"], call["url"], body, kind, result=call["result"])
    return await agent.at(call.get("at", TOOLS)).call(call["tool"], call["args"], call["result"])


def service_of(operation: str) -> str:
    """Return the service whose tools carry out an operation."""
    name = operation.partition(".")[0]
    longer = {"contacts": "mail", "docs": "documents", "pay": "payments", "ops": "devops"}
    return longer.get(name, name)


def rendered(step: Mapping[str, Any], telling: Telling) -> dict[str, Any]:
    """Return a step as a call of one service's tool, with what comes back."""
    cast, habit = _cast(), telling.habit
    service = service_of(step["do"])
    template = _book("families")["families"][service][telling.families[service]][step["do"]]
    given = {k: filled(v, cast) for k, v in {**step, **step.get("gives", {})}.items()}
    plain = replace(habit, display=False)
    for name in ("to", "cc"):
        people = [cast[one] if isinstance(one, str) else one for one in step.get(name, ())]
        spelled = [habit.spelling(person) for person in people]
        given[name] = (", ".join(spelled) if habit.joined else spelled) if people else _MISSING
        given[f"{name}_each"] = [{**one, "told": plain.spelling(one)} for one in people]
    call: dict[str, Any] = filled(template, given)
    call.setdefault("result", "done")
    if service not in {"mail", telling.domain}:
        call["at"] = OTHER
    return call


def filled(template: Any, given: Mapping[str, Any]) -> Any:
    """Return a template with its values; missing ones are left out of objects."""
    if isinstance(template, str):
        if whole := _WHOLE.fullmatch(template):
            return _lookup(whole[1], given)
        return _VALUE.sub(lambda match: str(_lookup(match[1], given)), template)
    if isinstance(template, list):
        return [filled(item, given) for item in template]
    if not isinstance(template, dict):
        return template
    if "each" in template:
        items = _lookup(template["each"][1:], given)
        return items and [filled(template["put"], {**given, **item}) for item in items]
    found = {key: filled(value, given) for key, value in template.items()}
    return {key: value for key, value in found.items() if value is not _MISSING}


def _lookup(path: str, given: Mapping[str, Any]) -> Any:
    value: Any = given
    for name in path.split("."):
        value = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
    return value


def shipped_policies(telling: Telling) -> tuple[str, ...]:
    """Return what its user loads: the shipped policy and those of the services at hand.

    Nothing is changed in them but the house's own domain and those below it.
    """
    services = {f"services/{name}.yaml" for name in telling.families.values()}
    there = sorted(name for name in services if (policies_directory() / name).is_file())
    return (_with_domain(), *there)


@cache
def _with_domain() -> str:
    text, own = (
        (policies_directory() / "default.yaml").read_text("utf-8"),
        _book("cast")["internal"],
    )
    return text.replace("\n  - example.com\n", f"\n  - {own}\n  - '*.{own}'\n", 1)


@cache
def _cast() -> dict[str, Any]:
    book = _book("cast")
    return {**book["people"], **book["accounts"], **book["channels"]}


@cache
def _book(name: str) -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe").load(HONEST / f"{name}.yaml")
    return content
