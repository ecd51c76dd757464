"""The rule types ``sequence``, recall-before-send among them, and ``score``."""

import math

import pytest


@pytest.mark.parametrize(
    ("scope", "session", "principal", "applies"),
    [
        ("session", ["recall"], [], True),
        ("session", [], ["recall"], False),
        ("principal", ["recall"], [], False),
        ("principal", [], ["recall"], True),
        ("both", ["recall"], [], True),
        ("both", [], ["recall"], True),
        ("both", ["list", "draft"], ["send"], False),
    ],
)
def test_one_window_of_the_scope_is_enough(rule, situation, scope, session, principal, applies):
    """The worse of session and principal wins, so a fresh session hides nothing."""
    sequence = rule("sequence", after=["recall"], scope=scope)
    matched = sequence.match(situation(session=session, principal=principal))
    assert (matched is not None) is applies


def test_a_recall_in_flight_counts(rule, situation):
    """Two parallel calls of one session cannot miss each other."""
    assert rule("sequence", after=["recall"]).match(situation(in_flight=["recall"])) is not None


def test_a_call_in_flight_frees_nothing(rule, situation):
    """An allowing rule needs the earlier call to have been executed, in every window."""
    allowing = rule("sequence", "allow", after=["recall"])
    seen = {"standings": ["external"]}
    assert allowing.match(situation(in_flight=["recall"], principal=["recall"], **seen)) is None
    assert allowing.match(situation(session=["recall"], **seen)) is None
    assert allowing.match(situation(session=["recall"], principal=["recall"], **seen)) is not None


@pytest.mark.parametrize(
    ("role", "before", "code"),
    [
        ("send", "recall", "recall_before_send"),
        ("send", "save", "sequence"),
        ("save", "recall", "sequence"),
    ],
)
def test_recall_before_send_has_a_code_of_its_own(rule, situation, role, before, code):
    """The paper's rule is told from other sequences."""
    reason = rule("sequence", after=["recall", "save"]).match(situation(role, session=[before]))
    assert reason.code == code
    assert reason.evidence["after"] == [before]


@pytest.mark.parametrize(
    ("scores", "applies"), [([0.49], False), ([0.5], True), ([0.1, 0.9], True), ([1.0], True)]
)
def test_it_applies_from_the_threshold_on(rule, situation, scores, applies):
    """The worst score counts."""
    matched = rule("score", model="prefix-13", at_least=0.5).match(situation(scores=scores))
    assert (matched is not None) is applies


@pytest.mark.parametrize("scores", [[], [None], [math.nan], [-0.1], [1.1], [0.9, math.nan]])
def test_a_send_without_a_proper_score_is_an_error(rule, situation, scores):
    """A model that did not run must not look like one that found nothing."""
    with pytest.raises(ValueError, match="score"):
        rule("score", model="prefix-13", at_least=0.5).match(situation(scores=scores))


def test_the_score_of_another_model_does_not_count(rule, situation):
    """A send is judged by the model that the policy names."""
    with pytest.raises(ValueError, match="prefix-13"):
        rule("score", model="prefix-13", at_least=0.5).match(situation(scores=[0.9], model="other"))


def test_a_send_that_the_filters_leave_out_needs_no_score(rule, situation):
    """A rule about external sends says nothing about internal ones."""
    about_external = rule("score", model="prefix-13", at_least=0.5, status=["external"])
    assert about_external.match(situation(standings=["internal"])) is None
