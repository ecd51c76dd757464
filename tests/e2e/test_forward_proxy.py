"""The guard as an agent's HTTPS_PROXY: nothing passes unread, and nothing leads inside.

Every refusal here is proven at the other end: the upstream received no byte.
"""

import base64
import json
import ssl
from contextlib import ExitStack, closing, contextmanager

import httpx
import pytest

from guard.processes.loopback import free_port
from tests.e2e.running_guard import (
    http_bytes,
    secrets_file,
    start_guard,
    tool_call,
    wait_until,
)
from tests.e2e.tls_upstream import NAME, TlsUpstream, Tunnel, post_http2

SECRET = b"quarterly-figures-7731"
POLICY = """
version: 1
name: forward
mode: MODE
internal_domains: [localhost]
egress:
  ports: [PORTS]
  private: [PRIVATE]
  passthrough: [PASSTHROUGH]
tools:
  - match: [http.request, http.connect]
    role: send
    destinations: ["$.url"]
    body: ["$.body"]
    ignore: ["$.method", "$.host", "$.content_type"]
  - match: [email_send_email]
    role: send
    destinations: ["$.to"]
    body: ["$.subject", "$.body"]
rules:
  - {id: known, type: destination, roles: [send], status: [internal, allowed], effect: allow}
  - {id: unknown, type: destination, roles: [send], status: [external], effect: block}
"""


class Stage:
    """A guard with a forward listener, and a TLS upstream it may reach."""

    def __init__(self, directory, **options):
        self.upstream = TlsUpstream(directory)
        self.directory = directory
        ca = directory / "state" / "ca"
        self.authority = f"{NAME}:{self.upstream.port}"
        self.trust = ca / "mitmproxy-ca-cert.pem"
        self.proxy = free_port()
        self.guard = start_guard(
            directory / "guard",
            self.upstream,
            policy=self.policy(**options.pop("policy", {})),
            options=(
                *("--forward", f"127.0.0.1:{self.proxy}", "--ca", str(ca)),
                *("--upstream-ca", str(self.upstream.authority), *options.pop("options", ())),
            ),
            **options,
        )

    def policy(self, **changes):
        """Write the policy."""
        text = POLICY
        values = {"MODE": "enforce", "PORTS": str(self.upstream.port), "PRIVATE": "localhost"}
        for name, value in (values | {"PASSTHROUGH": "evil.example"} | changes).items():
            text = text.replace(name, value)
        path = self.directory / "policy.yaml"
        path.write_text(text, "utf-8")
        return path

    @contextmanager
    def tunnel(self, *headers, tls=True, **handshake):
        """Open a tunnel to the upstream."""
        with closing(Tunnel(self.proxy)) as tunnel:
            assert tunnel.connect(self.authority, *headers) == 200
            if tls:
                tunnel.start_tls(**{"trust": self.trust, **handshake})
            yield tunnel

    def ask(self, data, *headers, tls=True, **handshake):
        """Return what is answered to bytes in a tunnel of their own."""
        with self.tunnel(*headers, tls=tls, **handshake) as tunnel:
            return tunnel.ask(data)

    def post_http2(self, authority, body, *headers):
        """Return the status of a POST over HTTP/2; -1 is a reset."""
        with self.tunnel(alpn=("h2",)) as tunnel:
            return post_http2(tunnel, authority, body, *headers)

    def events(self):
        """Return the codes of what was refused before it was a call."""
        return [line["code"] for line in self.guard.audit() if line["event"] == "guard.unreadable"]

    def decisions(self):
        """Return the audit lines of decisions."""
        return [line for line in self.guard.audit() if line["event"] == "guard.decision"]

    def close(self):
        """Stop both."""
        self.guard.stop()
        self.upstream.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """Return one stage for the tests that leave it as it was."""
    with closing(Stage(tmp_path_factory.mktemp("forward"))) as made:
        yield made


