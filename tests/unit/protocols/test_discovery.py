"""Every request has a protocol."""

from guard.protocols.base import discover_protocols
from tests.roads import http_request


def test_exactly_one_protocol_takes_the_rest_and_it_is_asked_last():
    """Whatever nobody claims is still a call."""
    protocols = discover_protocols()
    plain = http_request(None, method="GET", target="/x")

    assert [p.is_fallback for p in protocols].count(True) == 1
    assert [p for p in protocols if p.matches(plain)] == [protocols[-1]]
    assert protocols[-1].is_fallback
