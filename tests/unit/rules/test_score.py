"""The rule type ``score``."""

import math

import pytest


@pytest.mark.parametrize(
    ("scores", "applies"), [([0.49], False), ([0.5], True), ([0.1, 0.9], True), ([1.0], True)]
)
def test_it_applies_from_the_threshold_on(rule, situation, scores, applies):
    """The worst score counts."""
    matched = rule("score", model="prefix-13", at_least=0.5).match(situation(scores=scores))
    assert (matched is not None) is applies


def test_the_score_is_in_the_evidence(rule, situation):
    """Whoever reads the audit sees the number and the model."""
    reason = rule("score", model="prefix-13", at_least=0.5).match(situation(scores=[0.75]))
    assert reason.code == "prefix_score"
    assert reason.evidence == {"score": 0.75, "model": "prefix-13"}


@pytest.mark.parametrize("scores", [[], [None], [math.nan], [-0.1], [1.1], [0.9, math.nan]])
def test_a_send_without_a_proper_score_is_an_error(rule, situation, scores):
    """A model that did not run must not look like one that found nothing."""
    with pytest.raises(ValueError, match="score"):
        rule("score", model="prefix-13", at_least=0.5).match(situation(scores=scores))


def test_the_score_of_another_model_does_not_count(rule, situation):
    """A send is judged by the model that the policy names."""
    with pytest.raises(ValueError, match="prefix-13"):
        rule("score", model="prefix-13", at_least=0.5).match(situation(scores=[0.9], model="other"))


def test_calls_that_are_no_send_need_no_score(rule, situation):
    """The classifier scores the moment before a send."""
    assert rule("score", model="prefix-13", at_least=0.5).match(situation("recall")) is None


def test_a_send_that_the_filters_leave_out_needs_no_score(rule, situation):
    """A rule about external sends says nothing about internal ones."""
    about_external = rule("score", model="prefix-13", at_least=0.5, status=["external"])
    assert about_external.match(situation(standings=["internal"])) is None
