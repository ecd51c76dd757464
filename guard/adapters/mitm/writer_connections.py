"""Connections that show a store the guard's client certificate, apart from all others.

A connection keeps its certificate for as long as it lives, so a committed write gets one of its
own: its address is equal to no other, and mitmproxy never sends a read down the same connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.proxy.layers.http import GetHttpConnection
    from mitmproxy.tls import TlsData

    from guard.adapters.credentials.write_credentials import ClientCertificate

CERTIFICATE: Final = "guard.client_certificate"
"""Where the addon leaves the certificate of a committed write."""


class WriterAddress(tuple[str, int]):  # noqa: SLOT001  (a tuple cannot have slots of its own)
    """The address of a store, as its writer reaches it."""

    certificate: ClientCertificate

    @classmethod
    def of(cls, address: tuple[str, int], certificate: ClientCertificate) -> WriterAddress:
        """Return an address that only the same writer's is equal to."""
        made = cls(address)
        made.certificate = certificate
        return made

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, WriterAddress) and self.certificate == other.certificate
        return same and super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.certificate.file))


def as_writer(command: GetHttpConnection, flow: http.HTTPFlow) -> None:
    """Send a committed write down a connection of its own."""
    certificate = flow.metadata.get(CERTIFICATE)
    if certificate is not None:
        command.address = WriterAddress.of(command.address, certificate)


def show_certificate(tls_start: TlsData) -> None:
    """Give a writer's connection its certificate; the context it came from is shared."""
    address = getattr(tls_start.conn, "address", None)
    if isinstance(address, WriterAddress) and tls_start.ssl_conn is not None:
        # pyOpenSSL takes the objects of `cryptography` from version 24.3 on.
        tls_start.ssl_conn.use_certificate(address.certificate.certificate)
        tls_start.ssl_conn.use_privatekey(address.certificate.key)
