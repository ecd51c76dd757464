"""A real Prometheus that scrapes running guards, with the shipped rules in fast motion."""

from __future__ import annotations

import http
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from guard.processes.loopback import Child, free_port, start
from tests.e2e.running_guard import ROOT, RunningGuard, tool_call, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

RULES = ROOT / "grafana" / "alerts" / "guard.yaml"
WINDOWS = {"5m": "4s", "10m": "8s", "15m": "10s", "20m": "40s", "1h": "8s", "1d": "20s"}
WAITS = {"1m": "1s", "5m": "2s", "15m": "2s", "30m": "2s"}
"""What windows (and offsets) and `for` become here; a duration that is missing is an error."""
SCRAPE = "500ms"


def in_fast_motion(text: str) -> str:
    """Return rules with every window, offset and `for` shortened."""
    text = re.sub(r"(?<=\[)\w+(?=\])|(?<=offset )\w+", lambda match: WINDOWS[match[0]], text)
    return re.sub(r"(?<=for: )\w+", lambda match: WAITS[match[0]], text)


@dataclass
class RunningPrometheus:
    """A Prometheus process and what the tests ask of it."""

    child: Child
    port: int
    started: float

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an API answer; a query that Prometheus refuses is an error."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            if error.code == http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise
            message = f"{error.read().decode()} in {parameters}"
            raise AssertionError(message) from error

    def query(self, expression: str) -> list[Any]:
        """Return the series of an instant query."""
        result: list[Any] = self.get("query", query=expression)["result"]
        return result

    def history(self, expression: str) -> list[Any]:
        """Return the series of a query over the whole life of this Prometheus."""
        times = {"start": str(self.started), "end": str(time.time()), "step": "0.5"}
        result: list[Any] = self.get("query_range", query=expression, **times)["result"]
        return result

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        alerts = self.get("alerts")["alerts"]
        return {a["labels"]["alertname"] for a in alerts if a["state"] == "firing"}

    def wait_for_alert(self, name: str, *, firing: bool) -> None:
        """Wait until an alert fires, or until it does not."""

        def reached() -> bool:
            threading.Event().wait(0.2)
            return (name in self.firing()) is firing

        wait_until(reached, f"alert {name} {'fires' if firing else 'clears'}")

    def stop(self) -> None:
        """Stop the process."""
        self.child.stop()


def start_prometheus(
    directory: Path,
    admins: Sequence[int],
    console: tuple[int, str] | None = None,
    labels: dict[str, str] | None = None,
) -> RunningPrometheus:
    """Start a Prometheus that scrapes these ports as job ``guard``, and wait until it has.

    Args:
        directory: of its own.
        admins: ports of guards.
        console: port of a console, and the secret of somebody who may view it.
        labels: of every guard that is scraped.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rules = directory / "rules.yaml"
    rules.write_text(in_fast_motion(RULES.read_text("utf-8")), "utf-8")
    targets = [f"127.0.0.1:{port}" for port in admins]
    guards = {"targets": targets, "labels": labels or {}}
    jobs: list[dict[str, Any]] = [{"job_name": "guard", "static_configs": [guards]}]
    if console is not None:
        port, secret = console
        where = [{"targets": [f"127.0.0.1:{port}"]}]
        jobs.append(
            {
                "job_name": "guard-console",
                "authorization": {"credentials": secret},
                "static_configs": where,
            }
        )
    seconds = {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE}
    document = {"global": seconds, "rule_files": [str(rules)], "scrape_configs": jobs}
    config = directory / "prometheus.yml"
    config.write_text(json.dumps(document), "utf-8")  # JSON is YAML
    port = free_port()
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    child = start(directory / "prometheus.log", *command)
    running = RunningPrometheus(child, port, time.time())

    def scraped() -> bool:
        threading.Event().wait(0.1)
        assert child.process.poll() is None, child.said()
        with suppress(OSError):
            return len(running.query('up{job="guard"} == 1')) == len(admins)
        return False

    try:
        wait_until(scraped, "the first scrape of every guard")
    except BaseException:
        running.stop()
        raise
    return running


@dataclass
class Traffic:
    """Calls to guards from a thread of its own, one mix of calls after another, until closed."""

    guards: Sequence[RunningGuard]
    mix: Sequence[Any] = ()
    sent: int = 0
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(60)

    def _run(self) -> None:
        while not self._closed.wait(0.01):
            for document in self.mix:
                for guard in self.guards:
                    # A guard that is down, or dies over a call, is what some tests want.
                    with suppress(OSError, ValueError, IndexError):
                        guard.post(document, {"x-guard-session": f"s{self.sent // 40}"})
                self.sent += 1
                if self._closed.wait(0.01):
                    return


def other_call(tool: str) -> dict[str, Any]:
    """Return a call of a tool that takes no arguments."""
    call = tool_call()
    call["params"] = {"name": tool, "arguments": {}}
    return call
