"""A client of the official SDK logs in at a server behind the guard, at a real issuer."""

import json
import sys
from pathlib import Path
from unittest.mock import AsyncMock
from urllib.parse import parse_qs, urlsplit

import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

from guard.processes.loopback import free_port
from tests.e2e.running_guard import THE_RIG

SERVERS = str(Path(__file__).with_name("login_servers.py"))
POLICY = """
version: 1
name: login
tools:
  - {match: [read_note], role: retrieve}
servers:
  - {name: one, upstream: "127.0.0.1:{port}/mcp", tools: [{match: [read_note], role: retrieve}]}
rules:
  - {id: reads, type: tool, effect: allow, mapped: true}
"""
BACK = "http://127.0.0.1:33418/callback"


class Place:
    """A tool server and an issuer behind one guard.

    Args:
        rig: ends them.
        says: ``iss`` where the issuer names itself in its answers.
        path: of the listener at which the server is.
    """

    def __init__(self, rig, *, says="", path=""):
        self.rig = rig
        self.kept = rig.directory / "tokens.json"
        number, self.port, port = free_port(), free_port(), free_port()
        self.issuer = f"http://127.0.0.1:{number}"
        for words, listens in (
            (("issuer", str(number), str(self.kept), says), number),
            (("server", str(self.port), self.issuer, str(self.kept)), self.port),
        ):
            rig.start(words[0], sys.executable, SERVERS, *words).wait_listening(listens)
        policy = rig.directory / "policy.yaml"
        policy.write_text(POLICY.replace("{port}", str(self.port)), "utf-8")
        at = f"127.0.0.1:{port}{path}"
        self.url = f"http://{at}" if path else f"http://{at}/mcp"
        listener = ("--reverse", f"{at}=http://127.0.0.1:{self.port}/mcp")
        known = ("--authorization-server", self.issuer)
        rig.begin_guard("--policy", str(policy), *listener, *known).wait_ready()

    def resources(self):
        """Return what the tokens were issued for."""
        return list(json.loads(self.kept.read_text("utf-8")).values())


async def logged_in(url):
    """Log in where a server asks for it and call its tool, as an agent and its user's browser do.

    Returns:
        What the tool answers, the pages that the browser has seen, and what the agent keeps.
    """
    kept = AsyncMock(**{"get_tokens.return_value": None, "get_client_info.return_value": None})
    visited, answer = [], {}

    async def opened(page):
        async with httpx.AsyncClient(timeout=60) as browser:
            while not page.startswith(BACK):
                visited.append(page)
                page = (await browser.get(page)).headers["location"]
        answer.update(parse_qs(urlsplit(page).query))

    async def returned():
        return answer["code"][0], answer["state"][0]

    metadata = OAuthClientMetadata(client_name="test", redirect_uris=[BACK])
    login = OAuthClientProvider(url, metadata, kept, opened, returned)
    async with (
        httpx.AsyncClient(auth=login, timeout=60) as client,
        streamable_http_client(url, http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        await session.list_tools()
        said = await session.call_tool("read_note", {"name": "n"})
        return str(said.content[0].text), visited, kept


async def test_a_client_logs_in_through_the_guard():
    """It finds the issuer by the listener, and gets a token for the server behind it."""
    with THE_RIG() as rig:
        place = Place(rig)
        answer, visited, kept = await logged_in(place.url)
        resources = place.resources()
        lines = [json.loads(one) for one in rig.audit.read_text("utf-8").splitlines()]

    assert answer == "the note n"
    assert resources == [f"http://127.0.0.1:{place.port}/mcp"]
    hosts = [urlsplit(url).netloc for url in visited]
    assert hosts == [urlsplit(place.url).netloc, urlsplit(place.issuer).netloc]
    assert place.issuer not in str(kept.set_client_info.call_args)
    assert [line["step"] for line in lines if line["event"] == "guard.login"] == [
        "register",
        "authorize",
        "token",
    ]
