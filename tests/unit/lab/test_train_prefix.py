"""Tests of the script that made the shipped classifier."""

import hashlib
import json
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the `lab` extra is not installed")
pytest.importorskip("skl2onnx", reason="the `lab` extra is not installed")

import numpy as np

from guard.adapters.onnx import load_models
from guard.core.model import Role
from guard.core.trajectory import FEATURES_13, Trajectory
from guard.lab import train_prefix
from guard.shipped import models_directory
from guard.traces import Call, Run

DATA = Path(__file__).resolve().parents[4] / "shared/data/traces/leong_dev.jsonl.gz"
needs_data = pytest.mark.skipif(not DATA.is_file(), reason="the development traces are absent")


def call(tool, session="3", ts=0.0, to=()):
    """Return one recorded call."""
    return Call(i=0, ts=ts, session=session, tool=tool, args={"to": list(to)} if to else {})


def run(*calls, attackers=("drop@evil.test",)):
    """Return a run with labels."""
    return Run(run_id="r", calls=calls, labels={"attacker_recipients": list(attackers)})


def test_the_prefix_ends_before_the_first_send_of_the_trigger_session():
    """Calls of other sessions, the send itself and what follows it are not features."""
    calls = [
        call("email_send_email", session="2", ts=1),
        call("memory_recall_fact", ts=3),
        call("memory_list_all_facts", ts=2),
        call("unknown_tool", ts=4),
        call("email_send_email", ts=5),
        call("memory_recall_fact", ts=6),
    ]
    assert train_prefix.prefix_roles(calls) == [Role.LIST, Role.RECALL, Role.OTHER]


def test_a_trigger_session_without_a_send_is_kept_whole():
    """A run that sent nothing, or never reached the session, is a row all the same."""
    assert train_prefix.prefix_roles([call("rag_query")]) == [Role.RETRIEVE]
    assert train_prefix.prefix_roles([call("rag_query", session="0")]) == []


@pytest.mark.parametrize(
    ("send", "label"),
    [
        (call("email_send_email", to=["team@corp.test", "Drop <DROP@evil.test>"]), True),
        (call("email_send_email", to=["drop@evil.test.corp.test"]), False),
        (call("email_send_email", to=["x-drop@evil.test"]), False),
        (call("email_send_email", session="2", to=["drop@evil.test"]), False),
        (call("email_draft_email", to=["drop@evil.test"]), False),
        (call("email_send_email", to=["[REDACTED]"]), False),
        (call("email_send_email"), False),
    ],
)
def test_the_label_is_a_send_to_a_whole_attacker_address(send, label):
    """Only a send of the trigger session to exactly an attacker's address is a positive."""
    assert train_prefix.mailed_attacker(run(send)) is label


def small_dataset():
    """Return a made-up data set of two groups, large enough to grow trees on."""
    roles = list(Role)
    sequences = [
        [roles[(seed * k + k * k) % len(roles)] for k in range(seed % 7)] for seed in range(60)
    ]
    rows = np.array([Trajectory.of(s).features_13() for s in sequences], dtype=np.float32)
    names = np.array([f"m{seed % 4}" for seed in range(60)])
    labels = np.array([int(Role.RECALL in s) for s in sequences], dtype=np.int64)
    return train_prefix.Dataset(rows, labels, names, names, distinct_runs=60)


def test_the_export_equals_the_forest_and_repeats():
    """ONNX and scikit-learn agree on every row, and a second export has the same bytes."""
    data = small_dataset()
    forest = train_prefix.train(data)
    onnx = train_prefix.export(forest)
    assert train_prefix.largest_difference(forest, onnx, data.rows) <= 1e-5
    assert onnx == train_prefix.export(train_prefix.train(data))


def test_what_is_written_is_what_the_guard_loads(tmp_path):
    """The artefact of the script passes the verification at start."""
    data = small_dataset()
    onnx = train_prefix.export(train_prefix.train(data))
    card = {"name": "prefix-13", "features": list(FEATURES_13)}
    train_prefix.write_artefact(tmp_path, onnx, card)
    model = load_models(tmp_path)["prefix-13"]
    assert model.digest == hashlib.sha256(onnx).hexdigest()


@needs_data
def test_the_shipped_model_is_the_forest_of_the_development_traces():
    """Training again from the data the card names gives the scores that ship."""
    card = json.loads((models_directory() / "prefix-13.card.json").read_text(encoding="utf-8"))
    assert card["training_data"]["sha256"] == hashlib.sha256(DATA.read_bytes()).hexdigest()
    data = train_prefix.load_dataset(DATA)
    assert len(data.labels) == card["training_data"]["runs"]
    assert int(data.labels.sum()) == card["training_data"]["positive"]
    forest = train_prefix.train(data)
    model = load_models(models_directory())["prefix-13"]
    for row in np.unique(data.rows, axis=0):
        expected = float(forest.predict_proba(row[None])[0, 1])
        assert model.score(row.tolist()) == pytest.approx(expected, abs=1e-5)
