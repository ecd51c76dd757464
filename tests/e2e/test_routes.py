"""Several servers behind one listener: each has a path, a name and tools of its own."""

import http.client
import json
from contextlib import AsyncExitStack
from functools import partial

import httpx
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl

from guard.processes.loopback import Rig, free_port
from guard.runtime.federation import application

POLICY = """
version: 1
name: routes
extends: builtin:office@2
internal_domains: [corp.example]
servers:
  - name: web
    upstream: "127.0.0.1:{web}/mcp"
    tools:
      - {{match: [echo], role: other}}
      - {{match: [resources/read, prompts/get, completion/complete], role: retrieve}}
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return the address of a listener in front of three servers, and the audit log."""
    directory = tmp_path_factory.mktemp("routes")
    with Rig() as rig:
        web, other = (rig.server("lab.fixture_server") for _ in range(2))
        old = rig.server("lab.fixture_server", "sse")
        policy = directory / "policy.yaml"
        policy.write_text(POLICY.format(web=web), "utf-8")
        at = f"127.0.0.1:{free_port()}"
        urls = {"web": f"{web}/mcp", "other": f"{other}/mcp", "old": f"{old}/sse"}
        routes = [f"--reverse={at}/{name}=http://127.0.0.1:{url}" for name, url in urls.items()]
        rig.begin_guard("--policy", str(policy), *routes).wait_ready()
        yield at, rig.audit


async def called(at, name, *, older=False):
    """Return the tools of a server, and what one of them answers."""
    async with AsyncExitStack() as stack:
        client = partial(sse_client, timeout=60) if older else streamable_http_client
        streams = await stack.enter_async_context(client(f"http://{at}/{name}"))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        answer = await session.call_tool("echo", {"text": "hello"})
        return tools, str(answer.content[0].text)


async def test_a_tool_is_that_of_the_server_under_its_path(places):
    """What is mapped for one server opens no tool of that name at another."""
    at, audit = places
    before = len(audit.read_bytes())
    tools, answer = await called(at, "web")
    same, refused = await called(at, "other")

    assert tools == same
    assert answer == "hello"
    assert "approv" in refused
    lines = [json.loads(line) for line in audit.read_bytes()[before:].splitlines()]
    assert {line["server"] for line in lines if line.get("tool") == "echo"} == {
        f"{at}/web",
        f"{at}/other",
    }


async def test_one_endpoint_federates_the_servers(places):
    """Lists are merged under prefixes; each call is judged as one to its own server."""
    at, audit = places
    urls = {"web": f"http://{at}/web", "other": f"http://{at}/other"}
    transport = httpx.ASGITransport(app := application(urls, ["federation"]))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, timeout=60) as client,
        streamable_http_client("http://federation/mcp", http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        answer = await session.call_tool("web__echo", {"text": "hello"})
        refused = await session.call_tool("other__echo", {"text": "hello"})
        resources = [str(one.uri) for one in (await session.list_resources()).resources]
        note = await session.read_resource(AnyUrl("federation:web/fixture://note"))
        prompt = await session.get_prompt("web__greet", {"name": "Ann"})
        for uri in ("federation:none/x:y", "fixture://note"):
            with pytest.raises(McpError, match="federation:NAME/"):
                await session.read_resource(AnyUrl(uri))
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        elsewhere = await client.post("http://evil.test/mcp", json=body)

    assert {"web__echo", "other__echo"} <= set(tools)
    assert answer.content[0].text == "hello"
    assert refused.isError
    assert "approv" in refused.content[0].text
    assert {"federation:web/fixture://note", "federation:other/fixture://note"} <= {*resources}
    assert note.contents[0].text == "a note"
    assert prompt.messages[0].content.text == "Greet Ann."
    assert elsewhere.status_code == 421
    lines = [json.loads(line) for line in audit.read_text("utf-8").splitlines()]
    ours = [x for x in lines if str(x.get("session", "")).startswith("federated-")]
    assert {line["server"] for line in ours if line.get("tool") == "echo"} == {
        f"{at}/web",
        f"{at}/other",
    }
    assert len({line["session"] for line in ours}) == 1


@pytest.mark.parametrize(
    "path",
    ["/", "/mcp", "/none/mcp", "/web/../other", "/web/..%2fother", "//web", "/WEB", "/we%62"],
)
def test_what_is_under_no_path_is_refused(places, path):
    """The paths are a closed list, in one spelling."""
    at, _ = places
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    # A client of httpx would mend the path.
    connection = http.client.HTTPConnection(at, timeout=60)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse().read()
    connection.close()

    assert b"echo" not in answer
    assert b"decision" in answer
