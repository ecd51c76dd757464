"""Every request has a protocol."""

from guard.protocols.base import discover_protocols


def test_exactly_one_protocol_takes_the_rest_and_it_is_asked_last():
    """Whatever nobody claims is still a call."""
    protocols = discover_protocols()

    assert [p.is_fallback for p in protocols].count(True) == 1
    assert protocols[-1].is_fallback
