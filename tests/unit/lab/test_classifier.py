"""The classifier's instruments: labels, prefixes, cards, and the shipped model."""

import hashlib
import json

import pytest

pytest.importorskip("sklearn", reason="the lab is not installed")

import numpy as np
from typer.testing import CliRunner

from guard.core.errors import InputError, ModelError
from guard.core.trajectory import Trajectory
from guard.inference.onnx import load_models
from guard.settings import models_directory
from lab import protocols
from lab.cli.eval import app
from lab.dataset import Labelling, Reading, load_dataset
from lab.eval_classifier import TARGETS, eval_classifier
from lab.forensics import train_forensics
from lab.models import onnx_probabilities
from lab.paper import FeatureSet
from lab.signature import SignatureModel, respected, roads
from lab.training import train, write_artefact
from tests.unit.lab.made_runs import run, runs, write_traces


def test_a_trained_artefact_loads_and_its_card_is_bound_to_its_bytes(tmp_path, traces):
    """A card of other bytes is refused, and an unreadable manifest is left alone."""
    onnx, card = train(Reading(), load_dataset([traces]))
    write_artefact(tmp_path / "m", onnx, card)
    assert load_models(tmp_path / "m")["prefix-13"].digest == hashlib.sha256(onnx).hexdigest()

    write_artefact(tmp_path / "m", onnx, {**card, "sha256": "0" * 64})
    with pytest.raises(ModelError, match="describes another model's bytes"):
        load_models(tmp_path / "m")
    (tmp_path / "m" / "manifest.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelError, match="is not a model manifest"):
        write_artefact(tmp_path / "m", onnx, card)


def test_the_shipped_model_is_that_of_the_development_traces(leong):
    """Training again from the data the card names gives the scores that ship."""
    card = json.loads((models_directory() / "prefix-13.card.json").read_text(encoding="utf-8"))
    data = load_dataset([leong], Reading(labelling=Labelling.MAILED))
    [(name, digest)] = data.files
    assert card["training_data"]["files"] == [{"file": name, "sha256": digest}]
    rows, labels = data.rows(FeatureSet.SIGNATURE13), data.labels(Labelling.MAILED)
    expected = SignatureModel().fit(rows, labels)
    model = load_models(models_directory())["prefix-13"]
    distinct = np.unique(rows, axis=0)
    found = [model.score(row) for row in distinct.tolist()]
    assert found == pytest.approx(expected.predict_proba(distinct)[:, 1], abs=1e-5)


def test_the_shipped_model_respects_the_signature():
    """A recall scores higher before a send outside than before one inside, on every road."""
    kept, pairs = respected(load_models(models_directory())["prefix-13"].score)

    assert kept == pairs > 900


def test_the_shipped_forensic_model_is_that_of_its_card(leong):
    """Fitted again from the recorded runs it has the bytes' scores and the card's figures."""
    onnx, card = train_forensics(leong.parent)
    shipped = json.loads((models_directory() / "forensic-19.card.json").read_text(encoding="utf-8"))
    grouped = card["evaluation"]["grouped_folds"]

    assert card["training_data"] == shipped["training_data"]
    assert grouped["accuracy"] == pytest.approx(
        shipped["evaluation"]["grouped_folds"]["accuracy"], abs=0.01
    )
    assert grouped["accuracy"] >= 0.9
    model = load_models(models_directory())["forensic-19"]
    rows = np.array([Trajectory.of(road).features_19() for road in roads()][:50], np.float32)
    for row, expected in zip(rows, onnx_probabilities(onnx, rows), strict=True):
        assert model.probabilities(row.tolist()) == pytest.approx(expected.tolist(), abs=1e-4)


def test_the_evaluation_prints_every_id_and_refuses_one_class(tmp_path, monkeypatch):
    """Exit code 3 where the runs hold one class."""
    monkeypatch.setattr(protocols, "RESAMPLES", 30)
    traces = write_traces(tmp_path / "t.jsonl", runs())
    done = CliRunner().invoke(app, ["classifier", str(traces), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["checks"]
    assert [one["id"] for one in found] == [*TARGETS, "onnx_max_difference"]
    assert all(one["value"] is not None for one in found)

    write_traces(traces, [run(n, success=True) for n in range(9)])
    with pytest.raises(InputError, match="one class"):
        eval_classifier(load_dataset([traces]), Labelling.SUCCESS)
