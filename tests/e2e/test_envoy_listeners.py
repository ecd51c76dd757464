"""TLS, HTTP/2, certificates and tokens at an Envoy; the guard decides who and what."""

import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from guard.processes.loopback import free_port
from guard.runtime.doctor_checks import Status
from guard.runtime.envoy_checks import check_envoy
from lab.envoy_rig import start_envoy
from tests.e2e.running_guard import (
    RunningGuard,
    Upstream,
    edge_before,
    needs_envoy,
    start_decider,
    tool_call,
)
from tests.e2e.test_principals import AGENT, FILE, public_pem, signed
from tests.e2e.tls_upstream import issue

pytestmark = [pytest.mark.e2e, needs_envoy]
HTTP = pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])


@dataclass
class Stage:
    """A guard between two sides of one Envoy, in front of a server."""

    guard: RunningGuard
    directory: Path
    tls: int
    """Port of the listener that speaks TLS."""

    def client(self, chain=None, *, http2=True):
        """Return a client of the listener that speaks TLS."""
        context = ssl.create_default_context(cafile=str(self.directory / "server-ca.pem"))
        if chain:
            context.load_cert_chain(self.directory / chain)
        base = f"https://localhost:{self.tls}"
        return httpx.Client(base_url=base, http2=http2, verify=context, trust_env=False, timeout=30)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """Everything that the shipped configuration has."""
    directory = tmp_path_factory.mktemp("listeners")
    issue(directory / "agents-ca.pem", AGENT, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    chain = issue(directory / "server-ca.pem", "localhost", "127.0.0.1")
    (directory / "key.pem").write_bytes(public_pem())
    (directory / "principals.toml").write_text(FILE, "utf-8")
    tls = free_port()
    with closing(Upstream()) as upstream:
        certificates = {
            "server.crt": chain,
            "server.key": chain,
            "agents-ca.crt": directory / "agents-ca.pem",
        }
        edge = edge_before(upstream, tls={tls: "mail"}, certificates=certificates)
        envoy = start_envoy(directory, edge)
        known = ("--credentials", str(directory / "principals.toml"))
        guard = start_decider(directory, edge, upstream, *known)
        guard.envoy = envoy
        yield Stage(guard, directory, tls)
        guard.stop()


def test_the_doctor_finds_nothing_in_what_runs(stage):
    """Its own dump of the shipped configuration, with the listeners of TLS and QUIC."""
    found = check_envoy(f"http://127.0.0.1:{stage.guard.envoy.admin}")

    assert {one.status for one in found} == {Status.OK}, found


@HTTP
def test_every_version_of_http_is_judged_alike(stage, http2):
    """An allowed call arrives by the way out, and says nothing of the guard; another does not."""
    received = stage.guard.upstream.received
    before = len(received)

    with stage.client(http2=http2) as client:
        answer = client.post("/mcp", json=tool_call(), headers=signed())
        sent, after = bytes(received[before:]), bytes(received)
        refused = client.post("/mcp", json=tool_call("a@evil.test"), headers=signed())
        nobody = client.post("/mcp", json=tool_call())

    assert answer.json()["result"]["content"][0]["text"] == "done"
    head, _, body = sent.partition(b"\r\n\r\n")
    assert json.loads(body) == tool_call()
    for word in (b"x-guard", b"proxy-authorization", b"x-forwarded", b"x-envoy", b"x-request-id"):
        assert word not in head.lower()
    assert refused.json()["result"]["isError"]
    assert nobody.status_code == 407
    assert received == after


@HTTP
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
    before = bytes(stage.guard.upstream.received)

    with stage.client() as client:
        over_tls = client.post("/mcp", json=tool_call(), headers=forged)
    status, _ = stage.guard.post(tool_call(), forged)

    assert (over_tls.status_code, status) == (407, 407)
    assert bytes(stage.guard.upstream.received) == before
