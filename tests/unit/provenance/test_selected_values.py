"""The rung of a value that stands in an item which a selection does not vouch for."""

from dataclasses import replace

import pytest

from guard.core.labels import Channel, Context, Evidence, LabelRecord, Rung
from guard.core.model import Destination, DestinationStatus, Integrity
from guard.provenance.ladder import attest
from guard.values.finding import keys_of

PAYEE = Destination("mail", "payee@bank.test", "bank.test")
TRUSTED = LabelRecord(Integrity.TRUSTED, Channel.PROMPT, 0, 1.0, b"s" * 8, "x")
MARK = LabelRecord(Integrity.UNTRUSTED, Channel.SELECTION, 3, 5.0, b"s" * 8, "recall", until=100.0)


def judged(evidence, *, at=10.0, status=DestinationStatus.EXTERNAL, **more):
    """Return where the payee stands with some evidence under each of its values."""
    values = dict.fromkeys(keys_of(PAYEE), evidence)
    context = Context(session=b"s" * 8, at=at, selects=True, values=values, **more)
    return attest(PAYEE, status, context, reads=False)


@pytest.mark.parametrize("place", ["own", "memory", "field", "reply"])
def test_memory_and_directories_do_not_lift_it(place):
    """What vouched for the record vouches no longer."""
    record = TRUSTED
    if place == "memory":
        record = replace(TRUSTED, channel=Channel.IMPORTED)
    if place == "field":
        record = replace(TRUSTED, channel=Channel.DIRECTORY)
    evidence = Evidence(**{place: record})
    assert judged(evidence).rung <= Rung.REMEMBERED
    marked = judged(replace(evidence, selected=MARK))
    assert (marked.rung, marked.why) == (Rung.UNKNOWN, "selection_diverged")


def test_earlier_sends_do_not_lift_what_a_selection_does_not_vouch_for():
    """Whom it was right to pay before may be the wrong one of this question."""
    before = {PAYEE: TRUSTED}
    assert judged(Evidence(), established=before).rung is Rung.ESTABLISHED
    assert judged(Evidence(selected=MARK), established=before).rung is Rung.UNKNOWN


def test_what_a_person_says_does():
    """The user names it, a person grants it, or the operator lists it."""
    marked = Evidence(selected=MARK, prompt=TRUSTED)
    assert judged(marked).rung is Rung.PROMPTED
    assert judged(Evidence(selected=MARK), granted=True).rung is Rung.GRANTED
    assert judged(Evidence(selected=MARK), status=DestinationStatus.ALLOWED).rung is Rung.LISTED


def test_untrusted_text_is_worse():
    """A value that strangers wrote as well stays tainted."""
    taint = replace(TRUSTED, label=Integrity.UNTRUSTED, channel=Channel.RESULT)
    assert judged(Evidence(selected=MARK, taint=taint)).rung is Rung.TAINTED


def test_it_ends_with_its_time_and_a_broken_seal_has_no_end():
    """A record that somebody altered counts as one that holds."""
    evidence = Evidence(selected=MARK, own=TRUSTED)
    assert judged(evidence, at=101.0).rung is Rung.REMEMBERED
    broken = replace(MARK, sealed=False, until=0.0)
    assert judged(replace(evidence, selected=broken), at=101.0).rung is Rung.UNKNOWN


def test_an_answer_without_a_replay_has_a_reason_of_its_own():
    """Not diverged: not replayed."""
    mark = replace(MARK, channel=Channel.UNREPLAYED)
    assert judged(Evidence(selected=mark, own=TRUSTED)).why == "selection_unreplayed"
