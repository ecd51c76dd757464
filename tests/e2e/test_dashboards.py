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

from guard.processes.loopback import free_port
from guard.store.embedded import EmbeddedRedis
from tests.e2e.running_guard import ROOT, RunningGuard, tool_call, wait_until
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
    documented = metric_names((ROOT / "docs" / "metrics.md").read_text("utf-8"))
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
