"""An upgrade and a roll-back under load: no call is lost, none goes out twice, none unjudged.

The other version is a copy of this one under another number, or, with ``make upgrade BASE=COMMIT``,
the package at that commit.
"""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guard.core import VERSION
from guard.processes.loopback import START_SECONDS
from guard.store.embedded import EmbeddedRedis
from tests.e2e.clients import Callers
from tests.e2e.running_guard import (
    ROOT,
    RunningGuard,
    Upstream,
    start_guard,
    tool_call,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
OTHER = "99.0.0"
BASE = os.environ.get("GUARD_UPGRADE_BASE", "")
"""A commit; empty for the copy."""
PAUSE_SECONDS = 0.05
"""Between two calls of one agent: the machine is there for the guards."""
FRONT = "front end's secret"
NAMED, STRANGER = "carol@partner.example", "eve@evil.test"


def package_of(directory: Path, version: str) -> Path:
    """Return a directory to import a version of the guard from."""
    directory.mkdir()
    if version == OTHER and BASE:
        names = ["guard", "policies", "models", "pyproject.toml"]
        archive = ["git", "-C", str(ROOT), "archive", BASE, *names]
        packed = subprocess.run(archive, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(directory)], input=packed, check=True)
    else:
        shutil.copytree(ROOT / "guard", directory / "guard")
        for name in ("policies", "models", "pyproject.toml"):
            (directory / name).symlink_to(ROOT / name)
    file = directory / "guard" / "core" / "__init__.py"
    text = re.sub(r'VERSION = "[^"]+"', f'VERSION = "{version}"', file.read_text("utf-8"))
    file.write_text(text, encoding="utf-8")
    # Comes before this checkout, however that is installed.
    first = "import os, sys; sys.path.insert(0, os.path.dirname(__file__))"
    (directory / "sitecustomize.py").write_text(first, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return where this version and the other one are imported from."""
    place = tmp_path_factory.mktemp("versions")
    return {version: package_of(place / version, version) for version in (VERSION, OTHER)}


def environment_of(package: Path) -> dict[str, str]:
    """Return the variables with which a guard and its workers are those of a directory."""
    # Otherwise the directory in which it is started comes first.
    return {"PYTHONPATH": str(package), "PYTHONSAFEPATH": "1"}


class Service:
    """Ports of the pods that new connections lead to, in turns, as with a cluster's service."""

    def __init__(self) -> None:
        self.ports: tuple[int, ...] = ()
        self.lock = threading.Lock()
        """Held from a choice to the first answer: a pod that is taken out owes none."""
        self._turns = itertools.count()

    def next(self) -> int:
        """Return the port that the next connection leads to."""
        return self.ports[next(self._turns) % len(self.ports)]

    def take_out(self, port: int) -> None:
        """Send a pod no further connections; it keeps those that it has."""
        with self.lock:
            self.ports = tuple(one for one in self.ports if one != port)


class Load(Callers):
    """Agents that call one after the other: half by a connection each time, half by one they keep.

    One that finds its kept connection closed before a byte of the answer came opens another and
    asks again (RFC 9112, 9.3.1).  Every fifth call is to a stranger and has to be refused.
    """

    def __init__(self, service: Service, name: str = "first") -> None:
        super().__init__(4, self._run)
        self._service, self._name = service, name
        self.released: list[str] = []
        self.refused: list[str] = []

    def wait_for(self, count: int) -> None:
        """Wait until so many more calls have been released and some refused."""
        released, refused = len(self.released) + count, len(self.refused) + 1
        wait_until(
            lambda: len(self.released) >= released and len(self.refused) >= refused,
            f"{count} more answers",
            START_SECONDS,
        )

    def _run(self, agent: int) -> None:
        kept: http.client.HTTPConnection | None = None
        for number in itertools.count():
            if self.stop.is_set():
                break
            stranger = number % 5 == 4
            ident = f"{'refuse' if stranger else 'release'}-{self._name}-{agent}-{number}"
            body = json.dumps(tool_call(STRANGER if stranger else NAMED, ident=ident))
            try:
                kept, result = self._asked(kept, body)
                if stranger != (result.get("isError") is True):
                    self.failures.append(f"{ident}: {result}")
                (self.refused if stranger else self.released).append(ident)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{ident}: {error!r}")
                kept = None
            if agent % 2 and kept is not None:
                kept.close()
                kept = None
            self.stop.wait(PAUSE_SECONDS)
        if kept is not None:
            kept.close()

    def _asked(
        self, kept: http.client.HTTPConnection | None, body: str
    ) -> tuple[http.client.HTTPConnection, dict[str, Any]]:
        """Return the connection that answered, and the result."""
        # One that the server has closed would open itself again, at the same pod.
        if kept is not None and kept.sock is not None:
            with suppress(http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                return kept, _posted(kept, body)
        with self._service.lock:
            made = http.client.HTTPConnection("127.0.0.1", self._service.next(), timeout=60)
            return made, _posted(made, body)


def _posted(connection: http.client.HTTPConnection, body: str) -> dict[str, Any]:
    headers = {"content-type": "application/json", "x-guard-session": "s1"}
    try:
        connection.request("POST", "/mcp", body, headers)
        return dict(json.loads(connection.getresponse().read())["result"])
    except (OSError, http.client.HTTPException):
        connection.close()
        raise


def said_by_the_user(guard: RunningGuard) -> None:
    """Have a front end tell the guard whom the user named."""
    assert guard.note_prompt(f"Mail {NAMED}.", FRONT, "s1") == 202


def front_ends(directory: Path) -> tuple[str, ...]:
    """Return the options that let a front end speak."""
    file = directory / "front.toml"
    file.write_text(f'front = "{hashlib.sha256(FRONT.encode()).hexdigest()}"\n', encoding="utf-8")
    return ("--prompt-credentials", str(file))


def arrived(upstream: Upstream) -> Counter[bytes]:
    """Return how often each call has reached the tool server."""
    pattern = rb'"id": "((?:release|refuse)-\w+-\d+-\d+)"'
    return Counter(re.findall(pattern, bytes(upstream.received)))


def released_lines(guards: list[RunningGuard]) -> int:
    """Return how many calls the audit logs have allowed."""
    lines = [line for guard in guards for line in guard.audit()]
    return sum(x["event"] == "guard.decision" and x["enforced"] == "allow" for x in lines)


def version_of(guard: RunningGuard) -> set[str]:
    """Return which versions a guard's metrics name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{guard.admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return set(re.findall(r'^guard_build_info\{version="([^"]+)"\} 1', text, re.MULTILINE))


def check(load: Load, upstream: Upstream, guards: list[RunningGuard]) -> None:
    """Nothing lost, nothing twice, nothing unjudged, no stranger's call."""
    came = arrived(upstream)

    assert load.failures == []
    assert set(came) == {ident.encode() for ident in load.released}
    assert set(came.values()) == {1}
    assert released_lines(guards) == len(came)


class Rollout:
    """Pods of one Redis behind a service, replaced one after the other."""

    def __init__(
        self, place: Path, upstream: Upstream, versions: dict[str, Path], redis: str
    ) -> None:
        self.service = Service()
        self.every: list[RunningGuard] = []
        self._running: list[RunningGuard] = []
        self._place, self._upstream, self._versions = place, upstream, versions
        self._options = ("--redis", redis, *front_ends(place))

    def started(self, version: str) -> RunningGuard:
        """Start a pod, and send it connections once it is ready."""
        guard = start_guard(
            self._place / f"pod{len(self.every)}",
            self._upstream,
            options=self._options,
            environment=environment_of(self._versions[version]),
        )
        self.every.append(guard)
        self._running.append(guard)
        self.service.ports = (*self.service.ports, guard.port)
        assert version_of(guard) == {version}
        return guard

    def to(self, version: str, load: Load) -> None:
        """Replace each pod as a cluster does: out of the service, ended, another in its place."""
        for guard in list(self._running):
            self.service.take_out(guard.port)
            assert guard.stop() == 0
            self._running.remove(guard)
            load.wait_for(5)
            self.started(version)
        load.wait_for(10)

    def close(self) -> None:
        """End every pod."""
        for guard in self._running:
            guard.stop()


def test_pods_are_upgraded_and_rolled_back_under_load(
    tmp_path: Path, upstream: Upstream, versions: dict[str, Path]
) -> None:
    """What a user said to one version holds at the other, and at the first again.

    At the end a pod goes while connections are still sent to it: then calls are lost, nothing else.
    """
    with EmbeddedRedis() as redis:
        rollout = Rollout(tmp_path, upstream, versions, redis.url)
        try:
            said_by_the_user(rollout.started(VERSION))
            rollout.started(VERSION)
            with Load(rollout.service) as load:
                load.wait_for(10)
                rollout.to(OTHER, load)
                rollout.to(VERSION, load)
            check(load, upstream, rollout.every)
            with Load(rollout.service, "later") as late:
                late.wait_for(5)
                rollout.every[-1].stop()
                wait_until(lambda: late.failures, "a lost call")
        finally:
            rollout.close()

    late.failures.clear()
    load.released += late.released
    check(load, upstream, rollout.every)


@pytest.fixture
def in_place(
    tmp_path: Path, upstream: Upstream, versions: dict[str, Path]
) -> Iterator[tuple[RunningGuard, Path]]:
    """Return a guard whose package lies behind a link, and the link."""
    current = tmp_path / "current"
    current.symlink_to(versions[VERSION])
    guard = start_guard(
        tmp_path / "guard",
        upstream,
        options=front_ends(tmp_path),
        environment=environment_of(current),
    )
    yield guard, current
    guard.stop()


def installed(guard: RunningGuard, current: Path, package: Path, event: str) -> dict[str, Any]:
    """Put another package in place, have the workers replaced, and return what the log says."""

    def lines() -> list[dict[str, Any]]:
        return [line for line in guard.audit() if line["event"] == event]

    before = len(lines())
    link = current.with_name("next")
    link.symlink_to(package)
    link.replace(current)
    guard.process.send_signal(signal.SIGUSR2)
    wait_until(lambda: len(lines()) > before, event, START_SECONDS)
    return lines()[-1]


def test_a_guard_is_upgraded_in_place_and_rolled_back_under_load(
    in_place: tuple[RunningGuard, Path], upstream: Upstream, versions: dict[str, Path]
) -> None:
    """SIGUSR2 after the package has changed; one that does not start leaves the worker there is."""
    guard, current = in_place
    broken = package_of(current.with_name("broken"), "0.0.0")
    (broken / "guard" / "runtime" / "worker.py").write_text(
        "raise SystemExit(1)\n", encoding="utf-8"
    )
    said_by_the_user(guard)
    seen = [version_of(guard)]
    service = Service()
    service.ports = (guard.port,)
    with Load(service) as load:
        load.wait_for(10)
        for package, event in (
            (versions[OTHER], "guard.workers_replaced"),
            (broken, "guard.worker_kept"),
            (versions[VERSION], "guard.workers_replaced"),
        ):
            installed(guard, current, package, event)
            seen.append(version_of(guard))
            load.wait_for(10)

    check(load, upstream, [guard])
    assert seen == [{VERSION}, {OTHER}, {OTHER}, {VERSION}]
