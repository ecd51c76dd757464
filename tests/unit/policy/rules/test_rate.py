"""The rule type ``rate``."""

import pytest

from guard.core.model import Identity, Role, SessionRung
from guard.policy.rules.base import MappingOutline, PolicyOutline

SENDS = PolicyOutline((MappingOutline((), Role.SEND, has_targets=True),))


@pytest.mark.parametrize(
    ("fields", "session", "principal", "in_flight", "applies"),
    [
        ({"at_most": 2}, ["send"], [], [], False),
        ({"at_most": 2}, ["send", "send"], [], [], True),
        ({"at_most": 2}, ["send"], [], ["send"], True),
        ({"at_most": 2}, ["recall", "recall"], [], [], False),
        ({"at_most": 2}, [], ["send", "send"], [], True),
        ({"at_most": 2, "scope": "session"}, ["send", "send"], [], [], True),
        ({"at_most": 2, "scope": "session"}, [], ["send", "send"], [], True),
        ({"at_most": 2, "scope": "principal"}, ["send", "send"], [], [], False),
        ({"at_most": 2, "counts": ["recall", "list"]}, ["recall", "list"], [], [], False),
        ({"at_most": 1, "counts": ["recall", "list"]}, ["recall", "list"], [], [], True),
        ({"at_most": 0}, [], [], [], True),
    ],
)
def test_calls_beyond_the_limit_are_caught(
    rule, situation, fields, session, principal, in_flight, applies
):
    """This call counts where its role is counted; one full window is enough."""
    judged = situation(session=session, principal=principal, in_flight=in_flight)

    assert (rule("rate", **fields).match(judged) is not None) is applies


@pytest.mark.parametrize("rung", SessionRung)
def test_a_new_session_id_resets_no_limit(rule, situation, rung):
    """However the id was learnt, its client chose it; only recorded sessions stand alone."""
    identity = Identity("p", "new", session_rung=rung)
    judged = situation(principal=["send", "send"], identity=identity)

    applies = rule("rate", at_most=2, scope="session").match(judged) is not None

    assert applies is (rung is not SessionRung.RECORDED)


@pytest.mark.parametrize(("counts", "useless"), [(["recall"], True), (["send", "other"], False)])
def test_a_rate_of_what_cannot_occur_is_a_problem(rule, counts, useless):
    """No tool mapping has the role."""
    assert bool(list(rule("rate", at_most=1, counts=counts).problems(SENDS))) is useless
