"""Agents that call tools through a real guard on a real store, and the fixtures that start them.

A ``conftest.py`` that imports the fixtures may override ``sections``.
"""

import itertools
from dataclasses import dataclass, field, replace

import pytest

from guard.core.calls import ToolResult
from guard.core.model import Identity, Integrity, ToolCall
from guard.operations.labels import LabelOperator
from guard.pipeline.outcome import JudgeRequest
from guard.provenance.approvals import Grant, Scope
from guard.provenance.seal import Seal
from tests.guards import KEY, guard_on

POLICY = """
version: 1
name: office
internal_domains: [inside.test]
deny: [denied.test]
tools:
  - {match: [recall], role: recall, store: facts, item: "$.key"}
  - {match: [list_all], role: list, store: facts}
  - {match: [save], role: save, store: facts, item: "$.key"}
  - {match: [draft], role: draft, destinations: ["$.to"], store: drafts}
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"], guarded: ["$.note"]}
  - {match: [invite], role: send, destinations: ["$.guests"], optional_destinations: true}
  - {match: [answer], role: send, destinations: ["$.to"], reply: "$.message", body: ["$.body"]}
  - match: [calendar]
    role: retrieve
    fields:
      - {path: "$[*].participants", as: directory, writer: owner}
  - match: [inbox]
    role: retrieve
    messages: {each: "$[*]", id: "$.id", sender: "$.from", names: ["$.subject"]}
  - {match: [directory], role: retrieve, source: authenticated}
  - {match: [hints], role: retrieve, source: advisory}
  - {match: [read], role: retrieve}
rules:
  - {id: denied, type: destination, status: [denied], effect: block}
  - {id: bad, type: destination, roles: [send], status: [malformed, missing], effect: block}
  - {id: tainted, type: provenance, roles: [send], rungs: [tainted], effect: block}
  - {id: guarded, type: provenance, roles: [send], of: guarded, rungs: [tainted], effect: ask}
  - {id: unknown, type: provenance, roles: [send], rungs: [claimed, unknown], effect: ask}
  - id: attested
    type: provenance
    roles: [send]
    rungs: [listed, granted, prompted, established, reply, remembered]
    effect: allow
  - {id: work, type: tool, roles: [recall, list, save, draft, retrieve], effect: allow}
  - {id: nobody, type: tool, tools: [invite], effect: allow}
"""
SERIAL = itertools.count()


@dataclass
class Agent:
    """One principal's agent; ``in_session`` gives the same principal's agent in another session."""

    guard: object
    identity: Identity = field(default_factory=lambda: Identity("alice", "one"))
    at: float = 1_700_000_000.0
    protocol: str = "test"
    server: str = ""
    upstream: str = ""
    nonce: str = ""
    token: str = ""

    def in_session(self, session):
        """Return the same principal in another session."""
        return Agent(self.guard, replace(self.identity, session=session), self.at)

    def as_principal(self, principal):
        """Return another principal of the same tenant."""
        return Agent(self.guard, replace(self.identity, principal=principal), self.at)

    def later(self, seconds):
        """Return the same agent some time later."""
        return replace(self, at=self.at + seconds)

    async def ask(self, tool, arguments, *, at=None):
        """Have a call judged and return the classified call and its verdict."""
        call = ToolCall(
            f"call-{next(SERIAL)}",
            self.identity,
            tool,
            arguments,
            self.protocol,
            at or self.at,
            self.server,
            self.upstream,
            self.nonce,
            self.token,
        )
        [answer] = await self.guard.judge(JudgeRequest([call]))
        return answer

    async def call(self, tool, arguments, result=None, *, at=None):
        """Have a call judged and, if it goes out, its result observed; return the verdict."""
        classified, verdict = await self.ask(tool, arguments, at=at)
        if verdict.enforced.forwards:
            await self.guard.observe(ToolResult(classified, result, at or self.at))
        return verdict

    async def say(self, text):
        """Have the user say something in this session."""
        await self.guard.notes.prompt(self.identity, text, self.at)

    async def send(self, to, **more):
        """Send, and return the verdict."""
        return await self.call("send", {"to": to, "body": "b", **more})

    async def asked(self, tool, arguments):
        """Have a call asked about and return its decision id."""
        classified, verdict = await self.ask(tool, arguments)
        assert verdict.action.label == "ask", verdict
        return classified.call.id

    async def approved(self, tool, arguments, scope=Scope.CALL, seconds=0, more=None):
        """Have a call asked about and approved."""
        grant = Grant(scope, self.at + seconds, **(more or {}))
        decision = await self.asked(tool, arguments)
        await operator_of(self.guard).approve(decision, self.at, grant)

    def known(self, fields):
        """Return the same agent with another identity."""
        return replace(self, identity=replace(self.identity, **fields))

    async def limited(self, limits):
        """Bring a policy with other limits into force."""
        policy = self.guard.policy
        self.guard.swap_policy(replace(policy, limits=replace(policy.limits, **limits)))


