"""The write credentials of memory stores: held by the guard, added to committed writes only.

A TOML file, one table per listener::

    ["127.0.0.1:8080"]
    header = "authorization"  # or: query = "api_key"
    prefix = "Bearer "
    secret_file = "memory.secret"  # relative to this file; or: secret = "..."

    ["127.0.0.1:8081"]
    client_certificate = "writer.pem"  # certificate and key, for an https upstream

    ["127.0.0.1:3128"]
    host = "memory.example.com:443"  # needed for a forward listener, which goes anywhere
    header = "x-api-key"
    secret_file = "memory.secret"

Neither a secret nor a key enters a log, a metric, an audit line or an error; they print as ``***``.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from urllib.parse import quote, unquote_plus, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, RootModel

from guard.core.errors import GuardError
from guard.settings import read_secret, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    WriterKey: TypeAlias = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey

Name = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]{0,63})?$")]
_SHORTEST: Final = 8


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Certificate that a writer shows in the handshake.  Compared by file."""

    file: str
    certificate: x509.Certificate = field(repr=False, compare=False)
    key: WriterKey = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class WriteCredential:
    """Requirements of a store for its writers."""

    host: str = ""
    """The only upstream (``HOST:PORT``) that gets it; empty where the listener has but one."""
    header: str = ""
    """Name of the header, lower case; empty where the credential goes elsewhere."""
    query: str = ""
    secret: str = field(default="", repr=False)
    value: str = field(default="", repr=False)
    """The secret behind its prefix, as it goes on the wire."""
    certificate: ClientCertificate | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return "***"

    def is_used_by(self, values: Iterable[str], target: str) -> bool:
        """Return whether a request brings the secret itself, wherever it stands."""
        if not self.secret:
            return False
        needle = self.secret.encode()
        texts = (*values, unquote_plus(target))
        return any(
            hmac.compare_digest(text.encode("utf-8", "replace"), needle)
            or needle in text.encode("utf-8", "replace")
            for text in texts
        )

    def is_for(self, host: str, port: int) -> bool:
        """Return whether an upstream is the one that gets it."""
        return not self.host or self.host.casefold() == f"{host}:{port}".casefold()

    def target(self, target: str) -> str:
        """Return the request target with the credential in its query."""
        parts = urlsplit(target)
        pair = f"{quote(self.query)}={quote(self.value, safe='')}"
        query = f"{parts.query}&{pair}" if parts.query else pair
        return urlunsplit(parts._replace(query=query))


class _Table(BaseModel):
    """Table of one listener, see the module."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    host: Annotated[str, Field(pattern=r"^([A-Za-z0-9_.:\[\]-]{1,255}:[0-9]{1,5})?$")] = ""
    header: Name = ""
    query: Name = ""
    prefix: str = ""
    secret: str | None = None
    secret_file: str | None = None
    client_certificate: str = ""


class _Tables(RootModel[dict[str, _Table]]):
    """File of write credentials."""


def load_write_credentials(
    path: Path | None, forward: Iterable[str] = ()
) -> dict[str, WriteCredential]:
    """Return the credentials by listener (``HOST:PORT``).

    Args:
        path: the file.
        forward: listeners whose clients name the upstream themselves.

    Raises:
        GuardError: the file or a secret cannot be read, or a table is not as described above.
    """
    if path is None:
        return {}
    tables = read_table(path, "write credentials", _Tables).root
    found = {name: _credential(path, name, table) for name, table in tables.items()}
    for name in found.keys() & set(forward):
        if not found[name].host or found[name].certificate is not None:
            where = f"write credentials file `{path}`: forward listener `{name}`"
            raise GuardError(f"{where} needs the `host` of its store, and a `header` or a `query`")
    return found


def _credential(path: Path, name: str, table: _Table) -> WriteCredential:
    where = f"write credentials file `{path}`: listener `{name}`"
    if table.client_certificate:
        if table.model_fields_set - {"host", "client_certificate"}:
            raise GuardError(f"{where} has a `client_certificate`, which stands alone")
        file = path.parent / table.client_certificate
        return WriteCredential(table.host, certificate=_certificate(where, file))
    if bool(table.header) == bool(table.query):
        raise GuardError(f"{where} needs one of `header`, `query` and `client_certificate`")
    if (table.secret is None) == (table.secret_file is None):
        raise GuardError(f"{where} needs `secret` or `secret_file`, one of the two")
    secret = table.secret
    if secret is None:
        secret = read_secret(path.parent / str(table.secret_file))
    if len(secret) < _SHORTEST or not secret.isascii() or not secret.isprintable():
        raise GuardError(
            f"{where}: the secret must have {_SHORTEST} printable ascii characters or more"
        )
    value = f"{table.prefix}{secret}"
    return WriteCredential(table.host, table.header.lower(), table.query, secret, value)


def _certificate(where: str, file: Path) -> ClientCertificate:
    # Imported where one is named: it is much for what few guards have.
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    kinds = rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey
    try:
        pem = file.read_bytes()
        certificate = x509.load_pem_x509_certificate(pem)
        key = load_pem_private_key(pem, password=None)
    except (OSError, ValueError, TypeError) as error:
        raise GuardError(
            f"{where}: its certificate and key cannot be read ({type(error).__name__})"
        ) from None
    if not isinstance(key, kinds) or certificate.public_key() != key.public_key():
        raise GuardError(f"{where}: needs an RSA, EC or Ed25519 key, that of its certificate")
    return ClientCertificate(str(file), certificate, key)
