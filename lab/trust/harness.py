"""One guard in process, agents on one side of it and servers on the other.

A :class:`World` is the composition that ``guard run`` serves, without the proxy: a message enters
as an :class:`HttpRequest` by the request handler, and an upstream here is a function that gets what
was forwarded.  What it got is what an attacker would have; what the agent got is what was released.
"""

from __future__ import annotations

import base64
import itertools
import json
import tempfile
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from unittest import mock

from guard.core.errors import GuardError, MessageError
from guard.core.model import Identity, Json, Role, UserPrompt
from guard.core.policy import Policy, StateLimits
from guard.core.tool_answers import Cover
from guard.operations.labels import LabelOperator
from guard.pipeline.exchange import Exchange, UnparsedExchange
from guard.policy.proposal import guess
from guard.protocols.http.message import PROXY_CREDENTIAL, HttpReply, HttpRequest, is_sent_on
from guard.provenance.approvals import Grant, Scope
from guard.runtime import policy_trial as policy_reload
from guard.settings import Settings, load_settings, policies_directory
from lab.wire import credentials, secret_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from guard.runtime.wiring import Parts
    from guard.store.store import RedisSessionStore

_READING: Final = frozenset({Role.RETRIEVE, Role.RECALL, Role.LIST})
REMEMBERED: Final = 90 * 24 * 3600.0
"""Seconds for which a person's yes holds where it is remembered."""
START: Final = 1_800_000_000.0
"""Start of every world's clock."""
PRINCIPALS: Final = ("alice", "bob", "carol", "mallory")
"""Principals that have a credential."""
TOOLS: Final = "127.0.0.1:8801"
"""The listener that agents use unless they say otherwise."""
OTHER: Final = "127.0.0.1:8802"
"""A second server's listener."""
FORWARD: Final = "127.0.0.1:8888"
"""The listener by which an agent chooses the host."""
UPSTREAMS: Final = {TOOLS: "http://tools.internal:9000", OTHER: "http://other.internal:9001"}
MCP_PATH: Final = "/mcp"


Compose: TypeAlias = "Callable[..., Parts]"
"""The composition root, as a world calls it."""


class WorldClock:
    """Seconds since the epoch, moved by hand; the keys of the store expire with it."""

    store: RedisSessionStore
    """Store of the world."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> float:
        """Return the time."""
        return self._now

    async def advance(self, seconds: float) -> None:
        """Let time pass: for the guard, and for what the store lets expire."""
        self._now += seconds
        client, passed = self.store.client, int(seconds * 1000)
        keys: set[bytes] = set()
        async for page in client.scan(""):
            keys.update(page)
        for key in keys:
            remaining = await client.execute("PTTL", key)
            if isinstance(remaining, int) and remaining >= 0:
                await client.execute("PEXPIRE", key, str(remaining - passed))


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an upstream."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


Upstream: TypeAlias = "Callable[[HttpRequest], Answer]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one message."""

    verdict: str
    """``allow``, ``ask`` or ``block``; what was forwarded was allowed."""
    released: HttpRequest | None
    """The request as the upstream got it, None where it got nothing."""
    reply: bytes
    """Reply to the agent."""
    decision_id: str = ""
    """Decision id of a refusal."""
    codes: tuple[str, ...] = ()
    """Why, of a refusal."""
    status: int = 200
    code: str = ""
    """Code of a refusal as a whole."""

    @property
    def forwarded(self) -> bool:
        """Delivery to the upstream."""
        return self.released is not None


def _scripted(request: HttpRequest, result: Json) -> Answer:
    """Return the answer of an MCP server that answers a result."""
    result = "done" if result is None else result
    try:
        message = json.loads(request.body or b"null")
    except ValueError:
        message = None
    if isinstance(message, dict) and "id" in message:
        found = {"jsonrpc": "2.0", "id": message["id"], "result": tool_result(result)}
        return Answer(json.dumps(found).encode())
    plain = result if isinstance(result, str) else json.dumps(result)
    return Answer(plain.encode())


def tool_result(result: Json) -> Json:
    """Return a result as MCP has it: a whole one, text, or JSON as text."""
    if isinstance(result, dict) and not {"content", "tools"}.isdisjoint(result):
        return result
    text = result if isinstance(result, str) else json.dumps(result)
    return {"content": [{"type": "text", "text": text}]}


