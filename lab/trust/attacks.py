"""The base class of attack classes, and their discovery.

A class is one file of this package: a generator of attempts over carriers, wordings, encodings,
languages and tools.  A new class takes part in ``guard lab eval trust``, and in the test that
switches each rule of the model off, without being named anywhere.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

import lab.trust
from lab.trust.harness import MCP_PATH, Agent, Outcome, Upstream, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from guard.core.model import Json, UserPrompt

Play: TypeAlias = "Callable[[World], Awaitable[bool]]"
"""Plays an attempt; returns whether the attacker got bytes that nobody had approved."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One generated attempt."""

    name: str
    """Subject of the variation, for the report."""
    play: Play
    policy: str | tuple[str, ...] = "default.yaml"
    """Names of shipped policies, or texts of some."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the guard, beyond those of every world."""


KIND: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a play; what is not given is left out, and the rest is in the fields' order."""

    tool: str = ""
    """Tool that is called, or method of JSON-RPC that is sent where it is one of MCP's own."""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    result: Json = None
    """Answer of the tool."""
    who: tuple[str, ...] = ()
    """Principal, session and listener of who acts from now on."""
    serve: tuple[str, Upstream] | None = None
    """Listener, and the server that stands behind it from now on."""
    seconds: float = 0.0
    """Time that passes before."""
    prompt: UserPrompt | str = ""
    """Text that the user says before."""
    document: Json = None
    """Body that is posted in place of a call."""
    url: str = ""
    """Address of a forward proxy's request to which it is posted; the MCP endpoint if empty."""
    path: str = MCP_PATH
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of a message."""
    approved: bool = False
    """True where a person who is asked approves this call, and nothing else."""
    remembered: bool = False
    """True where a person approves its like as well, without which the attempt proves nothing."""

    async def take(self, agent: Agent) -> Outcome | None:
        """Take the step; return what became of its call."""
        world = agent.world
        if self.serve is not None:
            world.serve(*self.serve)
        if self.seconds:
            await world.clock.advance(self.seconds)
        if self.prompt:
            await agent.prompt(self.prompt)
        if not self.tool and self.document is None:
            return None
        outcome = await self._call(agent)
        if outcome.decision_id and (self.approved or self.remembered) and outcome.verdict == "ask":
            await world.approve(outcome.decision_id, remember=self.remembered)
            outcome = await self._call(agent)
        if self.remembered and not outcome.forwarded:
            raise LookupError(f"the receiver cannot be established: {outcome.codes}")
        return outcome

    async def _call(self, agent: Agent) -> Outcome:
        body = json.dumps(self.document).encode()
        if self.url:
            return await agent.http("POST", self.url, body, KIND)
        if self.document is not None:
            return await agent.raw(agent.request("POST", self.path, body, KIND))
        if self.tool in METHODS:
            return await agent.message(
                self.tool, self.arguments, path=self.path, headers=self.headers
            )
        return await agent.call(self.tool, self.arguments, self.result, path=self.path)


METHODS: Final = frozenset(
    {
        *("ping", "initialize", "tools/list", "tools/call", "prompts/list", "prompts/get"),
        *("resources/read", "logging/setLevel", "completion/complete"),
    }
)


def acting(*steps: Step) -> Play:
    """Play steps, by alice until another acts; the attacker has won where the last call arrives."""

    async def play(world: World) -> bool:
        agent, outcome = world.agent(), None
        for step in steps:
            agent = world.agent(*step.who) if step.who else agent
            outcome = await step.take(agent)
        return outcome is not None and outcome.forwarded

    return play


def calling(
    tool: str,
    arguments: Mapping[str, Json],
    *,
    prompt: str = "",
    read: tuple[str, Mapping[str, Json], Json] | None = None,
) -> Play:
    """Play one call, after a prompt and a tool's answer where they are given.

    Args:
        tool: called.
        arguments: of the call.
        prompt: that the user types before.
        read: tool, arguments and result of an earlier call.
    """
    before = [] if read is None else [Step(*read)]
    return acting(Step(prompt=prompt), *before, Step(tool, arguments, "done"))


def in_turns(rng: Random, *kinds: Sequence[Attempt]) -> list[Attempt]:
    """Return attempts of several kinds in turns, each kind in an order of the seed's."""
    drawn = [rng.sample(kind, len(kind)) for kind in kinds]
    return [one for group in zip_longest(*drawn) for one in group if one is not None]


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch that takes away one rule of the trust model, to show that the suite needs it."""

    rule: str
    """Rule that is off, in a few words."""
    off: Callable[[Patch], object]
    attempts: int = 400
    """Attempts of the class within which one must then get through."""
    among: str = ""
    """Part of the names of the attempts that need the rule; empty where any may."""


class Patch:
    """Replaces attributes for a while, as a test's ``monkeypatch`` does."""

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> Self:
        """Replace an attribute that exists; return this, for the next one."""
        before = inspect.getattr_static(owner, name)
        self._before.append((owner, name, before))
        setattr(owner, name, value)
        return self

    def undo(self) -> None:
        """Put everything back."""
        while self._before:
            setattr(*self._before.pop())


class AttackClass:
    """One class of attacks, which makes its attempts in :meth:`made` or in :meth:`attempts`."""

    id: ClassVar[str]
    switches: ClassVar[tuple[Switch, ...]] = ()
    """The rules that stop it; with any one off, some attempt of this class must get through."""

    def made(self, rng: Random) -> Iterable[Attempt]:
        """Return the attempts, the same for the same seed."""
        raise NotImplementedError

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield the attempts in an order of the seed's."""
        found = list(self.made(rng))
        rng.shuffle(found)
        yield from found


def discover_attacks() -> tuple[AttackClass, ...]:
    """Import every module of this package and return one instance of each class in it."""
    found: dict[str, AttackClass] = {}
    for info in pkgutil.walk_packages(lab.trust.__path__, "lab.trust."):
        importlib.import_module(info.name)
    for item in AttackClass.__subclasses__():
        if item.id in found:
            raise TypeError(f"two attack classes are named `{item.id}`")
        found[item.id] = item()
    return tuple(found[name] for name in sorted(found))
