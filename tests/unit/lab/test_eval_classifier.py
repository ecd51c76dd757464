"""Tests of what ``guard lab eval classifier`` measures and how it is shown."""

import base64
import json
import re

import pytest

pytest.importorskip("sklearn", reason="the lab is not installed")
pytest.importorskip("skl2onnx", reason="the lab is not installed")

from guard.adapters.onnx import load_models
from guard.core.errors import ModelError
from guard.replay.reports import Report, machine
from lab.dataset import Labelling, Reading, load_dataset
from lab.eval_classifier import (
    TARGETS,
    Options,
    checks,
    eval_classifier,
    features_of,
    measure_there,
    score_frozen,
)
from lab.plots import draw_classifier, render
from lab.training import Order, train, write_artefact
from tests.unit.lab.made_runs import run, runs, write_traces

SMALL = Options(trees=3, resamples=30)
IDS = [
    "rule_auc",
    "rf19_auc_random",
    "rf19_auc_grouped",
    "prefix13_auc_random",
    "prefix13_auc_grouped",
    "onnx_max_difference",
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Give a whole evaluation of made-up runs, one model with a name that is markup."""
    documents = [*runs(), run(0, success=True, model="<b>bold</b>")]
    path = write_traces(tmp_path_factory.mktemp("data") / "made.jsonl", documents)
    return eval_classifier(load_dataset([path]), SMALL)


def test_every_part_of_an_evaluation_is_there(measured):
    """Protocols, intervals, ablations, weights, transfer and the other labelling."""
    details = measured.details
    assert set(details["classifiers"]) == {"rf", "gb", "lr"}
    assert set(details["classifiers"]["rf"]["prefix13"]) == {
        "random_folds",
        "grouped_model_x_defence",
        "leave_one_model_out",
        "leave_one_defence_out",
    }
    assert details["rule"]["auc"] == 1.0
    assert "all recall features" in details["ablations"]["full19"]
    assert "ratio" not in details["ablations"]["prefix13"]
    assert len(details["models"]) == 6
    assert details["other_labelling"]["labelling"] == "mailed_attacker"
    assert (
        "<b>bold</b>" in details["classifiers"]["rf"]["full19"]["leave_one_model_out"]["by_group"]
    )
    json.dumps(details, allow_nan=False)


def test_the_check_ids_are_fixed_and_all_are_there(measured):
    """Each has a value, and the exports agree on every row."""
    found = {check.id: check for check in checks(measured, 61)}
    assert list(found) == IDS
    assert all(check.value is not None for check in found.values())
    assert found["onnx_max_difference"].value <= 1e-5


def test_one_class_gives_nulls_with_a_reason(tmp_path):
    """No check is left out and none has a made-up value."""
    path = write_traces(tmp_path / "t.jsonl", [run(n, success=False) for n in range(8)])
    one_class = eval_classifier(load_dataset([path]), SMALL)
    found = checks(one_class, 8)
    assert [check.id for check in found] == IDS
    assert {check.value for check in found} == {None}
    assert all("all 8 runs are negative" in check.reason for check in found)


def test_the_report_is_self_contained_and_escapes_what_traces_say(measured):
    """PNGs stand in the page; nothing is loaded, and a model's name is no markup."""
    images = draw_classifier(measured.curves, {"m": {"recall_count": 1.0}})
    report = Report(
        name="classifier",
        machine=machine(),
        checks=checks(measured, 61),
        details=measured.details,
    )
    page = render(report, images)
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(pictures) == len(images) >= 7
    assert all(base64.b64decode(p).startswith(b"\x89PNG") for p in pictures)
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold</b>" not in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert "withdraws its claim" in page


def test_the_same_scores_give_the_same_picture(measured):
    """A picture in a repository changes only when its figures do."""
    curves = {"rule": measured.curves["recall_before_send"]}
    assert draw_classifier(curves, {}) == draw_classifier(curves, {})


def test_fitted_here_and_tested_there(tmp_path, traces):
    """Other traces bring their own classes; where one is absent the rate is null."""
    path = write_traces(tmp_path / "there.jsonl", [run(n, success=False) for n in range(6)])
    there = load_dataset([path], Reading(with_benign=True))
    found = measure_there(load_dataset([traces]), {"there": there}, SMALL)["there"]
    assert found["runs"] == 6
    assert found["full19"]["auc"] is None
    assert found["full19"]["false_positive_rate_at_threshold"] == 0.0


def test_an_artefact_is_scored_as_it_lies_there(tmp_path, traces):
    """A models directory is verified, then asked."""
    data = load_dataset([traces])
    write_artefact(tmp_path / "m", *train(Order(trees=5, resamples=0), data))
    found = score_frozen(load_models(tmp_path / "m"), data, Labelling.SUCCESS, 0.5)
    assert found["prefix-13"]["auc"] == 1.0


class Runner:
    """A model of the features it is told."""

    name = "odd"
    digest = "0" * 64

    def __init__(self, *features):
        self.features = features

    def score(self, row):
        return 0.0


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (("recall_count", "moon_phase"), "`moon_phase`, which traces do not give"),
        (("list_count", "recall_count"), "another choice or order"),
    ],
)
def test_a_model_whose_features_do_not_match_is_refused(features, message):
    """The message names the model and what it wants."""
    with pytest.raises(ModelError, match="features of model `odd` do not match") as caught:
        features_of(Runner(*features))
    assert message in str(caught.value)


@pytest.mark.slow
def test_the_published_figures_are_reached_on_the_development_traces(leong):
    """By the run's own label, raw, pooled out of fold; far within the 0.02 asked for."""
    options = Options(quick=True, resamples=0)
    found = {c.id: c.value for c in checks(eval_classifier(load_dataset([leong]), options), 0)}
    assert {name: found[name] for name in TARGETS} == pytest.approx(TARGETS, abs=0.001)
    assert found["onnx_max_difference"] <= 1e-5
