"""TLS, HTTP/2 and 3, certificates and tokens at an Envoy; the guard decides who and what."""

import asyncio
import json
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from guard.processes.loopback import free_port
from lab.envoy_rig import Certificates, Edge, start_envoy
from tests.e2e import quic_client
from tests.e2e.running_guard import (
    RunningGuard,
    Upstream,
    needs_envoy,
    start_decider,
    tool_call,
)
from tests.e2e.test_principals import AGENT, FILE, KEY, public_pem
from tests.e2e.tls_upstream import issue

pytestmark = [pytest.mark.e2e, needs_envoy]
SERVERS = ("mail", "files")


@dataclass
class Stage:
    """A guard between two sides of one Envoy, in front of three servers."""

    guard: RunningGuard
    directory: Path
    clear: dict[str, int]
    """Port of each server's listener in the clear."""
    tls: int
    upstreams: dict[str, Any]

    def client(self, chain=None, *, http2=True):
        """Return a client of the listener that speaks TLS."""
        context = ssl.create_default_context(cafile=str(self.directory / "server-ca.pem"))
        if chain:
            context.load_cert_chain(self.directory / chain)
        base = f"https://localhost:{self.tls}"
        return httpx.Client(base_url=base, http2=http2, verify=context, trust_env=False, timeout=30)

    def received(self):
        """Return what all servers have received."""
        return b"".join(bytes(one.received) for one in self.upstreams.values())


def token(subject="clerk", audience="guard"):
    """Return the header field of a client with a signed token."""
    claims = {"iss": "https://id.test", "aud": audience, "sub": subject, "exp": 4_000_000_000}
    return {"proxy-authorization": f"Bearer {jwt.encode(claims, KEY, 'ES256')}"}


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """Everything that the shipped configuration has."""
    directory = tmp_path_factory.mktemp("listeners")
    issue(directory / "agents-ca.pem", AGENT, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    issue(directory / "strangers-ca.pem", AGENT, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    chain = issue(directory / "server-ca.pem", "localhost", "127.0.0.1")
    (directory / "key.pem").write_bytes(public_pem())
    (directory / "principals.toml").write_text(FILE, "utf-8")
    upstreams = {name: Upstream() for name in SERVERS}
    place = Path(tempfile.mkdtemp(prefix="guard-envoy-"))
    clear = {name: free_port() for name in SERVERS}
    tls = free_port()
    edge = Edge(
        guard=f"unix:{place / 'decide.sock'}",
        clear={port: name for name, port in clear.items()},
        tls={tls: "mail"},
        certificates=Certificates(chain, chain, directory / "agents-ca.pem"),
        egress=str(place / "egress.sock"),
        servers={name: ("127.0.0.1", one.port) for name, one in upstreams.items()},
    )
    envoy = start_envoy(directory, edge)
    known = ("--credentials", str(directory / "principals.toml"))
    guard = start_decider(directory, edge, upstreams, *known)
    guard.envoy = envoy
    yield Stage(guard, directory, clear, tls, upstreams)
    guard.stop()
    for one in upstreams.values():
        one.close()


def asked(stage, http, document, headers):
    """POST to the first server over a version of HTTP; return status and parsed answer."""
    body = json.dumps(document).encode()
    if http == "3":
        trust = stage.directory / "server-ca.pem"
        status, said = asyncio.run(quic_client.post(stage.tls, trust, body, headers))
        return status, json.loads(said)
    with stage.client(http2=http == "2") as client:
        content = {"content-type": "application/json", **headers}
        answer = client.post("/mcp", content=body, headers=content)
    assert answer.http_version == f"HTTP/{http}"
    return answer.status_code, answer.json()


@pytest.mark.parametrize("http", ["1.1", "2", "3"])
def test_every_version_of_http_is_judged_alike(stage, http):
    """An allowed call arrives by the way out, and says nothing of the guard; another does not."""
    before = len(stage.upstreams["mail"].received)

    status, answer = asked(stage, http, tool_call(), token())
    sent = bytes(stage.upstreams["mail"].received[before:])
    after = stage.received()
    refused, observation = asked(stage, http, tool_call("a@evil.test"), token())
    nobody, _ = asked(stage, http, tool_call(), {})

    assert (status, answer["result"]["content"][0]["text"]) == (200, "done")
    head, _, body = sent.partition(b"\r\n\r\n")
    assert json.loads(body) == tool_call()
    for word in (b"x-guard", b"proxy-authorization", b"x-forwarded", b"x-envoy", b"x-request-id"):
        assert word not in head.lower()
    assert (refused, observation["result"]["isError"]) == (200, True)
    assert nobody == 407
    assert stage.received() == after


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
def test_a_certificate_that_envoy_saw_is_who_the_agent_is(stage, http2):
    """The guard has verified its chain, and takes the name from it."""
    with stage.client("agents-ca-chain.pem", http2=http2) as client:
        statuses = [client.post("/mcp", json=tool_call()).status_code for _ in range(2)]

    line = stage.guard.audit()[-1]
    assert statuses == [200, 200]
    assert (line["principal"], line["principal_rung"]) == (AGENT, "credential")


def test_nobody_can_say_whose_certificate_he_has(stage):
    """Of the fields that Envoy fills in, what a client says is not there any more."""
    from urllib.parse import quote

    pem = (stage.directory / "agents-ca-chain.pem").read_text("ascii")
    leaf = pem[pem.index("-----BEGIN CERTIFICATE-----") :]
    forged = {"x-forwarded-client-cert": f'Hash=0;Chain="{quote(leaf)}"', "X-Guard-Front": "x"}
    before = stage.received()

    with stage.client() as client:
        over_tls = client.post("/mcp", json=tool_call(), headers=forged)
    status, _ = stage.guard.post(tool_call(), forged)

    assert (over_tls.status_code, status) == (407, 407)
    assert stage.received() == before
