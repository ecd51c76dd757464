"""TLS towards clients of reverse listeners, where certificates prove who they are."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import tempfile
from asyncio.sslproto import SSLProtocol
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from mitmproxy.certs import CertStore
from mitmproxy.proxy.layers.tls import parse_client_hello

from guard.core.errors import GuardError
from guard.credentials.authority import BASENAME, KEY_BITS, KEY_FILE, ensure_authority
from guard.pep.envoy.front import Fronted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NAMES: Final = 128
"""Server names whose certificates are kept."""
_HELLO: Final = 16 * 1024
"""Maximum size of the first message of a handshake, in bytes."""
_READS: Final = 8
"""Times that it is read anew as more of it comes."""


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


class _Hello(asyncio.Protocol):
    """The first message of a handshake, with the name of the server that the client asks for.

    A new name needs a new certificate, which is signed beside the event loop before the handshake.

    Args:
        tls: signs it.
        client: gets a transport anew once the handshake is done.
        transport: its transport.
        address: name of the server where the client gives none, or none that fits.
    """

    def __init__(
        self,
        tls: ClientTls,
        client: asyncio.BufferedProtocol,
        transport: asyncio.Transport,
        address: str,
    ) -> None:
        self._tls, self._client, self._transport = tls, client, transport
        self._address = address
        self._data = b""
        self._reads = 0
        self._going: asyncio.Task[None] | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """The end of the handshake."""

    def data_received(self, data: bytes) -> None:
        """Read more of the message, and begin the handshake where it is complete."""
        self._data += data
        if self._going is not None:
            return
        self._reads += 1
        try:
            hello = parse_client_hello(self._data)
        except ValueError:
            name = ""  # The handshake fails, for the same reason.
        else:
            if hello is None and len(self._data) < _HELLO and self._reads < _READS:
                return
            name = (hello.sni if hello is not None else None) or ""
        self._transport.pause_reading()
        self._going = asyncio.get_running_loop().create_task(self._begin(name))

    async def _begin(self, name: str) -> None:
        context = await self._tls.context(name or self._address, self._address)
        if self._transport.is_closing():
            return
        loop = asyncio.get_running_loop()
        inner: Any = _Tls(loop, self._client, context, self.done, server_side=True)
        inner.client = self._client
        self._transport.set_protocol(inner)
        inner.connection_made(self._transport)
        inner.get_buffer(len(self._data))[: len(self._data)] = self._data
        inner.buffer_updated(len(self._data))
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the handshake did not begin."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError())


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
        self._context = lru_cache(NAMES)(self._made)
        self._signing = ThreadPoolExecutor(1, "certificates")

    async def context(self, name: str, address: str) -> ssl.SSLContext:
        """Return a context with a certificate for a name, or for an address where that fails."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._signing, self._context, name)
        except (ValueError, OSError, GuardError):
            return await loop.run_in_executor(self._signing, self._context, address)

    def begin(
        self,
        client: asyncio.BufferedProtocol,
        transport: asyncio.Transport,
        data: bytes,
        address: str,
    ) -> asyncio.Future[None]:
        """Speak TLS on a connection that has just begun with a handshake.

        Args:
            client: gets a transport anew once the handshake is done.
            transport: its transport.
            data: the first bytes.
            address: of the listener.

        Returns:
            the end of the handshake.
        """
        hello = _Hello(self, client, transport, address)
        transport.set_protocol(hello)
        hello.data_received(data)
        return hello.done

    def _made(self, name: str) -> ssl.SSLContext:
        """Return a context whose certificate names a host or an address."""
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self._trusted)
        made.verify_mode = ssl.CERT_OPTIONAL
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # A resumed session would not show the certificate again.
        made.options |= ssl.OP_NO_TICKET
        made.num_tickets = 0
        made.set_alpn_protocols(["http/1.1"])
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
