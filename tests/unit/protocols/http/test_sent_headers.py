"""Which headers of a request go on to its server."""

import pytest

from guard.protocols.http.message import is_sent_on


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "name", [b"X-Guard-Session", b"x_guard_nonce", b"Proxy-Authorization", b"proxy_connection"]
)
def test_what_is_for_the_guard_stays_with_it(name, trusted):
    """In every spelling that some server takes for the same name."""
    assert not is_sent_on(name, trusts_forwarded=trusted)


@pytest.mark.parametrize(
    "name", [b"Forwarded", b"X_Forwarded_For", b"x-real-ip", b"Remote-User", b"X-SSL-Client-S-DN"]
)
def test_a_forwarding_header_is_the_first_proxys(name):
    """It goes on only where the client's own cannot reach the listener."""
    assert is_sent_on(name, trusts_forwarded=True)
    assert not is_sent_on(name, trusts_forwarded=False)


@pytest.mark.parametrize("name", [b"authorization", b"X-Request-Id", b"x-forward", b"Accept"])
def test_other_headers_go_on(name):
    """Likewise names that merely resemble such a header."""
    assert is_sent_on(name, trusts_forwarded=False)
