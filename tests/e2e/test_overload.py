"""More calls than a worker can judge are refused in time; no unjudged one passes, others go on."""

import json
import os
import signal
import socket
from contextlib import ExitStack, contextmanager

from lab.guard_processes import redis_of
from tests.e2e.running_guard import (
    json_bytes,
    read_response,
    secrets_file,
    serving,
    tool_call,
    wait_until,
)


@contextmanager
def stopped(pid):
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def called(stack, guard, principal, ident):
    """Return a connection on which a principal has made a call."""
    client = stack.enter_context(socket.create_connection(("127.0.0.1", guard.port), timeout=60))
    secret = f"proxy-authorization: Bearer {principal}"
    client.sendall(json_bytes(tool_call(ident=ident), secret))
    return client


def answer(client):
    """Return head and document of an answer."""
    head, _, body = read_response(client).partition(b"\r\n\r\n")
    return head.decode().lower(), json.loads(body)


def test_a_call_that_waits_too_long_is_refused_and_leaves_room_for_another_principal(tmp_path):
    """Calls of one fill half of the places while Redis hangs; the others are told when to retry."""
    people = secrets_file(tmp_path / "agents.toml", "loud", "quiet")
    options = ("--credentials", people, "--state-timeout", "600", "--heartbeat", "600")
    options += ("--concurrency", "2", "--queue-timeout", "0.1")
    with serving(tmp_path / "guard", options=options) as guard, ExitStack() as stack:
        with stopped(redis_of(guard.process.pid).pid):
            loud = [called(stack, guard, "loud", n) for n in range(6)]
            wait_until(
                lambda: guard.metric("guard_refusals_total", code="overloaded") == 5, "refusals"
            )
            assert b"tools/call" not in guard.upstream.received
            quiet = called(stack, guard, "quiet", "q")
        _, passed = answer(quiet)
        answers = [answer(one) for one in loud]
        lines = [line for line in guard.audit() if line.get("code") == "overloaded"]

    assert not passed["result"].get("isError", False)
    refused = [(head, said) for head, said in answers if said["result"].get("isError", False)]
    assert len(refused) == 5
    for head, document in refused:
        assert head.startswith("http/1.1 200")
        assert "\r\nretry-after: 1" in head
        assert "Retry: after 1 s." in document["result"]["content"][0]["text"]
    assert {(x["event"], x["enforced"], x["principal"]) for x in lines} == {
        ("guard.unreadable", "block", "loud")
    }
    assert bytes(guard.upstream.received).count(b"tools/call") == 2
