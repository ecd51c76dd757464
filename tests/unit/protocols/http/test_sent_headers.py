"""Which headers of a request go on to its server."""

import pytest

from guard.protocols.http.message import is_sent_on


@pytest.mark.parametrize(
    ("name", "behind_a_proxy", "first"),
    [
        *((name, False, False) for name in (b"X-Guard-Session", b"x_guard_nonce")),
        *((name, False, False) for name in (b"Proxy-Authorization", b"proxy_connection")),
        *((name, True, False) for name in (b"Forwarded", b"X_Forwarded_For", b"x-real-ip")),
        *((name, True, False) for name in (b"Remote-User", b"X-SSL-Client-S-DN")),
        *((name, True, True) for name in (b"authorization", b"X-Request-Id", b"x-forward")),
    ],
)
def test_a_forwarding_header_is_the_first_proxys(name, behind_a_proxy, first):
    """What is for the guard stays with it, in every spelling; names that resemble others go on."""
    assert is_sent_on(name, trusts_forwarded=True) is behind_a_proxy
    assert is_sent_on(name, trusts_forwarded=False) is first
