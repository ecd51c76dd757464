"""The dashboards and alert rules as files: current, complete, and about things that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from guard.operations.deployment import ConsoleMetrics
from guard.telemetry.metrics import PrometheusMetrics

ROOT = Path(__file__).resolve().parents[3]
BOARDS = sorted((ROOT / "grafana" / "dashboards").glob("*.json"))
RULES = ROOT / "grafana" / "alerts" / "guard.yaml"


def names():
    """Return every series name that guard and console export, suffixes included."""
    registries = PrometheusMetrics().registry, ConsoleMetrics().registry
    families = [family for registry in registries for family in registry.collect()]
    samples = {sample.name for family in families for sample in family.samples}
    return samples | {family.name for family in families}


def expressions(board):
    """Return every query of a dashboard: panels, annotations and variables."""
    yield from (t["expr"] for panel in board["panels"] for t in panel.get("targets", ()))
    yield from (mark["expr"] for mark in board["annotations"]["list"])
    yield from (v["query"] for v in board["templating"]["list"] if v["type"] == "query")


def unknown(expression):
    """Return the guard's metrics in an expression that nothing exports or records."""
    own = set(re.findall(r"\bguard_\w+", expression))
    made = set(re.findall(r"\bguard:\w+(?::\w+)?", expression))
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text(encoding="utf-8")))
    known = names()
    # Counters without a sample yet export their family's name alone.
    return {n for n in own if n not in known and n.removesuffix("_total") not in known} | (
        made - recorded
    )


def test_the_committed_dashboards_are_current():
    """Whoever edits a query builds the dashboards anew."""
    build = ROOT / "grafana" / "build.py"
    ran = subprocess.run(
        [sys.executable, build, "--check"], capture_output=True, text=True, check=False, timeout=60
    )

    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("path", [*BOARDS, RULES], ids=lambda path: path.stem)
def test_every_metric_a_query_names_exists(path):
    """A renamed metric would leave a panel empty and an alert silent; so would a made-up zero."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"vector\(|absent", text)
    rules = re.sub(r"(?m)^\s*#.*$", "", text)
    queries = [rules] if path == RULES else list(expressions(json.loads(text)))

    assert {name for query in queries for name in unknown(query)} == set()


def test_every_alert_is_explained():
    """docs/how-to/monitoring.md says of each alert what it means and what to do."""
    text = (ROOT / "docs" / "how-to" / "monitoring.md").read_text(encoding="utf-8")
    alerts = re.findall(r"alert: (\w+)", RULES.read_text(encoding="utf-8"))

    assert len(alerts) >= 8
    assert [name for name in alerts if f"| `{name}` |" not in text] == []


@pytest.mark.programs("promtool")
def test_every_alert_fires_and_clears_after_its_real_durations():
    """Promtool plays series against the rules as they are shipped."""
    ran = subprocess.run(
        ["promtool", "test", "rules", "guard_test.yaml"],
        cwd=RULES.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
