"""Tests of ``guard lab train``."""

import pytest

pytest.importorskip("sklearn", reason="the lab is not installed")
pytest.importorskip("skl2onnx", reason="the lab is not installed")

from typer.testing import CliRunner

from guard import cli
from guard.adapters.onnx import load_models
from tests.unit.lab.made_runs import run, runs, write_traces


@pytest.fixture(scope="module")
def invoke():
    """Run the command line."""
    runner = CliRunner()
    return lambda *arguments: runner.invoke(cli.app, [str(a) for a in arguments])


def test_an_artefact_is_written_and_described(tmp_path, invoke):
    """Exit code 0: the models directory loads, and stderr has the table and the notes."""
    traces = write_traces(tmp_path / "t.jsonl", runs())
    done = invoke("train", traces, "--model", "lr", "--out", tmp_path / "m")
    assert done.exit_code == 0, done.output
    assert list(load_models(tmp_path / "m")) == ["prefix-13-lr"]
    assert "leave one model out" in done.stderr


def test_one_class_is_invalid_input(tmp_path, invoke):
    """Exit code 3, the reason, and no file."""
    traces = write_traces(tmp_path / "t.jsonl", [run(n, success=True) for n in range(9)])
    done = invoke("train", traces, "--model", "lr", "--out", tmp_path / "m")
    assert done.exit_code == 3
    assert "all 9 runs are positive, a classifier needs both classes" in done.stderr
    assert not (tmp_path / "m").exists()


def test_a_bad_line_stops_the_training_unless_it_may_be_skipped(tmp_path, invoke):
    """Exit code 3 names file, line and field; `--on-error skip` trains on the rest."""
    traces = write_traces(tmp_path / "t.jsonl", [*runs(), {"run_id": "x", "calls": 1}])
    arguments = ("train", traces, "--model", "lr", "--out", tmp_path / "m")
    fatal = invoke(*arguments)
    assert fatal.exit_code == 3
    assert f"{traces}:61: calls: " in fatal.stderr
    skipped = invoke(*arguments, "--on-error", "skip")
    assert skipped.exit_code == 0, skipped.output
    assert f"skipped {traces}:61: calls: " in skipped.stderr


@pytest.mark.parametrize("name", ["", "../x", "a/b", "å"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, invoke, name):
    """The name becomes part of a path."""
    traces = write_traces(tmp_path / "t.jsonl", runs(6))
    done = invoke("train", traces, "--out", tmp_path / "m", "--name", name)
    assert done.exit_code == 3
    assert "is no artefact name" in done.stderr


def test_roles_can_come_from_a_policy(tmp_path, invoke):
    """A policy that maps none of the tools leaves nothing to learn from, and the notes say so."""
    traces = write_traces(tmp_path / "t.jsonl", runs())
    done = invoke("train", traces, "--out", tmp_path / "m", "--tools", tmp_path / "none.yaml")
    assert done.exit_code == 3
    assert "none.yaml" in done.stderr
