"""Assertions of an Envoy in front of the guard about a request's client, and their trust.

Envoy ends TLS and HTTP/2 or 3, so only Envoy knows which connection a request came by, which
certificate its client showed and which server the route names.  It says so in header fields that it
overwrites, on a socket that nobody else can reach or with a secret that nobody else has.  Nothing
of this decides whether a call is allowed: the certificate's chain is verified here, and the bytes
that are judged are those that the guard itself sends.

Pure: no I/O.
"""

from __future__ import annotations

import hmac
import re
import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from guard.core.bounded_cache import bounded_cache
from guard.core.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.pep.lean.messages import RequestRead
    from guard.settings import Listener

SERVER: Final = b"x-guard-server"
"""The name of the server that the route leads to; the guard says it on its way out as well."""
CONNECTION: Final = b"x-guard-connection"
"""Mark of the client's connection among others: one that carries many requests (HTTP/2), and
several that share Envoy's connection to the guard."""
SECRET: Final = b"x-guard-front"
CERTIFICATE: Final = b"x-forwarded-client-cert"
"""Envoy's field for what a client showed; ``Chain`` is its certificates in PEM, URL-encoded."""
SCHEME: Final = b"x-forwarded-proto"
_SAID: Final = frozenset({SERVER, CONNECTION, SECRET, CERTIFICATE, SCHEME})
_OWN: Final = b"x-envoy-"
"""Prefix of the names of fields that Envoy adds for a server that is an Envoy as well."""
_NAME: Final = re.compile(rb"[\x21-\x7e]{1,256}")
_PAIR: Final = r'[A-Za-z]+=(?:"[^"]*"|[^;,"]*)'
_ELEMENT: Final = re.compile(rf"{_PAIR}(?:;{_PAIR})*")
_CHAIN: Final = re.compile(r'(?:^|;)Chain="([^"]*)"')
_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fronted:
    """Facts about the client of a request that the request lacks."""

    connection: str = ""
    """Names its connection; empty where Envoy did not say."""
    certificates: tuple[bytes, ...] = ()
    """Certificates from its handshake, leaf first, as DER."""
    secure: bool = False
    """True if it speaks TLS to Envoy."""


class Front:
    """Reads what Envoy says.

    Args:
        servers: those that its routes can name.
        secret: that it must show; empty where only Envoy can reach the socket.
    """

    def __init__(self, servers: Sequence[Listener], secret: str = "") -> None:
        self._servers = {one.name.encode("ascii"): one for one in servers}
        self._secret = secret.encode()

    def admit(self, request: RequestRead) -> tuple[Listener, RequestRead, Fronted]:
        """Return the server a request goes to, the request without Envoy's words, and these.

        Raises:
            MessageError: it is not of the Envoy in front, or the Envoy lets clients say any of it.
        """
        asserted: dict[bytes, bytes] = {}
        kept: list[tuple[bytes, bytes]] = []
        for name, value in request.fields:
            key = name.lower()
            if key in _SAID:
                if key in asserted:
                    # Envoy overwrites; two values are one of the client's.
                    raise MessageError(
                        "duplicate_header",
                        f"`{key.decode()}` occurs twice: Envoy must overwrite it",
                    )
                asserted[key] = value
            elif not key.startswith(_OWN):
                kept.append((name, value))
        if self._secret and not hmac.compare_digest(asserted.get(SECRET, b""), self._secret):
            raise MessageError("bad_credential", "only the Envoy in front may ask here", status=403)
        connection = asserted.get(CONNECTION, b"")
        if connection and not _NAME.fullmatch(connection):
            raise MessageError("bad_session_id", "`x-guard-connection` is not visible ascii")
        client = Fronted(
            connection.decode("ascii"),
            _certificates(asserted[CERTIFICATE].decode("latin-1"))
            if CERTIFICATE in asserted
            else (),
            asserted.get(SCHEME) == b"https",
        )
        return self._server(asserted.get(SERVER)), replace(request, fields=tuple(kept)), client

    def _server(self, name: bytes | None) -> Listener:
        if name is None and len(self._servers) == 1:
            return next(iter(self._servers.values()))
        found = self._servers.get(name or b"")
        if found is None:
            raise MessageError(
                "unknown_path",
                "the route names none of the servers, in `x-guard-server`",
                status=404,
            )
        return found


@bounded_cache(256, short=8192)
def _certificates(header: str) -> tuple[bytes, ...]:
    """Return a client's certificates, which nobody has verified.

    Args:
        header: ``x-forwarded-client-cert``, one element (Envoy's ``SANITIZE_SET``).

    Raises:
        MessageError: it has several elements, of which some are the client's own words, or no
            readable chain.
    """
    if not _ELEMENT.fullmatch(header):
        raise MessageError(
            "bad_credential",
            "`x-forwarded-client-cert` is not one element: Envoy must set it, not append",
            status=403,
        )
    chain = _CHAIN.search(header)
    if chain is None:
        return ()
    try:
        return tuple(ssl.PEM_cert_to_DER_cert(one) for one in _PEM.findall(unquote(chain[1])))
    except ValueError as error:
        raise MessageError(
            "bad_credential", "`x-forwarded-client-cert` has a chain that is none", status=403
        ) from error