class World:
    """A guard, its clock, its upstreams and everything that they got.

    Args:
        parts: of the guard.
        clock: the guard's.
    """

    def __init__(self, parts: Parts, clock: WorldClock) -> None:
        self.parts = parts
        self.clock = clock
        clock.store = parts.store
        self.received: list[HttpRequest] = []
        """Requests that upstreams got, in order."""
        self._upstreams: dict[str, Upstream] = {}
        self.number = itertools.count(1).__next__
        """Return a number that was not returned before."""

    def serve(self, listener: str, upstream: Upstream) -> None:
        """Put a server of the attempt's own behind a listener (or, by host, behind forwarding)."""
        self._upstreams[listener] = upstream

    def agent(self, principal: str = "alice", session: str = "s1", listener: str = TOOLS) -> Agent:
        """Return an agent of one of ``PRINCIPALS``."""
        return Agent(self, principal, session, listener)

    def list_tool(self, listener: str, path: str, tool: str) -> None:
        """Let the scripted server have listed a tool, unless another server has."""
        upstream = UPSTREAMS[listener].partition("://")[2] + path
        offers = self.parts.guard.calls.offers
        if listener not in self._upstreams and offers.place("", tool) in {"", upstream}:
            offers.note(upstream, (tool,))

    async def approve(self, decision_id: str, *, remember: bool = False) -> None:
        """Approve a call that was asked about, as a person does on the command line.

        Args:
            decision_id: of the refusal.
            remember: for the next times as well.

        Raises:
            GuardError: nothing waits for approval under this id.
        """
        now = self.clock.now()
        grant = Grant(Scope.PRINCIPAL, now + REMEMBERED) if remember else Grant()
        await self.operator.approve(decision_id, now, grant)

    async def answer(self, decision_id: str) -> None:
        """Answer a call that was asked about as the guard suggests.

        Raises:
            GuardError: nothing waits for approval under this id.
        """
        now, operator = self.clock.now(), self.operator
        until = now + REMEMBERED
        call = (await operator.asked(decision_id)).calls[0]
        tool = await operator.tool(call)
        reads = tool is not None and (
            tool.annotations.get("readOnlyHint") is True or guess(tool).suggested in _READING
        )
        covers = (*([Cover.READS] if reads else ()), Cover.KINDS, None)
        grants = [Grant(Scope.PRINCIPAL, until, cover=cover) for cover in covers]
        for grant in (*grants, Grant()):
            # An answer that cannot be kept: the person answers with less.
            with suppress(GuardError):
                await operator.approve(decision_id, now, grant)
                return
        raise GuardError("no answer was taken")

    @property
    def operator(self) -> LabelOperator:
        """Operations that people do on the command line."""
        return LabelOperator(self.parts.store, self.parts.seal, StateLimits())

    async def send(self, request: HttpRequest, result: Json = None) -> Outcome:
        """Take a request through the guard, and its answer back.

        Args:
            request: of an agent.
            result: in the answer, where no server of the attempt's own stands behind the listener.
        """
        enforcement = self.parts.enforcement
        outcome = await enforcement.requests.on_request(request)
        if isinstance(outcome, HttpReply):
            return _refused(outcome)
        rewritten = None if isinstance(outcome, UnparsedExchange) else outcome.rewritten
        released = _stripped(rewritten or request)
        self.received.append(released)
        upstream = self._upstreams.get(request.server) or self._upstreams.get(request.host)
        answer = _scripted(released, result) if upstream is None else upstream(released)
        if isinstance(outcome, UnparsedExchange):
            return Outcome("allow", released, answer.body, status=answer.status)
        try:
            reply = await self._way_back(outcome, answer)
        except MessageError as error:
            withheld = enforcement.responses.refuse(error, outcome)
            return replace(_refused(withheld), released=released, verdict="allow")
        return Outcome("allow", released, reply, status=answer.status)

    async def _way_back(self, exchange: Exchange, answer: Answer) -> bytes:
        responses = self.parts.enforcement.responses
        await responses.on_head(exchange, lambda name: [v for n, v in answer.headers if n == name])
        if answer.content_type == "text/event-stream":
            reader = responses.event_reader(exchange)
            return b"".join([*await reader.feed(answer.body), *await reader.end()])
        instead = await responses.on_answer(exchange, answer.body, answer.status)
        return answer.body if instead is None else instead


