"""``guard memory structure import | export`` and ``guard memory audit`` on a real Redis."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from guard import cli

LINES = [
    {"change": "node", "one": "right", "item": True},
    {"change": "node", "one": "rival", "item": True},
    {"change": "edge", "one": "harbour", "two": "right", "relation": "about", "weight": 3},
    {"change": "edge", "one": "harbour", "two": "mill"},
    {"change": "edge", "one": "mill", "two": "rival"},
]


@pytest.fixture
def run(redis_server, redis_namespace, tmp_path):
    """Return what runs a command on the test's Redis, key and tenant."""
    runner = CliRunner()

    def invoke(*words):
        more = ["--redis", redis_server.url, "--label-key", str(tmp_path / "key")]
        more += ["--tenant", redis_namespace, "--store", "graph"]
        return runner.invoke(cli.app, ["memory", *map(str, words), *more])

    return invoke


@pytest.fixture
def imported(run, tmp_path):
    """Import the lines as the curator's, and return the file."""
    path = tmp_path / "graph.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)), encoding="utf-8")
    done = run("structure", "import", path, "--label", "advisory", "--principal", "curator")
    assert done.exit_code == 0, done.output
    return path


def test_what_is_imported_is_exported_with_its_label(run, imported):
    """Every change comes back, in order, and can be imported again."""
    done = run("structure", "export")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one["change"] for one in found] == [line["change"] for line in LINES]
    assert {one["label"] for one in found} == {"advisory"}
    assert {one["principal"] for one in found} == {"curator"}
    assert found[2]["weight"] == 3


@pytest.mark.parametrize("line", ['{"change": "edge"}', '{"change": "paint", "one": "a"}', "[]"])
def test_a_line_that_is_no_change_is_named(run, tmp_path, line):
    """And nothing is imported."""
    path = tmp_path / "graph.jsonl"
    path.write_text(line, encoding="utf-8")
    done = run("structure", "import", path)
    assert done.exit_code == 3
    assert run("structure", "export").stdout.strip() == ""
