"""Messages that are never finished take no more than their share of a worker's memory."""

import contextlib
import socket
from contextlib import ExitStack

import pytest

from tests.e2e.running_guard import Upstream, serving, tool_call, wait_until

BODIES = 24
SENT = 50_000


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return a guard that holds four bodies of the largest size, and its upstream."""
    server = Upstream()
    options = ("--body-limit", "64k", "--held-limit", "256k")
    with serving(tmp_path_factory.mktemp("guard"), server, options=options) as guard:
        yield guard, server


def unfinished(guard):
    """Return a connection by which most of a body has been sent."""
    client = socket.create_connection(("127.0.0.1", guard.port), timeout=60)
    lines = ("POST /mcp HTTP/1.1", "host: x", "content-type: application/json")
    head = "\r\n".join((*lines, f"content-length: {SENT + 1}", "", ""))
    with contextlib.suppress(ConnectionError):
        client.sendall(head.encode() + b" " * SENT)
    return client


def test_bodies_that_are_never_finished_keep_nobody_out(places):
    """Most are refused and on record, none reaches the upstream, and a short call passes."""
    guard, server = places
    with ExitStack() as stack:
        for _ in range(BODIES):
            stack.enter_context(unfinished(guard))
        wait_until(
            lambda: guard.metric("guard_refusals_total", code="no_room") >= BODIES - 10,
            "the refusal of bodies",
        )
        for number in range(3):
            status, answer = guard.post(tool_call(ident=number))
            assert (status, answer["result"].get("isError", False)) == (200, False)
    codes = [line.get("code") for line in guard.audit()]
    assert codes.count("no_room") >= BODIES - 10
    assert b" " * 100 not in bytes(server.received)


def test_what_was_held_is_given_back(places):
    """Once the connections are gone, a body of the largest size passes again."""
    guard, _ = places
    call = tool_call(ident=9)
    call["params"]["arguments"]["body"] = "all is well " * 4000

    def passes():
        return guard.post(call)[0] == 200

    wait_until(passes, "room for a large body")
