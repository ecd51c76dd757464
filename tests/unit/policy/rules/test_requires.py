"""The rule type ``requires``."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from guard.core.labels import Attestation, Rung
from guard.policy.rules.base import PolicyOutline


def on(built, *rungs, guarded=()):
    """Return the situation with its destinations, and guarded values, on these rungs."""

    def placed(target, rung):
        return replace(target, attestation=rung and Attestation(rung, "test"))

    target = built.call.targets[0]
    call = replace(
        built.call,
        targets=tuple(placed(target, rung) for rung in rungs),
        guarded=tuple(placed(target, rung) for rung in guarded),
    )
    return replace(built, call=call)


@pytest.mark.parametrize(
    ("needs", "rungs", "guarded", "caught"),
    [
        ("trusted", [Rung.LISTED, Rung.GRANTED, Rung.PROMPTED], [], False),
        ("trusted", [Rung.REMEMBERED], [], True),
        ("authenticated", [Rung.REPLY, Rung.REMEMBERED], [], False),
        ("authenticated", [Rung.PROMPTED, Rung.CLAIMED], [], True),
        ("advisory", [Rung.CLAIMED], [], False),
        ("advisory", [Rung.UNKNOWN], [], True),
        ("advisory", [Rung.TAINTED], [], True),
        ("advisory", [None], [], True),
        ("trusted", [Rung.LISTED], [Rung.TAINTED], True),
        ("trusted", [], [], False),
    ],
)
def test_the_weakest_value_of_a_call_must_be_of_enough_integrity(
    rule, situation, needs, rungs, guarded, caught
):
    """A call is worth the minimum over its destinations and guarded values."""
    built = on(situation(standings=["external"]), *rungs, guarded=guarded)

    reason = rule("requires", integrity=needs).match(built)

    assert (reason is not None) == caught
    assert reason is None or reason.code == "integrity_low"


@pytest.mark.parametrize("value", ["untrusted", "TRUSTED", 3])
def test_an_integrity_that_demands_nothing_or_does_not_exist_is_refused(rule, value):
    """Everything is at least untrusted."""
    with pytest.raises(ValidationError):
        rule("requires", integrity=value)
    assert list(rule("requires").problems(PolicyOutline(())))