@pytest.fixture
def build(tmp_path):
    """Make a stage of one's own."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(Stage(tmp_path, **options)))


def request(host, body=b"", *headers, target="/v1/note"):
    """Return a POST."""
    return http_bytes(body, *headers, target=target, host=host)


def test_a_tool_call_in_a_tunnel_is_judged_as_one(stage):
    """MCP through HTTPS_PROXY is MCP: a refused send gets a tool result, and nothing arrives."""
    call = json.dumps(tool_call("eve@evil.example")).encode()
    before = bytes(stage.upstream.received)
    reply = stage.ask(request(stage.authority, call, "content-type: application/json"))

    assert json.loads(reply.partition(b"\r\n\r\n")[2])["result"]["isError"] is True
    assert bytes(stage.upstream.received) == before


def test_a_real_client_needs_an_address_and_an_authority(stage):
    """An unchanged client goes through the guard with HTTPS_PROXY and SSL_CERT_FILE alone."""
    context = ssl.create_default_context(cafile=str(stage.trust))
    proxy = f"http://127.0.0.1:{stage.proxy}"
    with httpx.Client(proxy=proxy, verify=context, trust_env=False) as client:
        reply = client.post(f"https://{stage.authority}/real/note", content=b"well", timeout=60)

    assert reply.status_code == 200
    assert b"/real/note" in stage.upstream.received


def test_http2_is_judged_like_http1(stage):
    """The inner protocol changes neither verdict nor the check of the name."""
    before = bytes(stage.upstream.received)
    assert stage.post_http2("other.example", SECRET) == 421
    assert bytes(stage.upstream.received) == before

    assert stage.post_http2(stage.authority, b"well in frames") == 200
    assert b"well in frames" in stage.upstream.received


@pytest.mark.parametrize(
    "offered", [("PRIVATE", "http/1.1"), ("http/1.1", "PRIVATE"), ("PRIVATE",)]
)
def test_what_a_client_offers_to_speak_is_told_to_nobody(stage, offered):
    """The upstream is offered protocols that the guard speaks, not a client's words (ALPN)."""
    before = len(stage.upstream.hellos)
    alpn = tuple(one.replace("PRIVATE", SECRET.decode()) for one in offered)
    reply = stage.ask(request(stage.authority, b"well"), alpn=alpn)

    assert reply.startswith(b"HTTP/1.1 200")
    assert b"http/1.1" in stage.upstream.hellos[before:]
    assert SECRET not in stage.upstream.hellos


def test_what_follows_the_body_of_an_answer_reaches_nobody(stage):
    """A server's trailers: nobody has read them, and nobody waits for ever because of them."""
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: link\r\n\r\n"
    answer, stage.upstream.answer = (
        stage.upstream.answer,
        lambda _: head + b"4\r\nwell\r\n0\r\nlink: <https://next.test/>\r\n\r\n",
    )
    reply = stage.ask(request(stage.authority, b"well", "connection: close"))
    stage.upstream.answer = answer

    assert reply.startswith(b"HTTP/1.1 200")
    assert b"well" in reply
    assert b"next.test" not in reply


@pytest.mark.parametrize("header", ["Connection", "Keep-Alive", "TE"])
def test_what_is_said_of_a_connection_ends_with_it(stage, header):
    """Nobody judges these fields, as both connections get their own."""
    reply = stage.ask(request(stage.authority, b"well", f"{header}: close, {SECRET.decode()}"))

    assert reply.startswith(b"HTTP/1.1 200")
    assert SECRET not in stage.upstream.received


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\x00"])
def test_a_line_end_in_a_header_reaches_nobody(stage, end):
    """In the clear, in a tunnel and in HTTP/2: an upstream might find a second request in it."""
    before, connections = bytes(stage.upstream.received), stage.upstream.connections
    value = f"a{end}{end}POST /evil HTTP/1.1{end}host: {stage.authority}{end}content-length: 0"
    # In HTTP/1 a line feed ends the line for the guard as well: what follows is judged by itself.
    for tls in () if "\n" in end else (False, True):
        reply = stage.ask(request(stage.authority, b"hi", f"x-note: {value}"), tls=tls)
        assert reply.startswith(b"HTTP/1.1 400")
    assert stage.post_http2(stage.authority, b"hi", ("x-note", value)) in {400, -1}

    assert bytes(stage.upstream.received) == before
    assert stage.upstream.connections == connections


REFUSED_TUNNELS = [
    pytest.param("evil.example:22", 403, "port", id="port"),
    pytest.param("127.0.0.1:PORT", 403, "private_address", id="loopback"),
    pytest.param("169.254.169.254:PORT", 403, "private_address", id="metadata"),
    pytest.param("[::ffff:127.0.0.1]:PORT", 403, "private_address", id="mapped loopback"),
    pytest.param("[::1]:PORT", 403, "private_address", id="loopback of six"),
    pytest.param("2130706433:PORT", 403, "private_address", id="decimal loopback"),
    pytest.param("0x7f.1:PORT", 403, "private_address", id="hex loopback"),
    pytest.param("0177.0.0.1:PORT", 400, "bad_host", id="octal or decimal"),
    pytest.param("10.0.0.1:PORT", 403, "private_address", id="private"),
    pytest.param("local host:PORT", 400, "bad_http", id="space in the host"),
]


