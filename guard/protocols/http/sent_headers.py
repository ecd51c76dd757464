"""Selection of the request headers that go on to the server.  Pure: no I/O.

The guard's own headers and the credential for it concern nobody else.  Forwarding headers are those
by which a server's own reverse proxy tells it about its client: who that is, where it comes from,
and which host, scheme or path it asked for (RFC 7239).  A server behind a proxy believes them, so
the first proxy leaves out what a client says itself.
"""

from __future__ import annotations

import re
from typing import Final

SESSION_HEADER: Final = "x-guard-session"
NONCE_HEADER: Final = "x-guard-nonce"
TOKEN_HEADER: Final = "x-guard-promotion-token"  # noqa: S105  (the name of a header)
"""For memory stores whose tools have no place for a nonce or a promotion token."""
PROXY_CREDENTIAL: Final = "proxy-authorization"
HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding"}
)
"""Fields of one connection (RFC 9110, section 7.6.1); both sides get their own."""
_FOR_THE_GUARD: Final = re.compile(rb"x-guard-.*|proxy-authorization|proxy-connection")
_FORWARDING: Final = re.compile(
    rb"forwarded|remote-user|script-name|front-end-https|ssl-client-.*"
    rb"|(?:x-)?(?:client-ip|remote-(?:user|ip|addr)|authenticated-user)|x-remote-(?:user|group)s?-.*"
    rb"|x-(?:forwarded(?:-.*)?|original-(?:host|forwarded-.*)|real-ip|cluster-client-ip|host)"
    rb"|x-(?:http-host-override|(?:url-)?scheme|script-name|proxyuser-ip|middleware-subrequest)"
    rb"|x-(?:auth-request|webauth|ssl-client|amzn-oidc|goog-authenticated-user|ms-client-principal)"
    rb"(?:-.*)?|x-(?:client-(?:cert|verify|dn).*|arr-clientcert|goog-iap-jwt-assertion|azure-.*ip)"
    rb"|(?:true|cf-connecting|fastly|fly)-(?:client-)?ip(?:v6)?|tailscale-user-.*"
    rb"|cf-access-(?:authenticated-user-email|jwt-assertion)|x-envoy-.*|x-accel-.*"
)


def is_forwarding(name: bytes) -> bool:
    """Return whether a header is a forwarding header.

    Args:
        name: in lower case, with ``-`` for ``_``.
    """
    return _FORWARDING.fullmatch(name) is not None


def is_sent_on(name: bytes, *, trusts_forwarded: bool) -> bool:
    """Return whether a header of a request goes on to its server.

    Args:
        name: in any case; ``_`` counts as ``-``, as for servers that hand headers on as variables
            (CGI, WSGI).
        trusts_forwarded: whether only a proxy that writes forwarding headers itself reaches the
            listener.
    """
    name = name.lower().replace(b"_", b"-")
    return _FOR_THE_GUARD.fullmatch(name) is None and (trusts_forwarded or not is_forwarding(name))
