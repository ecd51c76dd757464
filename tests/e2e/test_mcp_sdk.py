"""The official MCP client and server see no difference with the guard between them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.running_guard import ROOT, start_guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

PATIENCE = timedelta(seconds=30)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the URL of the fixture server, directly and through a watching guard."""
    server = subprocess.Popen(
        [sys.executable, "-m", "guard.lab.fixture_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    port = int(server.stdout.readline())
    guard = start_guard(
        tmp_path_factory.mktemp("guard"),
        SimpleNamespace(port=port),
        policy=ROOT / "policies" / "examples" / "observe.yaml",
    )
    yield {
        "direct": f"http://127.0.0.1:{port}/mcp",
        "guarded": f"http://127.0.0.1:{guard.port}/mcp",
    }
    guard.stop()
    server.stdin.close()
    server.wait(20)
    server.stdout.close()


class Client:
    """A client that answers whatever the server asks, and notes what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.told.append(("elicit", params.message))
        return types.ElicitResult(action="accept", content={"name": "Ada", "age": 36})

    async def sample(
        self, context: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.told.append(("sample", params.messages[0].content.text))
        content = types.TextContent(type="text", text="forty-two")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(self, context: Any) -> types.ListRootsResult:
        self.told.append(("roots", None))
        return types.ListRootsResult(roots=[types.Root(uri="file:///tmp/x")])

    async def logged(self, params: types.LoggingMessageNotificationParams) -> None:
        self.told.append(("log", params.data))

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append(("progress", (progress, total, message)))


@asynccontextmanager
async def session(url: str, client: Client) -> AsyncIterator[ClientSession]:
    """Open an initialised session."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=30) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(
            read,
            write,
            PATIENCE,
            sampling_callback=client.sample,
            elicitation_callback=client.elicit,
            list_roots_callback=client.roots,
            logging_callback=client.logged,
        ) as opened,
    ):
        await opened.initialize()
        yield opened


async def tell_everything(url: str) -> list[Any]:
    """Run through the protocol and return all that the client saw."""
    client = Client()
    async with session(url, client) as mcp:
        seen: list[Any] = [
            await mcp.send_ping(),
            await mcp.list_tools(),
            await mcp.call_tool("echo", {"text": "Grüße 😀"}),
            await mcp.call_tool("fail", {"text": "no"}),
            await mcp.call_tool("count", {"to": 5}, progress_callback=client.progress),
            await mcp.call_tool("ask_user", {"question": "who?"}),
            await mcp.call_tool("ask_model", {"question": "what?"}),
            await mcp.call_tool("ask_roots", {}),
            await mcp.list_resources(),
            await mcp.list_resource_templates(),
            await mcp.read_resource("fixture://note"),
            await mcp.list_prompts(),
            await mcp.get_prompt("greet", {"name": "Ada"}),
        ]
    return [item.model_dump(mode="json") for item in seen] + client.told


def client_events(seen: list[Any]) -> list[Any]:
    """Return what the server told the client by itself."""
    return [item for item in seen if isinstance(item, tuple)]


async def test_a_client_sees_the_same_directly_and_through_the_guard(
    places: dict[str, str],
) -> None:
    """Calls, progress, logs, questions of the server, resources and prompts are all the same."""
    direct = await tell_everything(places["direct"])
    guarded = await tell_everything(places["guarded"])

    assert guarded == direct
    assert ("elicit", "who?") in guarded
    assert [item[0] for item in client_events(guarded)].count("progress") == 5


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        pytest.param("ask_user", {"question": "who?"}, "Ada is 36", id="elicitation"),
        pytest.param("ask_model", {"question": "what?"}, "forty-two", id="sampling"),
        pytest.param("ask_roots", {}, "file:///tmp/x", id="roots"),
    ],
)
async def test_a_server_that_asks_inside_an_open_stream_is_answered(
    places: dict[str, str], tool: str, arguments: dict[str, str], answer: str
) -> None:
    """The question reaches the client while the call that caused it is still open."""
    async with session(places["guarded"], Client()) as mcp:
        result = await mcp.call_tool(tool, arguments)

    assert result.content[0].text == answer
