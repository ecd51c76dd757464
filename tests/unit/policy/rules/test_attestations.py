"""Rules about attestations: the weakest value decides, and doubt never allows."""

from dataclasses import replace

import pytest

from guard.core.labels import Attestation, Channel, LabelRecord, PrivateText, Rung
from guard.core.model import Integrity
from guard.core.policy import Action
from guard.policy.rules.provenance import SELECTED

RECORD = LabelRecord(Integrity.UNTRUSTED, Channel.RESULT, 2, 0.0, b"s" * 8, "read")


def attested(situation, *attestations):
    """Return a situation whose targets have attestations."""
    built = situation(standings=["external"] * len(attestations))
    pairs = zip(built.call.targets, attestations, strict=True)
    targets = tuple(replace(target, attestation=one) for target, one in pairs)
    return replace(built, call=replace(built.call, targets=targets))


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
