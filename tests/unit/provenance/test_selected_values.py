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


REASONS = {
    Channel.SELECTION: "selection_diverged",
    Channel.UNREPLAYED: "selection_unreplayed",
}
MARKED = Evidence(selected=MARK)
OWN = replace(MARKED, own=TRUSTED)
BROKEN = replace(MARK, sealed=False, until=0.0)
TAINT = replace(TRUSTED, label=Integrity.UNTRUSTED, channel=Channel.RESULT)
BEFORE = {"established": {PAYEE: TRUSTED}}
VOUCHING = {
    "own": TRUSTED,
    "memory": replace(TRUSTED, channel=Channel.IMPORTED),
    "field": replace(TRUSTED, channel=Channel.DIRECTORY),
    "reply": TRUSTED,
}


@pytest.mark.parametrize("place", VOUCHING)
def test_memory_and_directories_do_not_lift_it(place):
    """What vouched for the record vouches no longer; what was not replayed has its own reason."""
    evidence = Evidence(**{place: VOUCHING[place]})
    assert judged(evidence).rung <= Rung.REMEMBERED
    for channel in (Channel.SELECTION, Channel.UNREPLAYED):
        marked = judged(replace(evidence, selected=replace(MARK, channel=channel)))
        assert (marked.rung, marked.why) == (Rung.UNKNOWN, REASONS[channel])


@pytest.mark.parametrize(
    ("evidence", "more", "rung"),
    [
        # Whom it was right to pay before may be the wrong one of this question.
        pytest.param(Evidence(), BEFORE, Rung.ESTABLISHED, id="an earlier send"),
        pytest.param(MARKED, BEFORE, Rung.UNKNOWN, id="an earlier send does not lift it"),
        # The user names it, a person grants it, or the operator lists it.
        (replace(MARKED, prompt=TRUSTED), {}, Rung.PROMPTED),
        (MARKED, {"granted": True}, Rung.GRANTED),
        (MARKED, {"status": DestinationStatus.ALLOWED}, Rung.LISTED),
        # A value that strangers wrote as well stays tainted.
        (replace(MARKED, taint=TAINT), {}, Rung.TAINTED),
        # It ends with its time; a record that somebody altered counts as one that holds.
        (OWN, {"at": 101.0}, Rung.REMEMBERED),
        (replace(OWN, selected=BROKEN), {"at": 101.0}, Rung.UNKNOWN),
    ],
)
def test_what_a_person_says_lifts_it_and_taint_is_worse(evidence, more, rung):
    """A mark holds until its end."""
    assert judged(evidence, **more).rung is rung
