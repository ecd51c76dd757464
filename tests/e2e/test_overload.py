"""More calls than a worker can judge are refused in time; no unjudged one passes, others go on."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import ExitStack, contextmanager

from lab.guard_processes import redis_of
from tests.e2e.running_guard import read_response, secrets_file, serving, tool_call, wait_until


def guarded(directory, *options):
    """Return a guard of two principals whose calls wait for Redis as long as they must."""
    people = secrets_file(directory / "agents.toml", "loud", "quiet")
    given = ("--credentials", people, "--state-timeout", "600", "--heartbeat", "600")
    return serving(directory / "guard", options=(*given, *options))


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
    body = json.dumps(tool_call(ident=ident)).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"proxy-authorization: Bearer {principal}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    client.sendall(head.encode() + body)
    return client


def answer(client):
    """Return head and document of an answer."""
    head, _, body = read_response(client).partition(b"\r\n\r\n")
    return head.decode().lower(), json.loads(body)


def refused(document):
    """Return whether an answer is a refusal."""
    return document["result"].get("isError", False)


def test_a_call_that_waits_too_long_is_refused_and_told_when_to_retry(tmp_path):
    """One is judged and held up by Redis; the other is refused unjudged, read by its client."""
    with guarded(tmp_path, *("--concurrency", "1", "--queue-timeout", "0.1")) as guard:
        with ExitStack() as stack, stopped(redis_of(guard.process.pid).pid):
            clients = [called(stack, guard, "loud", n) for n in range(2)]
            wait_until(
                lambda: guard.metric("guard_refusals_total", code="overloaded") == 1, "a refusal"
            )
            assert b"tools/call" not in guard.upstream.received
            os.kill(redis_of(guard.process.pid).pid, signal.SIGCONT)
            answers = [answer(client) for client in clients]
        [(head, document)] = [one for one in answers if refused(one[1])]
        assert head.startswith("http/1.1 200")
        assert "\r\nretry-after: 1" in head
        told = document["result"]["content"][0]["text"]
        assert "Retry: after 1 s." in told
        [line] = [line for line in guard.audit() if line.get("code") == "overloaded"]
        assert (line["event"], line["enforced"]) == ("guard.unreadable", "block")
        assert line["principal"] == "loud"
        assert bytes(guard.upstream.received).count(b"tools/call") == 1


def test_one_principal_leaves_room_for_another(tmp_path):
    """Its calls fill half of the places; a call of somebody else is judged beside them."""
    with guarded(tmp_path, "--concurrency", "2", "--queue-timeout", "0.1") as guard:
        with ExitStack() as stack, stopped(redis_of(guard.process.pid).pid):
            loud = [called(stack, guard, "loud", n) for n in range(6)]
            wait_until(
                lambda: guard.metric("guard_refusals_total", code="overloaded") == 5, "refusals"
            )
            quiet = called(stack, guard, "quiet", "q")
            os.kill(redis_of(guard.process.pid).pid, signal.SIGCONT)
            assert not refused(answer(quiet)[1])
            assert sum(refused(answer(one)[1]) for one in loud) == 5
        assert {line["principal"] for line in guard.audit() if "overloaded" in str(line)} == {
            "loud"
        }
