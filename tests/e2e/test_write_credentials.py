"""Write credentials on the wire: a client certificate to a TLS store, a header behind a proxy."""

import json
import ssl
from contextlib import closing

import httpx
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from guard.processes.loopback import free_port
from tests.e2e.running_guard import Upstream, start_guard, tool_call
from tests.e2e.test_memory_gate import POLICY, SECRET
from tests.e2e.tls_upstream import NAME, TlsUpstream, issue

pytestmark = pytest.mark.e2e


class Stage:
    """A guard with a reverse listener before the TLS store, and a forward listener."""

    def __init__(self, directory):
        self.writer = issue(
            directory / "writers.pem", "guard", usage=ExtendedKeyUsageOID.CLIENT_AUTH
        )
        self.store = TlsUpstream(directory)
        # It lets nobody in without a certificate of its writers' authority.
        self.store.context.verify_mode = ssl.CERT_REQUIRED
        self.store.context.load_verify_locations(directory / "writers.pem")
        self.plain, self.other = Upstream(), Upstream()
        self.listener, self.proxy = free_port(), free_port()
        ports = f"ports: [{self.plain.port}, {self.other.port}]"
        policy = directory / "policy.yaml"
        text = POLICY.read_text(encoding="utf-8").replace("[example.com]", "[localhost]")
        # Behind a forward listener, the host that an agent has chosen is judged as well.
        host = 'match: [http.request], role: send, destinations: ["$.url"]'
        text = text.replace("tools:\n", f"tools:\n  - {{{host}}}\n", 1)
        policy.write_text(f"{text}\negress: {{{ports}, private: [localhost]}}\n", encoding="utf-8")
        credentials = directory / "write.toml"
        credentials.write_text(
            f'["127.0.0.1:{self.listener}"]\nclient_certificate = "{self.writer.name}"\n'
            f'["127.0.0.1:{self.proxy}"]\nhost = "{NAME}:{self.plain.port}"\n'
            f'header = "x-write-key"\nsecret = "{SECRET}"\n',
            encoding="utf-8",
        )
        self.guard = start_guard(
            directory / "guard",
            self.plain,
            policy=policy,
            options=(
                *("--reverse", f"127.0.0.1:{self.listener}=https://{NAME}:{self.store.port}"),
                *("--upstream-ca", str(self.store.authority)),
                *("--forward", f"127.0.0.1:{self.proxy}", "--ca", str(directory / "ca")),
                *("--write-credentials", str(credentials)),
            ),
        )

    def close(self):
        """Stop everything."""
        self.guard.stop()
        for upstream in (self.store, self.plain, self.other):
            upstream.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """One guard for the module."""
    with closing(Stage(tmp_path_factory.mktemp("credentials"))) as made:
        yield made


HEADERS = {"content-type": "application/json", "x-guard-session": "s"}


def _write(content):
    write = {"key": content, "content": content, "memory_class": "L4"}
    return json.dumps(tool_call(tool="memory_write", **write))


def test_a_committed_write_shows_the_certificate_and_a_read_does_not(stage):
    """On one connection of the agent: write, read, write; the store shuts its door on the read."""
    bodies = (
        _write("first fact"),
        json.dumps(tool_call(tool="memory_get", key="x")),
        _write("second fact"),
    )
    at = f"http://127.0.0.1:{stage.listener}/mcp"
    with httpx.Client(trust_env=False, timeout=60) as client:
        statuses = [client.post(at, content=one, headers=HEADERS).status_code for one in bodies]

    # The read is answered with the guard's own words: its server shut the door.
    assert statuses == [200, 200, 200]
    assert b"first fact" in stage.store.received
    assert b"second fact" in stage.store.received
    assert b"memory_get" not in stage.store.received


def test_behind_a_forward_listener_only_the_named_store_gets_the_credential(stage):
    """An agent that names another upstream commits its write there with no credential on it."""
    for upstream in (stage.plain, stage.other):
        url = f"http://{NAME}:{upstream.port}/mcp"
        proxy = f"http://127.0.0.1:{stage.proxy}"
        with httpx.Client(proxy=proxy, trust_env=False, timeout=60) as client:
            answer = client.post(url, content=_write(f"to {upstream.port}"), headers=HEADERS)
        assert (answer.status_code, "done" in answer.text) == (200, True)

    assert f"to {stage.plain.port}".encode() in stage.plain.received
    assert SECRET.encode() in stage.plain.received
    assert f"to {stage.other.port}".encode() in stage.other.received
    assert SECRET.encode() not in stage.other.received


def test_neither_key_nor_secret_is_to_be_read_anywhere(stage):
    """Not in the log, the audit or the metrics."""
    key = stage.writer.read_text(encoding="utf-8").splitlines()[1].encode()
    url = f"http://127.0.0.1:{stage.guard.admin}/metrics"
    metrics = httpx.get(url, trust_env=False, timeout=60).content

    for text in (stage.guard.log_path.read_bytes(), stage.guard.audit_path.read_bytes(), metrics):
        assert key not in text
        assert SECRET.encode() not in text