@pytest.mark.parametrize(("authority", "status", "code"), REFUSED_TUNNELS)
def test_a_tunnel_to_where_nobody_should_be_led_is_refused(stage, authority, status, code):
    """Ports and addresses are closed unless the policy opens them, in every spelling."""
    before, seen = bytes(stage.upstream.received), len(stage.events())
    counted = stage.guard.metric("guard_refusals_total", code=code)
    with closing(Tunnel(stage.proxy)) as tunnel:
        assert tunnel.connect(authority.replace("PORT", str(stage.upstream.port))) == status

    assert bytes(stage.upstream.received) == before
    assert wait_until(lambda: stage.events()[seen:], "an audit line") == [code]
    assert stage.guard.metric("guard_refusals_total", code=code) == counted + 1


RAW = [
    pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n" + SECRET + b"\r\n", id="ssh"),
    pytest.param(b"EHLO evil.example\r\nMAIL FROM:<a@b>\r\n" + SECRET + b"\r\n\r\n", id="smtp"),
    pytest.param(b"\x00\x01" + SECRET * 20 + b"\r\n\r\n", id="binary"),
    pytest.param(b"\x16" + SECRET + b"\r\n\r\n", id="almost tls"),
    pytest.param(b"\x16\x03\x01\x00\x05" + SECRET, id="tls record of nonsense"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SECRET, id="http2 without tls"),
    pytest.param(b"CONNECT other:443 HTTP/1.1\r\nhost: other\r\n\r\n" + SECRET, id="tunnel in it"),
]


@pytest.mark.parametrize("data", RAW)
def test_bytes_in_a_tunnel_that_are_not_http_go_nowhere(stage, data):
    """Neither plain nor inside TLS do raw bytes reach, or even connect to, the upstream."""
    before = stage.upstream.connections
    for tls in (False, True):
        with stage.tunnel(tls=tls) as tunnel:
            tunnel.socket.settimeout(1.0)
            assert not tunnel.ask(data).startswith(b"HTTP/1.1 2")

    assert stage.upstream.connections == before
    assert SECRET not in stage.upstream.received


UPGRADE = (
    *("connection: upgrade", "upgrade: websocket"),
    *("sec-websocket-version: 13", "sec-websocket-key: c2VjcmV0"),
)
UNSENT = [
    pytest.param({"host": "other.example"}, {b"400", b"421"}, id="another host header"),
    pytest.param({"host": "localhost:1"}, {b"400", b"421"}, id="another port"),
    pytest.param({"host": "SELF\r\nhost: other.example"}, {b"400", b"421"}, id="two hosts"),
    pytest.param({"target": "https://other.example/a"}, {b"400", b"421"}, id="absolute target"),
    pytest.param({"name": "other.example"}, {b"421"}, id="another handshake"),
    pytest.param({"headers": UPGRADE, "body": b""}, {b"403"}, id="websocket"),
]


@pytest.mark.parametrize(("asked", "statuses"), UNSENT)
def test_a_request_of_a_tunnel_that_was_not_judged_as_it_is_goes_nowhere(stage, asked, statuses):
    """The name in head and handshake must be the one that was judged; frames pass unjudged."""
    before = bytes(stage.upstream.received)
    host = asked.get("host", "SELF").replace("SELF", stage.authority)
    body, headers = asked.get("body", SECRET), asked.get("headers", ())
    data = request(host, body, *headers, target=asked.get("target", "/note"))
    reply = stage.ask(data, name=asked.get("name", NAME))

    assert reply.split(b" ")[1] in statuses
    assert bytes(stage.upstream.received) == before


@pytest.mark.parametrize("name", ["", f"{SECRET.decode()}."])
def test_a_redirect_is_judged_again_before_its_name_is_resolved(stage, name):
    """A query for a made-up name would already carry its label to whoever serves the zone."""
    errors = stage.guard.metric("guard_errors_total", stage="upstream")
    host = f"{name}evil.example:{stage.upstream.port}"
    with closing(Tunnel(stage.proxy)) as tunnel:
        reply = tunnel.ask(request(host, SECRET, target=f"http://{host}/drop"))

    assert reply.startswith(b"HTTP/1.1 403")
    assert stage.decisions()[-1]["action"] == "block"
    assert stage.guard.metric("guard_errors_total", stage="upstream") == errors


