"""Tests of the verified model artefacts."""

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
from guard.inference.onnx import load_models
from guard.settings import models_directory

SHIPPED = models_directory()
MODEL = load_models(SHIPPED)["prefix-13"]


@pytest.fixture
def models(tmp_path):
    """A copy of the shipped models that may be damaged."""
    return shutil.copytree(SHIPPED, tmp_path / "models")


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("prefix-13.onnx", "altered", "not the file the manifest names"),
        ("prefix-13.card.json", "altered", "not the file the manifest names"),
        ("prefix-13.onnx", "missing", "cannot be read"),
        ("prefix-13.card.json", "missing", "cannot be read"),
        ("manifest.json", "missing", "cannot be read"),
    ],
)
def test_one_changed_byte_or_a_missing_file_is_refused(models, file, change, problem):
    """Neither the model nor its card can be altered without the manifest; there is no half."""
    content = bytearray((models / file).read_bytes())
    content[len(content) // 2] ^= 1
    (models / file).write_bytes(content) if change == "altered" else (models / file).unlink()
    with pytest.raises(ModelError, match=problem):
        load_models(models)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        *(
            (field, name, "plain file name")
            for field in ("file", "card")
            for name in ("../prefix-13.onnx", "/etc/passwd", "..", "", "a\\b", "a\0b")
        ),
        ("features", list(reversed(FEATURES_13)), "disagree"),
    ],
)
def test_what_a_manifest_may_not_say_is_refused(models, field, value, problem):
    """It names files of its own directory; features in another order would be scored wrongly."""
    shutil.copy(models / "prefix-13.onnx", models.parent / "prefix-13.onnx")
    path = models / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["prefix-13"][field] = value
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ModelError, match=problem):
        load_models(models)


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


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, 1.5])
def test_an_answer_that_is_no_probability_is_a_model_error(monkeypatch, value):
    """A NaN compares false with every threshold, so it must not reach a rule."""

    class Broken:
        def run(self, outputs, inputs):
            return [np.array([[0.0, value]])]

    monkeypatch.setattr(MODEL, "_session", Broken())
    with pytest.raises(ModelError, match="answered no probability"):
        MODEL.score((0.0,) * 13)


def test_a_runtime_that_can_send_knows_the_switch():
    """A version that renames the switch must not be taken up unseen."""
    library = next(
        Path(onnxruntime.__file__).parent.rglob("onnxruntime_pybind11_state*")
    ).read_bytes()

    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    assert b"events.data.microsoft.com" not in library or b"ORT_DISABLE_TELEMETRY" in library
