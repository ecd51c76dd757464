"""A real Envoy with the shipped configuration, in front of ``guard decide``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.running_guard import RunningGuard, Upstream, needs_envoy, start_guard, tool_call

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, needs_envoy]
FRONTED = {"GUARD_PEP": "envoy"}


@pytest.fixture(scope="module")
def fronted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGuard]:
    """A guard with an Envoy in front, for tests that leave both as they were."""
    server = Upstream()
    guard = start_guard(tmp_path_factory.mktemp("fronted"), server, environment=FRONTED)
    yield guard
    guard.stop()
    server.close()


def test_an_allowed_call_reaches_the_server_as_its_client_made_it(fronted: RunningGuard):
    """With the client's spelling of names, and without a word of Envoy's or the guard's."""
    before = len(fronted.upstream.received)

    status, answer = fronted.post(tool_call(ident="abc"), {"X-Own": "Kept"})

    assert (status, answer["id"]) == (200, "abc")
    head, _, body = bytes(fronted.upstream.received[before:]).partition(b"\r\n\r\n")
    assert json.loads(body) == tool_call(ident="abc")
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]
    assert sorted(names) == sorted(
        [b"host", b"content-type", b"X-Own", b"Content-Length", b"Accept-Encoding"]
    )
    line = fronted.audit()[-1]
    assert line["enforced"] == "allow"


def test_a_refused_call_never_reaches_the_server(fronted: RunningGuard):
    """The refusal is the guard's own, and Envoy has no way to the server but the guard."""
    before = bytes(fronted.upstream.received)

    status, answer = fronted.post(tool_call("a@evil.test"))

    assert (status, answer["result"]["isError"]) == (200, True)
    assert fronted.upstream.received == before
    assert fronted.audit()[-1]["enforced"] == "ask"
