"""A client of the official SDK logs in at a server behind the guard, at a real issuer."""

import json
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
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
  - {name: one, upstream: "127.0.0.1:{one}/mcp", tools: [{match: [read_note], role: retrieve}]}
  - {name: two, upstream: "127.0.0.1:{two}/mcp", tools: [{match: [read_note], role: retrieve}]}
rules:
  - {id: reads, type: tool, effect: allow, mapped: true}
"""
STEPS = ["register", "authorize", "token"]
BACK = "http://127.0.0.1:33418/callback"


class Kept:
    """What a client keeps of its login."""

    def __init__(self):
        self.tokens = None
        self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


class Browser:
    """Follows redirects until one leads to the client, as a user's browser does."""

    def __init__(self):
        self.visited = []
        self.answer = {}

    async def open(self, url):
        async with httpx.AsyncClient(timeout=60) as client:
            while not url.startswith(BACK):
                self.visited.append(url)
                reply = await client.get(url)
                assert reply.is_redirect, (url, reply.status_code, reply.text)
                url = reply.headers["location"]
        self.answer = parse_qs(urlsplit(url).query)

    async def returned(self):
        return self.answer["code"][0], self.answer["state"][0]


class Place:
    """Two tool servers and an issuer behind one guard.

    Args:
        rig: ends them.
        says: ``iss`` where the issuer names itself in its answers.
        shared: whether the servers share one listener, each under a path.
    """

    def __init__(self, rig, *, says="", shared=False):
        self.rig = rig
        self.kept = rig.directory / "tokens.json"
        number, self.one, self.two = free_port(), free_port(), free_port()
        self.issuer = f"http://127.0.0.1:{number}"
        words = ("issuer", str(number), str(self.kept), says)
        issuer = rig.start("issuer", sys.executable, SERVERS, *words)
        started = [(issuer, number)]
        for port in (self.one, self.two):
            words = ("server", str(port), self.issuer, str(self.kept))
            started.append((rig.start(f"server-{port}", sys.executable, SERVERS, *words), port))
        for child, port in started:
            child.wait_listening(port)
        policy = rig.directory / "policy.yaml"
        text = POLICY.replace("{one}", str(self.one)).replace("{two}", str(self.two))
        policy.write_text(text, "utf-8")
        ports = [free_port(), free_port()]
        at = [f"127.0.0.1:{ports[0]}/{n}" for n in ("one", "two")]
        if not shared:
            at = [f"127.0.0.1:{port}" for port in ports]
        self.urls = [f"http://{one}{'' if shared else '/mcp'}" for one in at]
        options = ["--policy", str(policy)]
        for place, port in zip(at, (self.one, self.two), strict=True):
            options += ["--reverse", f"{place}=http://127.0.0.1:{port}/mcp"]
        rig.begin_guard(*options, "--authorization-server", self.issuer).wait_ready()

    def events(self, name):
        lines = [json.loads(one) for one in self.rig.audit.read_text("utf-8").splitlines()]
        return [line for line in lines if line["event"] == name]

    def resources(self):
        """Return what the tokens were issued for."""
        return list(json.loads(self.kept.read_text("utf-8")).values())


async def asked(url, kept, browser):
    """Return what a server's tool answers a client that logs in where it is asked to."""
    metadata = OAuthClientMetadata(client_name="test", redirect_uris=[BACK])
    login = OAuthClientProvider(url, metadata, kept, browser.open, browser.returned)
    async with (
        httpx.AsyncClient(auth=login, timeout=60) as client,
        streamable_http_client(url, http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        await session.list_tools()
        answer = await session.call_tool("read_note", {"name": "n"})
        return str(answer.content[0].text)


@pytest.fixture(scope="module")
def apart():
    """Return two servers with a listener each, and an issuer that does not name itself."""
    with THE_RIG() as rig:
        yield Place(rig)


async def test_a_client_logs_in_through_the_guard(apart):
    """It finds the issuer by the listener, and gets a token for the server behind it."""
    kept, browser = Kept(), Browser()
    answer = await asked(apart.urls[0], kept, browser)

    assert answer == "the note n"
    assert apart.resources() == [f"http://127.0.0.1:{apart.one}/mcp"]
    hosts = [urlsplit(url).netloc for url in browser.visited]
    assert hosts == [urlsplit(apart.urls[0]).netloc, urlsplit(apart.issuer).netloc]
    assert apart.issuer not in str(kept.client)
    assert [line["step"] for line in apart.events("guard.login")] == STEPS


async def test_a_token_is_of_use_at_its_own_server_only(apart):
    """Neither token of a login is taken to the other server, and nothing of them goes there."""
    kept = Kept()
    await asked(apart.urls[0], kept, Browser())
    own, other = (url.removesuffix("/mcp") for url in apart.urls)
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": kept.tokens.refresh_token,
        "client_id": kept.client.client_id,
        "client_secret": kept.client.client_secret,
        "resource": f"http://127.0.0.1:{apart.two}/mcp",
    }
    async with httpx.AsyncClient(timeout=60) as client:
        refreshed = await client.post(f"{own}/.guard/oauth/token", data=fields)
        again = {**fields, "refresh_token": refreshed.json()["refresh_token"]}
        elsewhere = await client.post(f"{other}/.guard/oauth/token", data=again)
        headers = {"authorization": f"Bearer {refreshed.json()['access_token']}"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        shown = await client.post(apart.urls[1], json=message, headers=headers)

    assert set(apart.resources()) == {f"http://127.0.0.1:{apart.one}/mcp"}
    assert elsewhere.status_code == 403
    assert "token_elsewhere" in shown.text
    assert {line["code"] for line in apart.events("guard.unreadable")} == {"token_elsewhere"}
    assert "POST" not in (apart.rig.directory / f"server-{apart.two}.log").read_text("utf-8")
