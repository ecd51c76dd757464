"""The admin port: liveness and readiness over real HTTP, and the prompt channel of front ends."""

import hashlib
import http.client
import io
import json
from contextlib import closing

import pytest

from guard.core.model import UserPrompt
from guard.runtime.admin_port import BODY_LIMIT, AdminServer, HealthReport, PromptChannel
from guard.telemetry.metrics import PrometheusMetrics


def ask(server, path, method="GET"):
    """Return status and body of one request."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()


def _broken():
    raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("health", "stages"),
    [
        (lambda: HealthReport(ready=False, stages={"state": "down"}), {"state": "down"}),
        (_broken, {"health": "RuntimeError"}),
    ],
    ids=["fails", "raises"],
)
def test_what_fails_is_named_and_the_guard_is_alive(health, stages):
    """A restart would not help a guard whose Redis is gone; the text of an error stays inside."""
    with closing(AdminServer("127.0.0.1", 0, PrometheusMetrics().registry, health)) as server:
        status, body = ask(server, "/readyz")

        assert (status, json.loads(body)) == (503, {"ready": False, "stages": stages})
        assert ask(server, "/healthz")[0] == 200
        for method, path, refused in (
            ("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/metrics", 405)
        ):  # fmt: skip
            assert ask(server, path, method)[0] == refused


SECRET = "front-" + "end"
GOOD = {"principal": "alice", "session": "s", "text": "mail carol@partner.test"}


@pytest.fixture
def heard():
    """Return what the channel passed on."""
    return []


@pytest.fixture
def channel(heard):
    """Return a channel with one front end."""
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    return PromptChannel({"web": digest}, lambda *said: heard.append(said))


def request(body, secret=f"Bearer {SECRET}", method="POST", length=None):
    """Return a WSGI request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {
        "REQUEST_METHOD": method,
        "HTTP_AUTHORIZATION": secret,
        "CONTENT_LENGTH": str(len(data)) if length is None else length,
        "wsgi.input": io.BytesIO(data),
    }


def test_a_front_end_is_heard(channel, heard):
    """Principal, session, text and structure arrive as they were sent."""
    status, _ = channel.answer(request(GOOD))
    stated = {"recipients": ["ann@x.test"], "hosts": ["docs.example.org"], "attachments": ["a.txt"]}
    both = channel.answer(request({**GOOD, **stated}))

    text = "mail carol@partner.test"
    assert (status, both[0]) == (202, 202)
    assert heard == [
        ("alice", "s", UserPrompt(text)),
        ("alice", "s", UserPrompt(text, ("ann@x.test",), ("docs.example.org",), ("a.txt",))),
    ]


@pytest.mark.parametrize(
    ("what", "status"),
    [
        (request(GOOD, secret=""), 401),
        (request(GOOD, secret="Bearer wrong"), 401),
        (request(GOOD, secret=f"Basic {SECRET}"), 401),
        (request(GOOD, method="GET"), 405),
        (request(GOOD, length=""), 411),
        (request(GOOD, length="-5"), 411),
        (request(GOOD, length=str(BODY_LIMIT + 1)), 413),
        (request(b"{"), 400),
        (request(b'{"principal":"a","principal":"b","session":"s","text":"t"}'), 400),
        (request({**GOOD, "more": 1}), 400),
        (request({**GOOD, "recipients": "ann@x.test"}), 400),
        (request({**GOOD, "hosts": [5]}), 400),
        (request({**GOOD, "attachments": ["a"] * 101}), 400),
        (request({**GOOD, "text": 5}), 400),
        (request({**GOOD, "session": ""}), 400),
        (request([1]), 400),
    ],
)
def test_everything_else_is_refused_and_nothing_is_noted(channel, heard, what, status):
    """No proof, no length, no JSON that reads one way only: no attestation."""
    assert (channel.answer(what)[0], heard) == (status, [])


def test_a_prompt_that_could_not_be_kept_is_not_confirmed():
    """The front end must not believe that its user was heard; without any, nobody is."""

    def fail(*_):
        raise TimeoutError

    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    assert PromptChannel({"web": digest}, fail).answer(request(GOOD))[0] == 503
    assert PromptChannel({}, fail).answer(request(GOOD, secret="Bearer "))[0] == 401
