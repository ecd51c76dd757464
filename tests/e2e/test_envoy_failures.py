"""An Envoy whose guard is gone, stands still, restarts, or is no guard: nothing goes out."""

import os
import signal
import socket
import threading
from itertools import count
from pathlib import Path

import httpx
import pytest

from guard.processes.loopback import Rig
from lab.envoy_rig import start_envoy
from tests.e2e.running_guard import (
    Upstream,
    edge_before,
    http_answer,
    json_bytes,
    needs_envoy,
    start_decider,
    tool_call,
    wait_until,
)

pytestmark = [pytest.mark.e2e, needs_envoy]


class Stand:
    """An Envoy in front of a guard that comes and goes, and behind it again before the server."""

    def __init__(self, rig, upstream):
        self.rig, self.upstream = rig, upstream
        self.edge = edge_before(upstream)
        [self.port] = self.edge.clear
        self.socket = Path(self.edge.guard.removeprefix("unix:"))
        rig.keep(start_envoy(rig.directory, self.edge).child)

    def guard(self, name):
        """Start a guard."""
        beat = {"GUARD_HEARTBEAT": "2"}
        guard = start_decider(self.rig.directory, self.edge, self.upstream, name=name, **beat)
        self.rig.keep(guard.child)
        return guard

    def post(self):
        """Make the benign call on a connection of its own."""
        url = f"http://127.0.0.1:{self.port}/mcp"
        return httpx.post(url, json=tool_call(), trust_env=False, timeout=60)


@pytest.fixture
def stand(tmp_path, upstream):
    """An Envoy whose guard has not been started."""
    with Rig(tmp_path) as rig:
        yield Stand(rig, upstream)


@pytest.fixture
def impostor(stand):
    """Listen where the guard should, and answer the nth request as a function of n says."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stand.socket))
        listener.listen()
        server, numbers = Upstream(listener), count(1)

        def answers(answer):
            server.answer = lambda _: answer(next(numbers))

        yield answers
        server.close()


def says(text):
    """Return an answer with a text."""
    return http_answer(text.encode(), "text/plain")


def test_without_a_guard_nothing_goes_out_and_with_it_again(stand):
    """Never started, killed, started again: 503 in between, and the server is sent nothing."""
    before = stand.post()
    guard = stand.guard("first")
    served = stand.post()
    sent = bytes(stand.upstream.received)
    os.kill(guard.process.pid, signal.SIGKILL)
    wait_until(lambda: not stand.socket.exists() or _is_refused(stand.socket), "the guard's end")
    killed = stand.post()
    stand.guard("second")
    again = stand.post()

    assert [one.status_code for one in (before, served, killed, again)] == [503, 200, 503, 200]
    for refused in (before, killed):
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["title"] == "refused before it was judged"
    assert sent.count(b"POST /mcp") == 1
    assert bytes(stand.upstream.received).count(b"POST /mcp") == 2


def _is_refused(path):
    with socket.socket(socket.AF_UNIX) as made:
        return made.connect_ex(str(path)) != 0


def test_an_answer_that_nobody_asked_for_reaches_nobody(stand, impostor):
    """Twice: the second one is on a connection that ends with it."""
    impostor(lambda number: says("first") + says("extra") if number == 1 else says(f"own {number}"))
    with httpx.Client(trust_env=False, timeout=30) as client:
        url = f"http://127.0.0.1:{stand.port}/mcp"
        found = [client.post(url, json=tool_call()).text for _ in range(3)]
        found.append(stand.post().text)

    assert found[0] == "first"
    assert "extra" not in "".join(found)


def test_an_answer_that_comes_late_reaches_nobody(stand, impostor):
    """Its client has left; the next one, and another, get their own."""
    late, left = threading.Event(), threading.Event()

    def answer(number):
        if number == 1:
            late.set()
            left.wait(30)
            return says("late")
        return says(f"own {number}")

    impostor(answer)
    with socket.create_connection(("127.0.0.1", stand.port), timeout=30) as client:
        client.sendall(json_bytes(tool_call()))
        late.wait(30)
    other = stand.post().text
    left.set()
    later = stand.post().text

    assert (other, later) == ("own 2", "own 3")


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["nonsense", "two lengths"],
)
def test_what_is_no_answer_is_a_refusal(stand, impostor, said):
    """Whoever listens there, no call goes on because of what he says."""
    impostor(lambda number: said)
    answer = stand.post()

    assert answer.status_code in {502, 503}
    assert bytes(stand.upstream.received) == b""
