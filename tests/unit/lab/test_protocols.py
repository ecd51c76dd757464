"""Tests of the ways to divide runs."""

import pytest

pytest.importorskip("sklearn", reason="the lab is not installed")

import numpy as np

from lab.dataset import Labelling, load_dataset
from lab.models import make
from lab.paper import Algorithm, FeatureSet
from lab.protocols import (
    NotMeasuredError,
    Protocol,
    by_group,
    divide,
    figures,
    fit_and_score,
    groups_of,
    out_of_fold,
    transfer_between_models,
)
from tests.unit.lab.made_runs import run, runs, write_traces


def build():
    """Return a small forest."""
    return make(Algorithm.RANDOM_FOREST, trees=5)


@pytest.mark.parametrize("protocol", list(Protocol))
def test_every_run_is_scored_once_and_groups_stay_whole(traces, protocol):
    """Test parts cover all runs without overlap; no group is on both sides."""
    data = load_dataset([traces])
    labels = data.labels(Labelling.SUCCESS)
    groups = groups_of(data, protocol)
    tested = []
    for train, test in divide(data, labels, protocol):
        tested += test.tolist()
        assert not set(train) & set(test)
        assert groups is None or not set(groups[train]) & set(groups[test])
    assert sorted(tested) == list(range(len(data)))


def test_what_separates_the_classes_is_found_out_of_fold(traces):
    """Runs that recall if and only if they are positive are told apart."""
    data = load_dataset([traces])
    labels = data.labels(Labelling.SUCCESS)
    pooled = out_of_fold(build, data, data.rows(FeatureSet.FULL19), labels, Protocol.MODEL)
    assert figures(labels, pooled.scores)["auc"] == 1.0
    assert set(by_group(pooled)) == {"m0", "m1", "m2"}


@pytest.mark.parametrize("success", [True, False])
def test_one_class_is_not_measured(tmp_path, success):
    """The reason names the class there is."""
    documents = [run(n, success=success) for n in range(8)]
    data = load_dataset([write_traces(tmp_path / "t.jsonl", documents)])
    with pytest.raises(NotMeasuredError, match=r"all 8 runs are (positive|negative), "):
        divide(data, data.labels(Labelling.SUCCESS), Protocol.RANDOM)


def test_too_few_runs_or_groups_are_not_measured(tmp_path):
    """Four runs do not make five folds, and one model cannot be left out."""
    documents = [run(n, success=n % 2 == 0, model="only") for n in range(4)]
    data = load_dataset([write_traces(tmp_path / "t.jsonl", documents)])
    labels = data.labels(Labelling.SUCCESS)
    with pytest.raises(NotMeasuredError, match="needs 5 runs of each class"):
        divide(data, labels, Protocol.RANDOM)
    for protocol in set(Protocol) - {Protocol.RANDOM}:
        with pytest.raises(NotMeasuredError, match="needs at least"):
            divide(data, labels, protocol)


def test_a_fold_of_one_class_scores_everything_as_that_class():
    """A model of the other group's only class is all that fold can give."""
    rows = np.zeros((3, 2), dtype=np.float32)
    assert fit_and_score(build, rows, np.array([1, 1, 1]), rows).tolist() == [1.0, 1.0, 1.0]


def test_figures_of_one_class_are_null_not_zero():
    """A rate over nothing is no rate."""
    found = figures(np.array([1, 1]), np.array([0.9, 0.1]))
    assert (found["auc"], found["false_positive_rate_at_threshold"]) == (None, None)
    assert found["recall_at_threshold"] == 0.5


def test_a_classifier_of_one_model_is_tested_on_the_others(tmp_path):
    """Only models that hold both classes take part."""
    documents = [*runs(), run(0, success=True, model="one-sided")]
    data = load_dataset([write_traces(tmp_path / "t.jsonl", documents)])
    labels = data.labels(Labelling.SUCCESS)
    table = transfer_between_models(build, data, data.rows(FeatureSet.FULL19), labels)
    assert table["m0"] == {"m1": 1.0, "m2": 1.0}
    assert set(table) == {"m0", "m1", "m2"}
