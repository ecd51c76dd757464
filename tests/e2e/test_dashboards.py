"""The dashboards and alerts, against a real Prometheus that scrapes real guards under traffic."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis as redis_client
from typer.testing import CliRunner

from guard import cli
from guard.processes.loopback import free_port
from guard.store.embedded import EmbeddedRedis
from tests.e2e.running_guard import ROOT, RunningGuard, Upstream, start_guard, tool_call, wait_until
from tests.e2e.running_prometheus import (
    RULES,
    RunningPrometheus,
    Traffic,
    other_call,
    start_prometheus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.programs("prometheus")]
POLICY = (ROOT / "policies" / "default.yaml").read_text("utf-8")
BOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
VARIABLES = {
    "$__rate_interval": "5s",
    "$__range": "20s",
    "$instance": ".*",
    "$policy": ".*",
    "$mode": ".*",
}
SECRET = "a secret of at least 128 bits, of this test"
VIEWER = f"""
[people.prometheus]
secret = "{hashlib.sha256(SECRET.encode()).hexdigest()}"
roles = ["viewer"]
"""
INSIDE = tool_call()
OUTSIDE = tool_call(to="drop@elsewhere.test")
READ = other_call("memory_recall_fact")
SEARCH = other_call("rag_query")
EVERY_KIND = (
    INSIDE,
    OUTSIDE,
    READ,
    SEARCH,
    other_call("memory_save_fact"),
    other_call("nobody_mapped_this"),
    b'{"jsonrpc": "2.0",',
)


def expressions(board: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the title and expression of every query of a dashboard, variables filled in."""
    return [
        (panel["title"], filled(target["expr"]))
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def filled(expression: str) -> str:
    """Return an expression with the dashboard's variables replaced."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    return expression


def alerts() -> set[str]:
    """Return the names of all alerts."""
    return set(re.findall(r"- alert: (\w+)", RULES.read_text("utf-8")))


def metric_names(text: str) -> set[str]:
    """Return the names of the guard's own metrics in a query or a document."""
    names = set(re.findall(r"\bguard_\w+", text))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


@pytest.fixture
def redis() -> Iterator[EmbeddedRedis]:
    """Return a Redis of the test's own, to be slowed down and stopped."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., RunningPrometheus]]:
    """Start a Prometheus over guards; it is stopped at the end of the test."""
    started: list[RunningPrometheus] = []

    def start(*guards: RunningGuard, console: tuple[int, str] | None = None) -> RunningPrometheus:
        admins = [guard.admin for guard in guards]
        prometheus = start_prometheus(tmp_path / "prometheus", admins, console)
        started.append(prometheus)
        return prometheus

    yield start
    for prometheus in started:
        prometheus.stop()


def finite(series: list[Any]) -> bool:
    """Return whether any sample is a number."""
    return any(math.isfinite(float(one["value"][1])) for one in series)


def test_every_query_of_every_panel_returns_data(
    launch: Callable[..., RunningGuard],
    watch: Callable[..., RunningPrometheus],
    tmp_path: Path,
) -> None:
    """Two guards, one with its console, fill every panel and every variable under traffic."""
    console, people = free_port(), tmp_path / "people.toml"
    people.write_text(VIEWER, "utf-8")
    options = ("--console", f"127.0.0.1:{console}", "--console-people", str(people))
    observing = ROOT / "policies" / "examples" / "observe.yaml"
    guards = (launch(options=options), launch(policy=observing))
    prometheus = watch(*guards, console=(console, SECRET))
    boards = [json.loads(path.read_text("utf-8")) for path in BOARDS]
    queries = [pair for board in boards for pair in expressions(board)]

    with Traffic(guards, EVERY_KIND):
        # The distance between distributions needs a past; it is the last to have data.
        wait_until(lambda: finite(prometheus.query("guard:prefix_score_distance")), "a past")
        wait_until(lambda: finite(prometheus.query("guard_console_requests_waiting")), "a console")
        assert len(queries) > 30
        # A scrape that a busy machine misses leaves a gap in a window as short as these are.
        empty = list(queries)

        def filled_in() -> bool:
            empty[:] = [pair for pair in empty if not finite(prometheus.query(pair[1]))]
            return not empty

        wait_until(filled_in, "data of every query")
        assert variables_without_values(prometheus, boards) == []
    documented = metric_names((ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8"))
    scraped = {n for n in prometheus.get("label/__name__/values") if n.startswith("guard_")}
    assert metric_names(" ".join(scraped)) - documented == set()
    assert {m for _, query in queries for m in metric_names(query)} - metric_names(
        " ".join(scraped)
    ) == set()


def variables_without_values(prometheus: RunningPrometheus, boards: list[Any]) -> list[str]:
    """Return the variables whose query finds nothing."""
    empty = []
    for variable in (v for board in boards for v in board["templating"]["list"]):
        if variable["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert match, variable["query"]
        found = prometheus.get(f"label/{match[2]}/values", **{"match[]": filled(match[1])})
        if not found:
            empty.append(variable["name"])
    return empty


@pytest.mark.timeout(300)
def test_every_alert_fires_and_clears(
    tmp_path: Path,
    upstream: Upstream,
    redis: EmbeddedRedis,
    watch: Callable[..., RunningPrometheus],
) -> None:
    """Each alert is driven by what it is about: an attack, a slow store, a dead worker, silence."""
    options = ("--redis", redis.url, "--heartbeat", "120", "--reload", "0.2")
    options += ("--state-timeout", "1")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY, "utf-8")
    guard = start_guard(tmp_path / "guard", upstream, policy=policy, options=options)
    prometheus = watch(guard)
    try:
        with Traffic([guard], [INSIDE]) as traffic:
            wait_until(lambda: prometheus.query("guard:prefix_score_distance"), "a past")
            drive_every_alert(prometheus, traffic, redis, guard)
            lose_labels(prometheus, redis, tmp_path / "label.key")
            policy.write_text(POLICY + "\nname: twice\n", "utf-8")
            prometheus.wait_for_alert("GuardPolicyStale", firing=True)
            policy.write_text(POLICY.replace("name: default", "name: next"), "utf-8")
            for name in sorted(alerts()):
                prometheus.wait_for_alert(name, firing=False)
    finally:
        guard.stop()

    seen = {s["metric"]["alertname"] for s in prometheus.history('ALERTS{alertstate="firing"}')}
    assert alerts() == seen
    for board in (json.loads(path.read_text("utf-8")) for path in BOARDS):
        for mark in board["annotations"]["list"]:
            # What happens once, in fast motion.
            query = filled(mark["expr"]).replace("[2m]", "[40s]").replace("offset 1m", "offset 1s")
            assert prometheus.history(query), mark["name"]


def drive_every_alert(
    prometheus: RunningPrometheus, traffic: Traffic, redis: EmbeddedRedis, guard: RunningGuard
) -> None:
    """Cause and cure what the alerts are about; the next begins while the last one clears."""
    wait_until(lambda: prometheus.firing() == set(), "an end of what a slow start has caused")
    # First, because its window is long: on a busy machine a worker takes a while to start.
    os.kill(guard.worker, signal.SIGKILL)
    prometheus.wait_for_alert("GuardWorkerRestarts", firing=True)
    # An attack: memory and documents are read, then mail goes to the outside.
    traffic.mix = (READ, SEARCH, OUTSIDE, OUTSIDE, OUTSIDE)
    prometheus.wait_for_alert("GuardBlockRateJump", firing=True)
    prometheus.wait_for_alert("GuardScoreDrift", firing=True)
    traffic.mix = (INSIDE,)

    with slow(redis):
        prometheus.wait_for_alert("GuardRedisSlow", firing=True)
    with stopped(redis.pid):
        prometheus.wait_for_alert("GuardFailClosed", firing=True)
        prometheus.wait_for_alert("GuardErrors", firing=True)

    # Shorter than its heartbeat may be: the supervisor lets it live.
    with stopped(guard.worker):
        prometheus.wait_for_alert("GuardDown", firing=True)
    prometheus.wait_for_alert("GuardDown", firing=False)

    traffic.mix = ()
    prometheus.wait_for_alert("GuardNoTraffic", firing=True)
    traffic.mix = (INSIDE,)


def lose_labels(prometheus: RunningPrometheus, redis: EmbeddedRedis, key: Path) -> None:
    """Flush the store, and accept the loss as an operator does."""
    client = redis_client.Redis.from_url(redis.url)
    client.flushall()
    client.close()
    prometheus.wait_for_alert("GuardLabelsIncomplete", firing=True)
    accept = ["memory", "accept-loss", "--redis", redis.url, "--label-key", str(key)]
    accept += ["--reason", "a test", "--audit", str(key.with_name("accepted.jsonl"))]
    done = CliRunner().invoke(cli.app, accept)
    assert done.exit_code == 0, done.output


@contextmanager
def slow(redis: EmbeddedRedis) -> Iterator[None]:
    """Make a Redis answer late, yet in time."""
    done = threading.Event()
    client = redis_client.Redis.from_url(redis.url)

    def pause() -> None:
        while not done.is_set():
            client.execute_command("CLIENT", "PAUSE", 100, "ALL")

    thread = threading.Thread(target=pause, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(10)
        client.close()


@contextmanager
def stopped(pid: int | None) -> Iterator[None]:
    """Stop a process where it stands, and let it go on."""
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)
