"""Tests of a whole training: artefact, card, manifest."""

import hashlib
import json

import pytest

pytest.importorskip("sklearn", reason="the lab is not installed")
pytest.importorskip("skl2onnx", reason="the lab is not installed")

import numpy as np

from guard.adapters.onnx import load_models
from guard.core.errors import ModelError
from guard.settings import models_directory
from lab.dataset import Labelling, Reading, load_dataset
from lab.models import make
from lab.paper import Algorithm, FeatureSet
from lab.training import Order, train, write_artefact


def order(**changes):
    """Return a small order."""
    return Order(**{"trees": 5, "resamples": 50, **changes})


def test_what_is_written_is_what_the_guard_loads(tmp_path, traces):
    """The artefact passes the verification at start, and its card pins its bytes."""
    onnx, card = train(order(), load_dataset([traces]))
    write_artefact(tmp_path / "m", onnx, card)
    model = load_models(tmp_path / "m")["prefix-13"]
    assert model.digest == hashlib.sha256(onnx).hexdigest() == card["sha256"]
    assert card["training_data"]["files"] == [
        {"file": traces.name, "sha256": hashlib.sha256(traces.read_bytes()).hexdigest()}
    ]


def test_a_second_model_leaves_the_first_in_the_manifest(tmp_path, traces):
    """A models directory grows; names tell the artefacts apart."""
    data = load_dataset([traces])
    for wanted in (order(), order(algorithm=Algorithm.LOGISTIC_REGRESSION)):
        write_artefact(tmp_path / "m", *train(wanted, data))
    assert sorted(load_models(tmp_path / "m")) == ["prefix-13", "prefix-13-lr"]


def test_a_manifest_that_cannot_be_read_is_left_alone(tmp_path, traces):
    """Nothing is written beside a file that is not ours to understand."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "manifest.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelError, match="is not a model manifest"):
        write_artefact(tmp_path / "m", *train(order(), load_dataset([traces])))
    assert [p.name for p in (tmp_path / "m").iterdir()] == ["manifest.json"]


def test_a_card_of_other_bytes_is_refused(tmp_path, traces):
    """A card may not speak for another model, even where the manifest pins both."""
    onnx, card = train(order(), load_dataset([traces]))
    write_artefact(tmp_path / "m", onnx, {**card, "sha256": "0" * 64})
    with pytest.raises(ModelError, match="describes another model's bytes"):
        load_models(tmp_path / "m")


def test_the_card_says_what_the_threshold_costs_and_how_scores_lie(traces):
    """Figures by protocol, with reasons where there are none; a histogram of every send."""
    data = load_dataset([traces])
    _, card = train(order(threshold=0.7), data, benign=data)
    evaluation = card["evaluation"]
    assert card["threshold"]["value"] == 0.7
    assert "benign first sends" in card["threshold"]["cost"]
    assert evaluation["random_folds"]["auc"] == 1.0
    assert evaluation["grouped_model_x_defence"]["groups"] == 6
    assert evaluation["benign_memory_grounded"] == {"first_sends": 60, "flagged": 30}
    assert sum(card["score_histogram"]["counts"]) == 60
    json.dumps(card, allow_nan=False)


def test_features_of_the_whole_session_are_named_as_such(traces):
    """A full-19 model cannot be asked before a send, and its card does not say it was."""
    _, card = train(order(features=FeatureSet.FULL19), load_dataset([traces]))
    assert card["name"] == "full-19"
    assert "do not exist before the send" in card["session"]
    assert "every_send_of_the_training_runs" not in card["evaluation"]


def test_the_shipped_model_is_the_forest_of_the_development_traces(leong):
    """Training again from the data the card names gives the scores that ship."""
    card = json.loads((models_directory() / "prefix-13.card.json").read_text(encoding="utf-8"))
    data = load_dataset([leong], Reading(labelling=Labelling.MAILED))
    [(name, digest)] = data.files
    assert card["training_data"]["files"] == [{"file": name, "sha256": digest}]
    rows, labels = data.rows(FeatureSet.PREFIX13), data.labels(Labelling.MAILED)
    assert card["training_data"]["positive"] == int(labels.sum())
    forest = make(Algorithm.RANDOM_FOREST).fit(rows, labels)
    model = load_models(models_directory())["prefix-13"]
    distinct = np.unique(rows, axis=0)
    expected = forest.predict_proba(distinct)[:, 1]
    assert [model.score(row) for row in distinct.tolist()] == pytest.approx(expected, abs=1e-5)
