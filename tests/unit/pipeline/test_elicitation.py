"""What a form at an agent's client says of a call."""

from guard.pipeline.elicitation import _words
from guard.provenance.approvals import ApprovalRequest, AskedCall, AskedReceiver


def test_a_form_counts_what_it_does_not_tell() -> None:
    """Receivers and calls beyond the first; a tool's name is quoted as a string."""
    people = tuple(
        AskedReceiver("mail", f"p{n}@a.test", "external", "unknown", "no_record", "$.to")
        for n in range(5)
    )
    call = AskedCall(
        "d", "", "", "", 'x", which would reach nobody', "mcp", (), people, "{}", "", 7
    )
    asked = ApprovalRequest("default", "p", "s", "", 0.0, 1.0, 1, (call,) * 5)

    text = _words(asked)

    assert "p2@a.test (unknown), 9 more" in text
    assert "make 2 more calls" in text
    assert 'call "x\\", which would reach nobody", which' in text