@dataclass(frozen=True, slots=True)
class Agent:
    """One session of one principal at one listener."""

    world: World
    principal: str
    session: str
    listener: str = TOOLS
    connection: str = ""
    """Connection of its requests, where it is not the session's own."""

    def at(self, listener: str) -> Agent:
        """Return the same agent at another listener."""
        return replace(self, listener=listener)

    def later(self, session: str) -> Agent:
        """Return the same principal in another session."""
        return replace(self, session=session)

    async def prompt(self, text: UserPrompt | str) -> None:
        """Let the user say something, on the authenticated prompt channel."""
        identity = Identity(self.principal, self.session)
        await self.world.parts.guard.notes.prompt(identity, text, self.world.clock.now())

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        result: Json = None,
        *,
        meta: Mapping[str, Json] | None = None,
        path: str = MCP_PATH,
        headers: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Call a tool by MCP; where it is forwarded, ``result`` is what comes back."""
        self.world.list_tool(self.listener, path, tool)
        params: dict[str, Json] = {"name": tool, "arguments": dict(arguments or {})}
        if meta is not None:
            params["_meta"] = dict(meta)
        return await self.message("tools/call", params, result, path=path, headers=headers)

    async def message(
        self,
        method: str,
        params: Mapping[str, Json],
        result: Json = None,
        *,
        path: str = MCP_PATH,
        headers: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Send one MCP request; where it is forwarded, ``result`` is what comes back."""
        message = {
            "jsonrpc": "2.0",
            "id": self.world.number(),
            "method": method,
            "params": dict(params),
        }
        given = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **(headers or {}),
        }
        body = json.dumps(message).encode()
        return await self.world.send(self.request("POST", path, body, given), result)

    async def http(
        self,
        method: str,
        url: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        result: Json = None,
    ) -> Outcome:
        """Make a plain HTTP request by the forward listener."""
        scheme, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        request = self.at(FORWARD).request(method, f"/{path}" if slash else "/", body, headers)
        own = tuple((k, host if k == "host" else v) for k, v in request.headers)
        request = replace(request, scheme=scheme, host=host, headers=own, chosen=True)
        return await self.world.send(request, result)

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> HttpRequest:
        """Return a request of this agent, with its credential and its session."""
        scheme, _, host = UPSTREAMS.get(self.listener, UPSTREAMS[TOOLS]).partition("://")
        proof = base64.b64encode(f"{self.principal}:{secret_of(self.principal)}".encode()).decode()
        fields = {"host": host, PROXY_CREDENTIAL: f"Basic {proof}"}
        if self.session:
            fields["x-guard-session"] = self.session
        if body:
            fields["content-length"] = str(len(body))
        fields |= {name.lower(): value for name, value in (headers or {}).items()}
        connection = self.connection or f"{self.principal}-{self.session}-{self.listener}"
        return HttpRequest(
            method, scheme, host, target, tuple(fields.items()), body, self.listener, connection
        )


@contextmanager
def policies_read_once() -> Iterator[None]:
    """Let worlds within the block share policies: reading one takes longer than most attempts."""
    read: dict[tuple[bytes, ...], Policy] = {}
    load = vars(policy_reload)["load_policies"]

    def shared(paths: Sequence[Path]) -> Policy:
        texts = tuple(path.read_bytes() for path in paths)
        if texts not in read:
            read[texts] = load(paths)
        return read[texts]

    with mock.patch.object(policy_reload, "load_policies", shared):
        yield


@asynccontextmanager
async def world_of(
    compose: Compose, redis_url: str, policy: str | Sequence[str]
) -> AsyncIterator[World]:
    """Open a world on an emptied store.

    Args:
        compose: the composition root.
        redis_url: of a server that is this world's alone: it is emptied first.
        policy: names of shipped policies (``default.yaml``), or texts of some.
    """
    with tempfile.TemporaryDirectory(prefix="guard-trust-") as place:
        directory = Path(place)
        clock = WorldClock()
        parts = compose(
            _settings(directory, redis_url, [policy] if isinstance(policy, str) else policy),
            redis_url,
            confdir=directory,
            clock=clock,
        )
        try:
            await parts.store.client.execute("FLUSHDB")
            await parts.store.verify()
            yield World(parts, clock)
        finally:
            await parts.store.aclose()
            parts.audit.close()


def _settings(directory: Path, redis_url: str, policies: Sequence[str]) -> Settings:
    paths = []
    for number, policy in enumerate(policies):
        path = policies_directory() / policy
        if "\n" in policy:
            path = directory / f"policy-{number}.yaml"
            path.write_text(policy, encoding="utf-8")
        paths.append(path)
    own = {
        "policy": tuple(paths),
        "credentials": Path(credentials(directory, *PRINCIPALS)[1]),
        # As with a store that is kept: a new one that forgets at every stop counts as incomplete.
        "redis": redis_url,
        "label_key": directory / "label.key",
    }
    return _usual_settings().model_copy(update=own)


@cache
def _usual_settings() -> Settings:
    """Read the settings of every world once: that takes longer than most attempts."""
    reverse = [f"{listener}={url}" for listener, url in UPSTREAMS.items()]
    return load_settings(None, reverse=reverse, forward=[FORWARD])


def _stripped(request: HttpRequest) -> HttpRequest:
    """Return a request without what the enforcement point takes off before it forwards."""
    kept = tuple(
        (name, value)
        for name, value in request.headers
        if is_sent_on(name.encode(), trusts_forwarded=False)
    )
    return replace(request, headers=kept)


def _refused(reply: HttpReply) -> Outcome:
    try:
        fields = _observation(json.loads(reply.body))
    except ValueError:
        fields = {}
    codes = tuple(str(one.get("code", "")) for one in fields.get("reasons", ()))
    return Outcome(
        verdict=str(fields.get("decision", "block")),
        released=None,
        reply=reply.body,
        decision_id=str(fields.get("decision_id", "")),
        codes=codes,
        status=reply.status,
        code=str(fields.get("code", "")),
    )


def _observation(value: Json) -> dict[str, Any]:
    """Return the first observation of a refusal in a reply."""
    if isinstance(value, dict):
        if "decision" in value and "decision_id" in value:
            return value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            if found := _observation(item):
                return found
    return {}
