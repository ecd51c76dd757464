"""Tests of ``guard lab eval classifier``."""

import json

import pytest

pytest.importorskip("sklearn", reason="the lab is not installed")
pytest.importorskip("skl2onnx", reason="the lab is not installed")

from typer.testing import CliRunner

from guard import cli
from lab import eval_classifier
from tests.unit.lab.made_runs import run, runs, write_traces


@pytest.fixture(scope="module")
def invoke():
    """Run the command line."""
    runner = CliRunner()
    return lambda *arguments: runner.invoke(cli.app, [str(a) for a in arguments])


@pytest.fixture(autouse=True)
def small_forests(monkeypatch):
    """Grow few trees: these tests are about the command."""
    make = eval_classifier.Options

    def small(*arguments):
        return make(*arguments, trees=3, resamples=30)

    monkeypatch.setattr(eval_classifier, "Options", small)


def test_one_json_object_with_every_check_and_a_report(tmp_path, invoke):
    """Exit code 0; the object is alone on stdout, report and plots are written."""
    traces = write_traces(tmp_path / "t.jsonl", runs())
    page, plots = tmp_path / "r.html", tmp_path / "plots"
    done = invoke("eval", "classifier", traces, "--json", "--report", page, "--plots", plots)
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert [check["id"] for check in printed["checks"]] == [
        "rule_auc",
        "rf19_auc_random",
        "rf19_auc_grouped",
        "prefix13_auc_random",
        "prefix13_auc_grouped",
        "onnx_max_difference",
        "policy_replay_runs_per_second",
    ]
    assert all(check["value"] is not None for check in printed["checks"])
    assert page.read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    assert (plots / "roc.png").is_file()


def test_one_class_prints_nulls_and_is_invalid_input(tmp_path, invoke):
    """Exit code 3, the object with reasons on stdout, the reason on stderr."""
    traces = write_traces(tmp_path / "t.jsonl", [run(n, success=True) for n in range(9)])
    done = invoke("eval", "classifier", traces, "--json")
    assert done.exit_code == 3
    values = {check["id"]: check["value"] for check in json.loads(done.stdout)["checks"]}
    assert values["rf19_auc_random"] is None
    assert values["policy_replay_runs_per_second"] > 0
    assert "all 9 runs are positive" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "nowhere.yaml"), "nowhere.yaml"),
        (("--there", "nowhere.jsonl"), "nowhere.jsonl: no such file"),
        (("--frozen", "nowhere"), "manifest.json` cannot be read"),
    ],
)
def test_input_that_cannot_be_used_is_invalid(tmp_path, invoke, arguments, message):
    """Exit code 3 with the reason, before anything is measured."""
    traces = write_traces(tmp_path / "t.jsonl", runs(6))
    done = invoke("eval", "classifier", traces, *arguments)
    assert done.exit_code == 3
    assert message in done.stderr
    assert done.stdout == ""


def test_a_bad_line_is_named_or_left_out(tmp_path, invoke):
    """Exit code 3 names file, line and field; with `--on-error skip` the rest is measured."""
    traces = write_traces(tmp_path / "t.jsonl", [*runs(), {"run_id": "x", "calls": 1}])
    fatal = invoke("eval", "classifier", traces)
    assert fatal.exit_code == 3
    assert f"{traces}:61: calls: " in fatal.stderr
    rest = invoke("eval", "classifier", traces, "--json", "--on-error", "skip")
    assert rest.exit_code == 0, rest.output
    assert json.loads(rest.stdout)["details"]["data"]["skipped_lines"] == 1
