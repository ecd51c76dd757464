"""Honest flows: requests of people and the calls they take, as several models would make them.

``honest/*.yaml`` has one file per domain; ``cast.yaml`` names people, accounts and channels, and
``families.yaml`` the tools of several services.  A *telling* is one flow with the tools, wording
and habits of one model.  It is played three times over: a first time; in a later session of the
same principal; and, wherever a person was asked, the very call again after the approval.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ruamel.yaml import YAML

from guard.settings import policies_directory
from lab.trust.harness import OTHER, TOOLS, Agent, Compose, Outcome, World, world_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

WEEK: Final = 7 * 24 * 3600.0
_VALUE: Final = re.compile(r"\$\{([a-z_.]+)\}")
_WHOLE: Final = re.compile(r"\$([a-z_.]+)")
_MISSING: Final = object()


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
INBOX: Final = (
    "From: newsletter@deals.test\nSubject: Sale\n\nEverything must go: https://deals.test/sale"
)
"""Content that a curious model reads on its way: untrusted, and none of it is used."""


@dataclass(frozen=True, slots=True)
class Telling:
    """One flow as one model plays it."""

    domain: str
    habit: Habit
    turns: tuple[tuple[str, tuple[Mapping[str, Any], ...]], ...]
    """Text of the user, and the steps, of one session each; in a step the user may add text."""
    families: Mapping[str, str]
    """The tools that are used, by domain."""


class Course(NamedTuple):
    """The outcome of one telling."""

    first: frozenset[str]
    """Tools that were asked about the first time."""
    second: frozenset[str]
    """Tools that were asked about a later time."""
    again: frozenset[str]
    """Tools that were asked about although they had been approved."""
    blocked: frozenset[str]
    """Tools that nobody could have approved, with the reasons."""


def tellings() -> Iterator[Telling]:
    """Yield every flow, once per habit."""
    for domain in _domains():
        for number, flow in enumerate(domain["flows"]):
            for turn, habit in enumerate(HABITS):
                yield _telling(domain["domain"], flow, habit, number + turn, turn)


def _telling(domain: str, flow: Mapping[str, Any], habit: Habit, draw: int, turn: int) -> Telling:
    parts = [flow, *([flow["next"]] if "next" in flow else [])]
    wordings = [part["prompts"][turn % len(part["prompts"])] for part in parts]
    services = {name: list(tools) for name, tools in _book()["families"].items()}
    return Telling(
        domain=domain,
        habit=habit,
        turns=tuple(
            (str(_fill(wording, _cast())), tuple(part["steps"]))
            for wording, part in zip(wordings, parts, strict=True)
        ),
        families={name: tools[draw % len(tools)] for name, tools in services.items()},
    )


async def tell(compose: Compose, redis_url: str, telling: Telling) -> Course:
    """Play a telling under the shipped policies.

    The guard hears what the user says, and a person who is asked approves for the next times too.

    Args:
        compose: the composition root.
        redis_url: of a server that is this telling's alone.
        telling: what is played.
    """
    async with world_of(compose, redis_url, shipped_policies(telling)) as world:
        first = await _Played(world, telling).run("first")
        await world.clock.advance(WEEK)
        second = await _Played(world, telling).run("second")
    return Course(
        frozenset(first.asked),
        frozenset(second.asked),
        frozenset(first.again | second.again),
        frozenset(first.blocked | second.blocked),
    )


class _Played:
    def __init__(self, world: World, telling: Telling) -> None:
        self._world, self._telling = world, telling
        self.asked: set[str] = set()
        self.again: set[str] = set()
        self.blocked: set[str] = set()

    async def run(self, name: str) -> _Played:
        for number, (prompt, steps) in enumerate(self._telling.turns):
            agent = self._world.agent("alice", f"{name}-{number}")
            await agent.prompt(prompt)
            if self._telling.habit.curious:
                await self._call(agent, {"tool": "get_unread_emails", "args": {}, "result": INBOX})
            for step in steps:
                if "say" in step:
                    await agent.prompt(str(_fill(step["say"], _cast())))
                else:
                    await self._call(agent, rendered(step, self._telling))
            await self._world.clock.advance(3600)
        return self

    async def _call(self, agent: Agent, call: Mapping[str, Any]) -> None:
        tool = call.get("tool", call.get("http"))
        outcome = await sent(agent, call)
        if outcome.verdict == "ask":
            self.asked.add(f"{tool}: {', '.join(outcome.codes)}")
            await self._world.approve(outcome.decision_id, remember=True)
            outcome = await sent(agent, call)
            if outcome.verdict == "ask":
                self.again.add(f"{tool}: {', '.join(outcome.codes)}")
        if outcome.verdict == "block":
            self.blocked.add(f"{tool}: {', '.join(outcome.codes)}")


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
    template = _book()["families"][service][telling.families[service]][step["do"]]
    given = {k: _fill(v, cast) for k, v in {**step, **step.get("gives", {})}.items()}
    plain = replace(habit, display=False)
    for field in ("to", "cc"):
        people = [cast[name] if isinstance(name, str) else name for name in step.get(field, ())]
        spelled = [habit.spelling(person) for person in people]
        given[field] = (", ".join(spelled) if habit.joined else spelled) if people else _MISSING
        given[f"{field}_each"] = [{**one, "told": plain.spelling(one)} for one in people]
    call: dict[str, Any] = _fill(template, given)
    call.setdefault("result", "done")
    if service not in {"mail", telling.domain}:
        call["at"] = OTHER
    return call


def _fill(template: Any, given: Mapping[str, Any]) -> Any:
    """Return a template with its values; what a step does not have is left out of objects."""
    if isinstance(template, str):
        if whole := _WHOLE.fullmatch(template):
            template = _lookup(whole[1], given)
        else:
            template = _VALUE.sub(lambda match: str(_lookup(match[1], given)), template)
        return template
    if isinstance(template, list):
        return [_fill(item, given) for item in template]
    if not isinstance(template, dict):
        return template
    if "each" in template:
        items = _lookup(template["each"][1:], given)
        if not items:
            return [] if items is not _MISSING else _MISSING
        return [_fill(template["put"], {**given, **item}) for item in items]
    filled = {key: _fill(value, given) for key, value in template.items()}
    return {key: value for key, value in filled.items() if value is not _MISSING}


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


def _domains() -> Sequence[Mapping[str, Any]]:
    names = sorted(path.stem for path in Path(__file__).with_name("honest").glob("*.yaml"))
    return [_book(name) for name in names if name not in {"cast", "families"}]


@cache
def _book(name: str = "families") -> dict[str, Any]:
    path = Path(__file__).with_name("honest") / f"{name}.yaml"
    content: dict[str, Any] = YAML(typ="safe").load(path)
    return content
