"""Tests of the classifiers and their export."""

import pytest

pytest.importorskip("sklearn", reason="the lab is not installed")
pytest.importorskip("skl2onnx", reason="the lab is not installed")

import numpy as np

from guard.core.errors import ModelError
from lab import models
from lab.dataset import Labelling, load_dataset
from lab.paper import Algorithm, FeatureSet


@pytest.mark.parametrize("features", list(FeatureSet))
@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_the_export_equals_scikit_learn_on_every_row_and_repeats(traces, algorithm, features):
    """ONNX and scikit-learn agree to 1e-5, and a second export has the same bytes."""
    data = load_dataset([traces])
    rows, labels = data.rows(features), data.labels(Labelling.SUCCESS)
    fitted = models.make(algorithm, trees=10).fit(rows, labels)
    onnx, difference = models.verified_export(fitted, "m", rows)
    again = models.make(algorithm, trees=10).fit(rows, labels)
    assert difference <= 1e-5
    assert onnx == models.export(again, "m", len(features.names))


def test_an_export_that_scores_otherwise_is_refused(monkeypatch, traces):
    """A converter that changes scores must not reach an artefact."""
    data = load_dataset([traces])
    rows, labels = data.rows(FeatureSet.PREFIX13), data.labels(Labelling.SUCCESS)
    fitted = models.make(Algorithm.LOGISTIC_REGRESSION).fit(rows, labels)
    monkeypatch.setattr(models, "onnx_scores", lambda onnx, rows: np.full(len(rows), 0.5))
    with pytest.raises(ModelError, match="differs from scikit-learn"):
        models.verified_export(fitted, "m", rows)


def test_the_settings_are_the_papers():
    """200 trees of depth 8; 200 of depth 4 at 0.05; scaled L2 with C = 1."""
    forest = models.make(Algorithm.RANDOM_FOREST).get_params()
    boosting = models.make(Algorithm.GRADIENT_BOOSTING).get_params()
    logistic = models.make(Algorithm.LOGISTIC_REGRESSION)
    assert (forest["n_estimators"], forest["max_depth"], forest["random_state"]) == (200, 8, 42)
    assert (boosting["n_estimators"], boosting["max_depth"]) == (200, 4)
    assert (boosting["learning_rate"], boosting["random_state"]) == (0.05, 42)
    assert [name for name, _ in logistic.steps] == ["standardscaler", "logisticregression"]
    assert (logistic[-1].C, logistic[-1].max_iter) == (1.0, 1000)
