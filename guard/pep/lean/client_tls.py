"""TLS towards clients of reverse listeners, where certificates prove who they are."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import tempfile
from asyncio.sslproto import SSLProtocol
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from mitmproxy.certs import CertStore

from guard.core.errors import GuardError
from guard.credentials.authority import BASENAME, KEY_BITS, KEY_FILE, ensure_authority
from guard.pep.envoy.front import Fronted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAMES: Final = 128
"""Server names whose certificates are kept."""


class _Tls(SSLProtocol):
    """TLS whose client hears of every byte that waits for it, as it does without."""

    client: asyncio.BufferedProtocol
    _ssl_writing_paused: bool

    def pause_writing(self) -> None:
        """Hold back what is written."""
        super().pause_writing()
        self.client.pause_writing()

    def resume_writing(self) -> None:
        """Send what was held back, then go on if all of it has gone."""
        super().resume_writing()
        if not self._ssl_writing_paused:
            self.client.resume_writing()


class ClientTls:
    """TLS server side, with certificates of the guard's authority for the names clients ask for.

    Args:
        directory: of that authority.
        trusted: the authorities that clients' certificates come from.
    """

    def __init__(self, directory: Path, trusted: Iterable[x509.Certificate]) -> None:
        ensure_authority(directory)
        self._directory = directory
        self._store = CertStore.from_store(directory, BASENAME, KEY_BITS)
        self._trusted = b"".join(one.public_bytes(Encoding.DER) for one in trusted)
        self.context = lru_cache(NAMES)(self._made)

    def begin(
        self,
        client: asyncio.BufferedProtocol,
        transport: asyncio.Transport,
        data: bytes,
        context: ssl.SSLContext,
    ) -> asyncio.Future[None]:
        """Speak TLS on a connection that has just begun with a handshake.

        Args:
            client: gets a transport anew once the handshake is done.
            transport: its transport.
            data: the first bytes.
            context: as :meth:`context` returns it.

        Returns:
            the end of the handshake.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        inner: Any = _Tls(loop, client, context, done, server_side=True)
        inner.client = client
        transport.set_protocol(inner)
        inner.connection_made(transport)
        inner.get_buffer(len(data))[: len(data)] = data
        inner.buffer_updated(len(data))
        return done

    def _made(self, name: str) -> ssl.SSLContext:
        """Return a context whose certificate names a host or an address."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self._trusted)
        made.verify_mode = ssl.CERT_OPTIONAL
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # A resumed session would not show the certificate again.
        made.options |= ssl.OP_NO_TICKET
        made.num_tickets = 0
        made.set_alpn_protocols(["http/1.1"])
        made.sni_callback = self._choose
        try:
            names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(name))]
        except ValueError:
            names = [x509.DNSName(name)]
        entry = self._store.get_cert(None, names)
        with tempfile.NamedTemporaryFile(dir=self._directory, suffix=".pem") as file:
            chain = (entry.cert, *entry.chain_certs)
            file.write(b"".join(one.to_pem() for one in chain))
            file.flush()
            made.load_cert_chain(file.name, self._directory / KEY_FILE)
        return made

    def _choose(self, handshake: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        """Show the certificate for the name that the client asks for."""
        try:
            if name:
                handshake.context = self.context(name)
        except (ValueError, OSError, GuardError):
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        return None


def shown(transport: asyncio.BaseTransport) -> Fronted:
    """Return what a client showed in its handshake."""
    made: Any = transport.get_extra_info("ssl_object")
    if not made.getpeercert(binary_form=True):
        return Fronted(secure=True)
    if hasattr(made, "get_unverified_chain"):  # Python 3.13 and newer.
        return Fronted(certificates=tuple(made.get_unverified_chain()), secure=True)
    chain = made._sslobj.get_unverified_chain()  # noqa: SLF001  (no public way)
    der = (ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in chain)
    return Fronted(certificates=tuple(der), secure=True)
