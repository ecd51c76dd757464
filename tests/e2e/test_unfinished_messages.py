"""Messages that are never finished take no more than their share of a worker's memory."""

import socket
from contextlib import ExitStack, suppress

from tests.e2e.running_guard import json_bytes, tool_call, wait_until

BODIES = 24
SENT = 50_000


def test_bodies_that_are_never_finished_keep_nobody_out(launch):
    """Most are refused and on record, none reaches the upstream, and a short call passes."""
    guard = launch(options=("--body-limit", "64k", "--held-limit", "256k"))
    asked = json_bytes(b" " * SENT, f"content-length: {SENT + 1}")
    with ExitStack() as stack:
        for _ in range(BODIES):
            client = socket.create_connection(("127.0.0.1", guard.port), timeout=60)
            stack.enter_context(client)
            with suppress(ConnectionError):
                client.sendall(asked)
        wait_until(
            lambda: guard.metric("guard_refusals_total", code="no_room") >= BODIES - 10,
            "the refusal of bodies",
        )
        for number in range(3):
            status, answer = guard.post(tool_call(ident=number))
            assert (status, answer["result"].get("isError", False)) == (200, False)
    codes = [line.get("code") for line in guard.audit()]
    assert codes.count("no_room") >= BODIES - 10
    assert b" " * 100 not in bytes(guard.upstream.received)