def test_a_passthrough_host_that_the_policy_does_not_allow_stays_closed(stage):
    """The bypass list says what is not opened, never what is allowed."""
    with closing(Tunnel(stage.proxy)) as tunnel:
        assert tunnel.connect(f"evil.example:{stage.upstream.port}") == 403
    last = stage.decisions()[-1]
    assert (last["tool"], last["action"]) == ("http.connect", "block")


def test_a_name_that_leads_inside_is_refused_at_the_address(build):
    """Rebinding ends here, also where a policy only watches: the address that is connected to."""
    stage = build(policy={"MODE": "monitor", "PRIVATE": ""})
    reply = stage.ask(request(stage.authority, SECRET))

    assert reply.startswith(b"HTTP/1.1 403")
    assert b"loopback" in reply
    assert stage.upstream.connections == 0
    assert stage.events() == ["private_address"]
    assert stage.guard.metric("guard_refusals_total", code="private_address") == 1


def test_a_sealed_host_is_one_opaque_call_and_a_foreign_certificate_gets_nothing(build):
    """Of a host of the passthrough list, TLS is the upstream's own and its name is checked.

    For all others the guard verifies the upstream: its clients only see the guard's certificate.
    """
    stage = build(policy={"PASSTHROUGH": "localhost"})
    reply = stage.ask(request(stage.authority, b"sealed"), trust=stage.upstream.authority)
    assert reply.startswith(b"HTTP/1.1 200")
    assert [(d["tool"], d["action"]) for d in stage.decisions()] == [("http.connect", "allow")]

    # Another name in the handshake is not what was judged: that one is opened, and refused.
    other = stage.ask(request(stage.authority, SECRET), name="other.example")
    assert other.startswith(b"HTTP/1.1 421")
    # And bytes that are no TLS are read as HTTP, like in any tunnel.
    with stage.tunnel(tls=False) as tunnel:
        tunnel.socket.settimeout(1.0)
        assert not tunnel.ask(SECRET + b"\r\n\r\n").startswith(b"HTTP/1.1 2")
    assert SECRET not in stage.upstream.received

    stranger = TlsUpstream(stage.directory / "guard", "somebody.example")
    stage.policy(PORTS=str(stranger.port))
    wait_until(lambda: "guard.policy" in str(stage.guard.audit()), "the reload")
    with closing(Tunnel(stage.proxy)) as tunnel:
        assert tunnel.connect(f"{NAME}:{stranger.port}") == 200
        tunnel.start_tls(stage.trust)
        foreign = tunnel.ask(request(f"{NAME}:{stranger.port}", SECRET))
    stranger.close()
    assert foreign.startswith(b"HTTP/1.1 502")
    assert SECRET not in stranger.received


def test_a_tunnel_needs_a_credential_where_one_is_required(build, tmp_path):
    """The credential of the CONNECT names the principal of every request in the tunnel."""
    known = secrets_file(tmp_path / "principals.toml", "scribe")
    stage = build(options=("--credentials", known))
    with closing(Tunnel(stage.proxy)) as tunnel:
        assert tunnel.connect(stage.authority) == 407
        assert b"proxy-authenticate: Basic" in tunnel.reply

    token = base64.b64encode(b"scribe:scribe").decode()
    shown = (f"proxy-authorization: Basic {token}", "x-guard-session: s-1")
    assert stage.ask(request(stage.authority, b"well"), *shown).startswith(b"HTTP/1.1 200")
    line = stage.decisions()[-1]
    assert (line["principal"], line["session"]) == ("scribe", "s-1")

    # Inside, a credential for a proxy is for nobody, unless it is the tunnel's once more.
    hidden = base64.b64encode(b"root:kept-out-7Pjw").decode()
    with stage.tunnel(*shown) as tunnel:
        for body, code, status in ((b"once more", token, b"200"), (b"unsent", hidden, b"400")):
            said = f"proxy-authorization: Basic {code}"
            assert tunnel.ask(request(stage.authority, body, said)).split(b" ")[1] == status
    assert b"unsent" not in stage.upstream.received
    assert token.encode() not in stage.upstream.received
    assert stage.events() == ["bad_credential", "duplicate_header"]
