"""Several workers: calls go on while one dies or is replaced, and one admin port speaks for all."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.processes.loopback import START_SECONDS
from tests.e2e.clients import Load
from tests.e2e.running_guard import (
    ROOT,
    RunningGuard,
    Upstream,
    not_behind_envoy,
    read_response,
    serving,
    start_guard,
    tool_call,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.store.embedded import EmbeddedRedis

    Launch = Callable[..., RunningGuard]

pytestmark = pytest.mark.e2e
by_connections = not_behind_envoy("which worker has a connection is seen by who connects to it")
TWO = ("--workers", "2")
CLIENTS = 6


def workers_of(guard: RunningGuard) -> dict[int, int]:
    """Return the process id of each worker, by its number."""
    supervisor = guard.process.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text("ascii").split()
    found: dict[int, int] = {}
    for pid in children:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        place = next((word for word in words if b"/worker-" in word), None)
        if place is not None:
            found[int(place.rpartition(b"-")[2])] = int(pid)
    return found


def events(guard: RunningGuard, name: str) -> list[dict[str, Any]]:
    """Return the audit lines of one kind."""
    return [line for line in guard.audit() if line["event"] == name]


@dataclass
class Several:
    """A guard of two workers that the tests of this module share, and its files."""

    guard: RunningGuard
    policy: Path
    key: Path
    state: dict[str, str]
    """Where commands find it."""

    def replaced(self) -> None:
        """Have every worker replaced."""
        replace_workers(self.guard)


def replace_workers(guard: RunningGuard) -> None:
    """Have every worker replaced, and wait until that is done."""
    before = len(events(guard, "guard.workers_replaced"))
    guard.process.send_signal(signal.SIGUSR2)
    wait_until(
        lambda: len(events(guard, "guard.workers_replaced")) > before,
        "the replacement",
        START_SECONDS,
    )


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """Return a guard with two workers on the lean PEP."""
    place = tmp_path_factory.mktemp("workers")
    policy, key, credentials = place / "policy.yaml", place / "audit.key", place / "front.toml"
    policy.write_text((ROOT / "policies" / "default.yaml").read_text("utf-8"), encoding="utf-8")
    digest = hashlib.sha256(b"test").hexdigest()
    credentials.write_text(f'front = "{digest}"\n', encoding="utf-8")
    options = (*TWO, "--pep", "lean", "--audit-key", str(key))
    options += ("--prompt-credentials", str(credentials))
    state = {"XDG_STATE_HOME": str(place / "state")}
    with serving(place / "guard", policy=policy, options=options, environment=state) as guard:
        yield Several(guard, policy, key, state)


def test_workers_are_replaced_under_load_without_losing_a_call(several: Several) -> None:
    """Connections that wait are accepted by whoever comes; calls in flight are finished."""
    guard = several.guard
    before = workers_of(guard)
    with Load(guard, CLIENTS) as load:
        load.wait_for(20)
        several.replaced()
        load.wait_for(20)

    after = workers_of(guard)
    assert load.failures == []
    assert set(before) == set(after) == {0, 1}
    assert not set(before.values()) & set(after.values())


def test_a_worker_that_is_killed_under_load_takes_nothing_else_with_it(several: Several) -> None:
    """Only its own connections end, and every call that was answered has its line."""
    guard = several.guard
    killed = workers_of(guard)[1]
    decided = len(events(guard, "guard.decision"))
    with Load(guard, CLIENTS) as load:
        load.wait_for(20)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: events(guard, "guard.worker_lost"), "the loss")
        load.wait_for(20)
        wait_until(
            lambda: workers_of(guard).get(1, killed) != killed, "its successor", START_SECONDS
        )
        load.wait_for(20)

    assert len(load.failures) <= CLIENTS
    assert [line["worker"] for line in events(guard, "guard.worker_lost")] == [1]
    assert len(events(guard, "guard.decision")) - decided >= load.answered


def worker_with(guard: RunningGuard, client: socket.socket) -> int | None:
    """Return which worker has accepted a connection; None where none has yet."""
    host, port = client.getsockname()
    peer = f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}:{port:04X}"
    lines = [x.split() for x in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    inodes = {f"socket:[{x[9]}]" for x in lines if x[2] == peer}
    for number, pid in workers_of(guard).items():
        with suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) in inodes:
                        return number
    return None


def connected_to(guard: RunningGuard, worker: int) -> socket.socket:
    """Return a connection that a certain worker has accepted; the kernel spreads them."""
    tried: list[socket.socket] = []
    try:
        while True:
            client = socket.create_connection(("127.0.0.1", guard.port), timeout=30)
            accepted = partial(worker_with, guard, client)
            wait_until(lambda found=accepted: found() is not None, "an accept")
            if worker_with(guard, client) == worker:
                return client
            tried.append(client)
    finally:
        for one in tried:
            one.close()


def request_of(document: dict[str, Any], path: str = "/mcp", *headers: str) -> bytes:
    """Return a POST with a JSON body."""
    body = json.dumps(document)
    head = [f"POST {path} HTTP/1.1", "host: tools.test", "content-type: application/json"]
    head += ["accept: application/json, text/event-stream", f"content-length: {len(body)}"]
    return "\r\n".join([*head, *headers, "", body]).encode()


def _asked(guard: RunningGuard, worker: int, call: dict[str, Any], *headers: str) -> Any:
    """Return what a certain worker answers to a request."""
    with connected_to(guard, worker) as client:
        client.sendall(request_of(call, "/mcp", *headers))
        answer = json.loads(read_response(client).partition(b"\r\n\r\n")[2])
    return answer.get("result", answer)


def _called(guard: RunningGuard, worker: int, to: str = "team@example.com") -> str:
    """Return what becomes of a send that comes to a certain worker."""
    return "refused" if _asked(guard, worker, tool_call(to)).get("isError") else "released"


@by_connections
def test_a_grant_is_used_once_whichever_worker_the_call_comes_to(several: Several) -> None:
    """Asked at one, granted by a person, let through at the other, asked about at the first."""
    guard, letter = several.guard, tool_call("new@partner.test")
    asked = _asked(guard, 0, letter, "x-guard-session: g")["_meta"]["guard"]
    words = ["approvals", "grant", asked["decision_id"]]
    granted = CliRunner().invoke(cli.app, words, env=several.state)
    other = _asked(guard, 1, letter, "x-guard-session: g")
    again = _asked(guard, 0, letter, "x-guard-session: g")["_meta"]["guard"]

    assert granted.exit_code == 0, granted.output
    assert (asked["code"], other.get("isError")) == ("approval_required", None)
    assert again["code"] == "approval_required"


@by_connections
def test_a_mark_that_one_worker_left_counts_at_the_other(
    tmp_path: Path, upstream: Upstream, own_server: EmbeddedRedis
) -> None:
    """A result was released while Redis was away; whoever judges next tells the state."""
    default = upstream.answer

    def without_state(request: bytes) -> bytes:
        assert own_server.pid is not None
        os.kill(own_server.pid, signal.SIGKILL)
        wait_until(lambda: own_server.pid is None, "the death of redis")
        return default(request)

    options = (*TWO, "--pep", "lean", "--redis", own_server.url)
    guard = start_guard(tmp_path / "guard", upstream, options=options)
    try:
        upstream.answer = without_state
        released = _called(guard, 0)
        upstream.answer = default
        own_server.start()
        marks = guard.metric("guard_unlabelled_marks")
        wait_until(lambda: _called(guard, 1) == "released", "recovery")
        left = guard.metric("guard_unlabelled_marks")
    finally:
        guard.stop()

    assert (released, marks, left) == ("released", 1, 0)