def rung(verdict):
    """Return the weakest rung that a reason of the winning action names."""
    [evidence] = [
        r.evidence
        for r in verdict.reasons
        if r.action is verdict.action and r.code.startswith("provenance_")
    ]
    return evidence["rung"]


def with_tools(tools):
    """Return the policy with further tools."""
    return POLICY.replace("rules:\n", f"{tools.strip(chr(10))}\nrules:\n", 1)


def assert_verdict(verdict, expected):
    """Assert that a verdict has each word, as action, code or evidence, and none behind a `!`.

    A result without a verdict is ``released``.
    """
    found = {"released"}
    if verdict is not None:
        reasons = [one for one in verdict.reasons if one.action is verdict.action]
        found = {verdict.action.label, *(one.code for one in verdict.reasons)}
        found.update(str(value) for one in reasons for value in one.evidence.values())
    for word in expected.split():
        assert (word.removeprefix("!") in found) is not word.startswith("!"), (expected, found)


def operator_of(guard):
    """Return the operator of a guard's tenant."""
    return LabelOperator(guard._store, Seal(KEY), guard.policy.limits)


async def fields_of(store, kind):
    """Yield key, field and record of every label record of a kind."""
    for key in await store.client.execute("KEYS", f"{store._keys.namespace}:*:{kind}:*"):
        flat = await store.client.execute("HGETALL", key)
        for field_, record in zip(flat[::2], flat[1::2], strict=True):
            yield key, field_, record


async def _send(agent, to, expected):
    assert_verdict(await agent.send(to), expected)


async def _try(agent, tool, arguments, *rest):
    *result, expected = rest
    assert_verdict(await agent.call(tool, arguments, *result), expected)


async def _back(agent, tool, arguments, result, expected):
    classified, _ = await agent.ask(tool, arguments)
    assert_verdict(await agent.guard.observe(ToolResult(classified, result, agent.at)), expected)


async def _let_out(agent, tool, arguments):
    classified, _ = await agent.ask(tool, arguments)
    await agent.guard.observe(ToolResult(classified, "saved", agent.at))


async def _gets(agent, tool, arguments, outcome):
    classified, verdict = await agent.ask(tool, arguments)
    assert verdict.enforced.forwards
    await agent.guard.observe(ToolResult(classified, at=agent.at, **outcome))


async def _imported(agent, value):
    items = [("facts", value, Integrity.AUTHENTICATED)]
    await agent.guard.notes.memory("default", items, 0.0)


async def _do(agent, deed):
    await deed(agent)


MOVES = {
    "in": Agent.in_session,
    "as": Agent.as_principal,
    "later": Agent.later,
    "with": lambda agent, fields: replace(agent, **fields),
    "known": Agent.known,
}
DEEDS = {
    "say": Agent.say,
    "send": _send,
    "try": _try,
    "back": _back,
    "ask": Agent.ask,
    "approved": _let_out,
    "yes": Agent.approved,
    "gets": _gets,
    "limits": Agent.limited,
    "imported": _imported,
    "do": _do,
}


async def play(agent, steps):
    """Carry out steps; return the agent of the last one.

    A step is one of these, or a tool with its arguments and its result:

    - ``say`` and a text, ``in`` and a session, ``as`` and a principal, ``later`` and seconds;
    - ``with`` or ``known`` and fields of the agent or its identity, ``limits`` of the policy;
    - ``send``, a receiver and words of the verdict;
    - ``try``, a tool, its arguments, perhaps its result, and words of the verdict;
    - ``back``, a tool, its arguments, its result and words of the verdict on that;
    - ``gets``, a tool, its arguments and fields of its result;
    - ``ask``, a tool and arguments, of a call that is not made;
    - ``approved``, a tool and arguments, of a call that a person lets out;
    - ``yes``, a tool, arguments, scope, seconds and more of a grant: the call is not made;
    - ``imported`` and a value, which its owner says is authenticated;
    - ``do`` and a function of the agent.
    """
    for verb, *rest in steps:
        if verb in MOVES:
            agent = MOVES[verb](agent, *rest)
        elif verb in DEEDS:
            await DEEDS[verb](agent, *rest)
        else:
            await agent.call(verb, *rest)
    return agent


@pytest.fixture
def sections():
    """Return what the policy has besides."""
    return ""


@pytest.fixture
def policy(policy_from, sections):
    """Return the policy of these tests."""
    return policy_from(POLICY + sections)


@pytest.fixture
def guard(policy, store):
    """Return a guard on the fresh store."""
    return guard_on(store, policy)


@pytest.fixture
def agent(guard):
    """Return an agent of the principal alice in session one."""
    return Agent(guard)


@pytest.fixture
def operator(guard):
    """Return the operator of the tenant."""
    return operator_of(guard)
