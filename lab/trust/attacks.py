"""Attempts, the steps they take, and the switches that show which rule stops them."""

from __future__ import annotations

import asyncio
import inspect
import json
import pkgutil
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from unittest import mock

from lab.trust.harness import MCP_PATH, TOOLS, Agent, Outcome, Upstream, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

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


KIND: Final = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a play; what is not given is left out, and the rest is in the fields' order."""

    tool: str = ""
    """Tool that is called, or method of JSON-RPC that is sent where it is one of MCP's own."""
    args: Mapping[str, Json] = field(default_factory=dict)
    result: Json = None
    """Answer of the tool."""
    who: tuple[str, ...] = ()
    """Principal, session and listener of who acts from now on."""
    lists: tuple[str, ...] = ()
    """Tools that the scripted server has listed from now on."""
    serve: tuple[str, Upstream] | None = None
    """Listener, and the server that stands behind it from now on."""
    seconds: float = 0.0
    """Time that passes before."""
    prompt: UserPrompt | str = ""
    """Text that the user says before."""
    swaps: bool = False
    """True where another policy is put in force."""
    document: Json = None
    """Body that is posted in place of a call."""
    method: str = "POST"
    """Method of a plain request."""
    url: str = ""
    """Address of a forward proxy's request to which it is posted; the MCP endpoint if empty."""
    path: str = MCP_PATH
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of a message."""
    meta: Mapping[str, Json] | None = None
    connection: str = ""
    """Connection of the request, where it is not the session's own."""
    answered: str = ""
    """Answer of a person: ``approve`` or ``deny``, who must have been asked; ``let_through`` or
    ``remember``, after which the call is repeated.  Without the last the attempt proves nothing."""
    together: int = 1
    """Times that the call is made at once."""
    counts: bool = False
    """True where the attacker gains by this call; the last one counts if none is marked."""

    async def take(self, agent: Agent) -> Outcome | None:
        """Take the step; return what became of its call."""
        world = agent.world
        agent = replace(agent, connection=self.connection)
        await self._prepare(agent)
        if not self.tool and self.document is None and self.method == "POST":
            return None
        outcome = await self._call(agent)
        asked = outcome.verdict == "ask"
        if asked and self.answered in {"approve", "let_through", "remember"}:
            await world.approve(outcome.decision_id, remember=self.answered == "remember")
        elif asked and self.answered:
            await world.operator.deny(outcome.decision_id)
        if asked and self.answered in {"let_through", "remember"}:
            outcome = await self._call(agent)
        set_up = {"remember": outcome.forwarded, "approve": asked, "deny": asked}
        if not set_up.get(self.answered, True):
            raise LookupError(f"the stage of the attempt cannot be set: {outcome.codes}")
        return outcome

    async def _prepare(self, agent: Agent) -> None:
        world = agent.world
        for tool in self.lists:
            world.list_tool(TOOLS, MCP_PATH, tool)
        if self.serve is not None:
            world.serve(*self.serve)
        if self.seconds:
            await world.clock.advance(self.seconds)
        if self.prompt:
            await agent.prompt(self.prompt)
        if self.swaps:
            policy = world.parts.guard.policy
            if policy is None:
                raise LookupError("no policy")
            world.parts.guard.swap_policy(replace(policy, digest="0" * 64))

    async def _call(self, agent: Agent) -> Outcome:
        if self.url:
            body = json.dumps(self.document).encode()
            return await agent.http(self.method, self.url, body, {**KIND, **self.headers})
        if not self.tool:
            body = b"" if self.document is None else json.dumps(self.document).encode()
            headers = {**(KIND if body else {}), **self.headers}
            return await agent.world.send(agent.request(self.method, self.path, body, headers))
        if self.tool in METHODS:
            return await agent.message(self.tool, self.args, path=self.path, headers=self.headers)
        return await agent.call(
            self.tool, self.args, self.result, meta=self.meta, path=self.path, headers=self.headers
        )


METHODS: Final = frozenset(
    {
        *("ping", "initialize", "tools/list", "tools/call", "prompts/list", "prompts/get"),
        *("resources/read", "logging/setLevel", "completion/complete"),
    }
)


def acting(*steps: Step, over: int = 0) -> Play:
    """Play steps, by alice until another acts.

    Args:
        steps: in order.
        over: calls that count and may arrive; the attacker has won where more of them do.
    """

    async def play(world: World) -> bool:
        agent, arrived = world.agent(), 0
        marked = any(step.counts for step in steps)
        for number, step in enumerate(steps, 1):
            agent = world.agent(*step.who) if step.who else agent
            outcomes = await asyncio.gather(*(step.take(agent) for _ in range(step.together)))
            if step.counts or (number == len(steps) and not marked):
                arrived += sum(one is not None and one.forwarded for one in outcomes)
        return arrived > over

    return play


class Patch(ExitStack):
    """Replaces attributes until its block ends."""

    def at(self, target: str, value: object) -> Any:
        """Replace an attribute by its path (``guard.a.b:Class.name``); return what it was."""
        path, _, name = target.replace(":", ".").rpartition(".")
        owner = pkgutil.resolve_name(path)
        before = inspect.getattr_static(owner, name)
        self.enter_context(mock.patch.object(owner, name, value))
        return before


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch that takes away one rule of the trust model, to show that the suite needs it."""

    rule: str
    """Rule that is off, in a few words."""
    off: Callable[[Patch], object]
    among: str = ""
    """Part of the names of the attempts that need the rule; empty where any may."""
