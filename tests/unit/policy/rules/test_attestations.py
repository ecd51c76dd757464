"""Rules about attestations: the weakest value decides, and doubt never allows."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from guard.core.labels import Attestation, Channel, LabelRecord, PrivateText, Rung
from guard.core.model import Integrity
from guard.core.policy import Action
from guard.policy.rules.base import PolicyOutline
from guard.policy.rules.provenance import SELECTED

RECORD = LabelRecord(Integrity.UNTRUSTED, Channel.RESULT, 2, 0.0, b"s" * 8, "read")


def attested(situation, *attestations, guarded=()):
    """Return a situation whose targets, and guarded values, have attestations."""
    built = situation(standings=["external"] * (len(attestations) + len(guarded)))
    pairs = zip(built.call.targets, (*attestations, *guarded), strict=True)
    placed = [replace(target, attestation=one) for target, one in pairs]
    targets, kept = tuple(placed[: len(attestations)]), tuple(placed[len(attestations) :])
    return replace(built, call=replace(built.call, targets=targets, guarded=kept))


@pytest.mark.parametrize(
    ("effect", "attestations", "expected"),
    [
        ("ask", [Attestation(Rung.PROMPTED, "x")], None),
        ("ask", [Attestation(Rung.PROMPTED, "x"), Attestation(Rung.UNKNOWN, "x")], "unknown"),
        ("ask", [Attestation(Rung.TAINTED, "x"), Attestation(Rung.UNKNOWN, "x")], "tainted"),
        ("ask", [Attestation(Rung.UNKNOWN, next(iter(SELECTED)))], next(iter(SELECTED))),
        ("ask", [None], "unknown"),
        ("ask", [], None),
        ("allow", [Attestation(Rung.UNKNOWN, "x")], "unknown"),
        ("allow", [Attestation(Rung.UNKNOWN, "x", saturated=True)], "saturated"),
        ("allow", [Attestation(Rung.UNKNOWN, "x"), Attestation(Rung.DENIED, "x")], None),
        ("allow", [Attestation(Rung.UNKNOWN, "x"), None], "unknown"),
        ("allow", [], None),
    ],
)
def test_the_weakest_value_decides(rule, situation, effect, attestations, expected):
    """An allowing rule needs every value, and asks where one may be tainted."""
    rungs = ["unknown"] if effect == "allow" else ["unknown", "tainted"]
    made = rule("provenance", rungs=rungs, effect=effect)
    found = made.match(attested(situation, *attestations))
    assert (found is None) is (expected is None)
    assert found is None or found.code.endswith(expected)
    assert found is None or (found.action is Action.ASK) is (
        effect == "ask" or expected == "saturated"
    )


@pytest.mark.parametrize(
    ("private", "code"),
    [
        (None, None),
        (PrivateText(), None),
        (PrivateText(passages=1, record=RECORD), "private_in_body"),
        (PrivateText(told=0.6), "private_in_pieces"),
        (PrivateText(complete=False), "work_exceeded"),
    ],
)
def test_private_text_counts_whole_in_pieces_and_where_it_is_not_looked_through(
    rule, situation, private, code
):
    """Text of which nothing is known counts as private."""
    built = situation(standings=["external"])
    made = rule("private_body", over_calls=0.5, effect="ask")
    found = made.match(replace(built, call=replace(built.call, private=private)))
    assert (found is None) is (code is None)
    assert found is None or found.code == code or private.complete is False


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
    on = [rung and Attestation(rung, "test") for rung in rungs]
    built = attested(situation, *on, guarded=[Attestation(rung, "test") for rung in guarded])

    reason = rule("requires", integrity=needs).match(built)

    assert (reason is not None) == caught
    assert reason is None or reason.code == "integrity_low"


@pytest.mark.parametrize("value", ["untrusted", "TRUSTED", 3])
def test_an_integrity_that_demands_nothing_or_does_not_exist_is_refused(rule, value):
    """Everything is at least untrusted."""
    with pytest.raises(ValidationError):
        rule("requires", integrity=value)
    assert list(rule("requires").problems(PolicyOutline(())))
