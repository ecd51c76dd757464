"""Tests of the verified model artefacts."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.errors import ModelError
from guard.core.model import Role
from guard.core.trajectory import FEATURES_13, Trajectory
from guard.inference.onnx import OnnxModel, load_models
from guard.settings import models_directory

SHIPPED = models_directory()
MODEL = load_models(SHIPPED)["prefix-13"]


@pytest.fixture
def models(tmp_path):
    """A copy of the shipped models that may be damaged."""
    return shutil.copytree(SHIPPED, tmp_path / "models")


def edit_manifest(models, **changes):
    """Change fields of the one entry of a manifest."""
    path = models / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["prefix-13"].update(changes)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def test_the_shipped_model_loads_and_names_its_digest(models):
    """The digest in audit lines is the sha256 of the file that ships."""
    model = load_models(models)["prefix-13"]
    content = (models / "prefix-13.onnx").read_bytes()
    assert (model.name, model.features) == ("prefix-13", FEATURES_13)
    assert model.digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("file", ["prefix-13.onnx", "prefix-13.card.json"])
def test_one_changed_byte_is_refused(models, file):
    """Neither the model nor its card can be altered without the manifest."""
    content = bytearray((models / file).read_bytes())
    content[len(content) // 2] ^= 1
    (models / file).write_bytes(bytes(content))
    with pytest.raises(ModelError, match="not the file the manifest names"):
        load_models(models)


@pytest.mark.parametrize("file", ["prefix-13.onnx", "prefix-13.card.json", "manifest.json"])
def test_a_missing_file_is_refused(models, file):
    """A directory that is not whole gives no model at all."""
    (models / file).unlink()
    with pytest.raises(ModelError, match=r"cannot be read \(FileNotFoundError\)"):
        load_models(models)


@pytest.mark.parametrize("name", ["../prefix-13.onnx", "/etc/passwd", "..", "", "a\\b", "a\0b"])
@pytest.mark.parametrize("field", ["file", "card"])
def test_a_path_in_the_manifest_is_refused(models, field, name):
    """A manifest names files of its own directory and no others."""
    shutil.copy(models / "prefix-13.onnx", models.parent / "prefix-13.onnx")
    edit_manifest(models, **{field: name})
    with pytest.raises(ModelError, match="plain file name"):
        load_models(models)


def test_features_that_differ_from_the_card_are_refused(models):
    """Features in another order would be scored without an error otherwise."""
    edit_manifest(models, features=list(reversed(FEATURES_13)))
    with pytest.raises(ModelError, match="disagree"):
        load_models(models)


def test_features_that_do_not_fit_the_model_are_refused(models):
    """A card and manifest that agree on 12 features do not fit a model of 13."""
    card = models / "prefix-13.card.json"
    document = json.loads(card.read_text(encoding="utf-8"))
    document["features"] = document["features"][:-1]
    card.write_text(json.dumps(document), encoding="utf-8")
    digest = hashlib.sha256(card.read_bytes()).hexdigest()
    edit_manifest(models, features=document["features"], card_sha256=digest)
    with pytest.raises(ModelError, match="does not take 12 features"):
        load_models(models)


@pytest.mark.parametrize("text", ["", "[]", '{"prefix-13": {}}', '{"prefix-13": 1}', "\xff"])
def test_a_manifest_of_another_shape_is_refused(models, text):
    """What is not a manifest is an error that says so, never an empty set of models."""
    (models / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelError, match="is not a model manifest"):
        load_models(models)


def test_bytes_that_are_no_model_are_refused():
    """Bytes with the right digest and the wrong content are a model error, not a crash."""
    with pytest.raises(ModelError, match="cannot be loaded"):
        OnnxModel("m", b"nonsense", FEATURES_13)


@settings(max_examples=50)
@given(st.lists(st.sampled_from(list(Role)), max_size=30))
def test_every_trajectory_scores_as_a_probability(roles):
    """Whatever an agent did, the score is a number in [0, 1] and the same each time."""
    row = Trajectory.of(roles).features_13()
    score = MODEL.score(row)
    assert 0.0 <= score <= 1.0
    assert MODEL.score(row) == score


@pytest.mark.parametrize("width", [0, 12, 14, 19])
def test_a_row_of_another_width_is_a_model_error(width):
    """Rows of the 19 features are not scored by a model of 13."""
    with pytest.raises(ModelError, match="takes 13 features"):
        MODEL.score((0.0,) * width)


def test_a_row_that_holds_no_numbers_is_a_model_error():
    """A failure inside the runtime or the conversion comes out as the port's own error."""
    with pytest.raises(ModelError, match="failed on a row"):
        MODEL.score(("x",) * 13)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, 1.5])
def test_an_answer_that_is_no_probability_is_a_model_error(monkeypatch, value):
    """A NaN compares false with every threshold, so it must not reach a rule."""

    class Broken:
        def run(self, outputs, inputs):
            return [np.array([[0.0, value]])]

    monkeypatch.setattr(MODEL, "_session", Broken())
    with pytest.raises(ModelError, match="answered no probability"):
        MODEL.score((0.0,) * 13)


def test_the_card_says_which_scores_to_expect(models):
    """The shares are cumulative and end with all; a card without a histogram expects nothing."""
    card = json.loads((models / "prefix-13.card.json").read_text(encoding="utf-8"))
    shares = load_models(models)["prefix-13"].expected_scores

    counts = card["score_histogram"]["counts"]
    assert list(shares) == card["score_histogram"]["le"]
    assert list(shares.values()) == sorted(shares.values())
    assert shares[0.6] == sum(counts[:6]) / sum(counts)
    assert shares[1.0] == 1

    del card["score_histogram"]
    rewrite_card(models, card)
    assert load_models(models)["prefix-13"].expected_scores == {}


@pytest.mark.parametrize(
    "histogram",
    [
        pytest.param({"le": [0.5, 1.0], "counts": [1]}, id="a count is missing"),
        pytest.param({"le": [1.0], "counts": [0]}, id="of nothing"),
        pytest.param({"le": [1.0], "counts": [-1]}, id="a negative count"),
        pytest.param({"le": [1.0]}, id="no counts"),
    ],
)
def test_a_card_with_an_impossible_histogram_is_refused(models, histogram):
    """Drift measured against nonsense would be nonsense."""
    card = json.loads((models / "prefix-13.card.json").read_text(encoding="utf-8"))
    rewrite_card(models, card | {"score_histogram": histogram})

    with pytest.raises(ModelError, match="card of model `prefix-13` does not fit"):
        load_models(models)


def rewrite_card(models, card):
    """Replace the card, and its digest in the manifest."""
    text = json.dumps(card)
    (models / "prefix-13.card.json").write_text(text, encoding="utf-8")
    edit_manifest(models, card_sha256=hashlib.sha256(text.encode()).hexdigest())


def test_a_runtime_that_can_send_knows_the_switch():
    """A version that renames the switch must not be taken up unseen."""
    library = next(
        Path(onnxruntime.__file__).parent.rglob("onnxruntime_pybind11_state*")
    ).read_bytes()

    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    assert b"events.data.microsoft.com" not in library or b"ORT_DISABLE_TELEMETRY" in library
