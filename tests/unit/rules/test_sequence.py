"""The rule type ``sequence``, recall-before-send among them."""

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
