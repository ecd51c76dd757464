"""Authentication of clients: the operator's file of secrets, signed tokens and certificates.

What the library has verified once is remembered until it expires, so that a signature costs one
request and not every request.

A tenant is the principals that share what the guard remembers, in one slot of a Redis Cluster.  The
tenants are a closed list, so that what a crash has left can be looked for in all of them.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel

from guard.core.errors import GuardError
from guard.core.model import DEFAULT_TENANT
from guard.core.tool_patterns import ToolPattern
from guard.credentials.certificates import read_authorities
from guard.pipeline.identity import Proof, SharedSecrets
from guard.protocols.http.message import PROXY_CREDENTIAL, HttpRequest
from guard.settings import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


LEEWAY: Final = 30
"""Seconds by which clocks of the issuer and of this machine may differ."""
REMEMBERED: Final = 4096
MAX_TOKEN: Final = 16 * 1024
"""Bytes; a longer token is not looked at."""
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,256}")
_SAN_ORDER: Final = (x509.UniformResourceIdentifier, x509.RFC822Name, x509.DNSName)

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Signature = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
"""Public-key signatures only: who can verify a token must not be able to make one."""


class TokenTable(BaseModel):
    """Table ``[tokens]``: JSON Web Tokens (RFC 7519) as Bearer proxy credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuer: str
    audience: str
    keys: Path
    """A JWK Set (RFC 7517) or one public key in PEM, beside the credentials file."""
    claim: str = "sub"
    """The claim that is the principal."""
    algorithms: Annotated[tuple[Signature, ...], Field(min_length=1)] = ("RS256", "ES256", "EdDSA")


class CertificateTable(BaseModel):
    """Table ``[client_certificates]``: mutual TLS (RFC 8446, section 4.3.2)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    authorities: Path
    """PEM file of the authorities that agents' certificates come from."""


class _Verified:
    """Principals that were verified, each until a time; the least used go first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def recall(self, key: bytes) -> str | None:
        principal, until = self._known.get(key, ("", 0.0))
        if until <= self._now():
            self._known.pop(key, None)
            return None
        self._known.move_to_end(key)
        return principal

    def keep(self, key: bytes, principal: str, until: float) -> None:
        self._known[key] = principal, until
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


class SignedTokens:
    """``Proxy-Authorization: Bearer`` with a JWT that one of the operator's keys signed.

    Args:
        table: issuer, audience, claim and algorithms that a token must have.
        keys: public keys by their ``kid``; a single key in PEM has the id ``""``.
        now: seconds since the epoch.
    """

    def __init__(
        self, table: TokenTable, keys: Mapping[str, object], now: Callable[[], float]
    ) -> None:
        self._table = table
        self._keys = dict(keys)
        self._verified = _Verified(now)

    def principal(self, request: HttpRequest) -> str | None:
        """Return the principal of a token that holds now."""
        scheme, _, token = (request.header(PROXY_CREDENTIAL) or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not 0 < len(token) <= MAX_TOKEN:
            return None
        key = token.encode("utf-8", "surrogateescape")
        known = self._verified.recall(key)
        if known is None and (claims := self._claims(token)) is not None:
            name = claims.get(self._table.claim)
            if isinstance(name, str) and _VISIBLE.fullmatch(name):
                self._verified.keep(key, name, float(claims["exp"]))  # type: ignore[arg-type]
                known = name
        return known

    def _claims(self, token: str) -> Mapping[str, object] | None:
        table = self._table
        try:
            key = self._key(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                return None
            claims: dict[str, object] = jwt.decode(
                token,
                key,  # type: ignore[arg-type]  # a public key, as the set's file gave it
                algorithms=list(table.algorithms),
                issuer=table.issuer,
                audience=table.audience,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", table.claim]},
            )
        except (jwt.InvalidTokenError, TypeError, ValueError):
            return None
        return claims

    def _key(self, name: str) -> object | None:
        only = next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(name, only)


class ClientCertificates:
    """A certificate that the client showed in its TLS handshake.

    The handshake proves that it holds the key; this verifies where the certificate comes from and
    that it is one for clients (RFC 5280).  The principal is its first URI, else mail address, else
    DNS name among the subject alternative names.

    Args:
        authorities: whom the operator trusts to name agents.
        now: seconds since the epoch.
    """

    def __init__(self, authorities: list[x509.Certificate], now: Callable[[], float]) -> None:
        self.authorities = authorities
        self._store = Store(authorities)
        self._now = now
        self._verified = _Verified(now)

    def principal(self, request: HttpRequest) -> str | None:
        """Return the principal of a certificate that holds now."""
        return self.holder(request.certificates)

    def holder(self, chain: tuple[bytes, ...]) -> str | None:
        """Return whom a certificate (DER, its issuers behind it) names, if it holds now."""
        if not chain:
            return None
        key = b"".join(chain)
        known = self._verified.recall(key)
        if known is None and (found := self._verify(chain)) is not None:
            known, until = found
            self._verified.keep(key, known, until)
        return known

    def _verify(self, chain: tuple[bytes, ...]) -> tuple[str, float] | None:
        at = dt.datetime.fromtimestamp(self._now(), dt.UTC)
        verifier = PolicyBuilder().store(self._store).time(at).build_client_verifier()
        try:
            leaf, *between = (x509.load_der_x509_certificate(one) for one in chain)
            verified = verifier.verify(leaf, between)
        except (ValueError, VerificationError):
            return None
        until = min(one.not_valid_after_utc for one in verified.chain).timestamp()
        names = verified.subjects or []
        for kind in _SAN_ORDER:
            for name in names:
                if isinstance(name, kind) and _VISIBLE.fullmatch(name.value):
                    return name.value, until
        return None


def load_proofs(path: Path, now: Callable[[], float]) -> list[Proof]:
    """Return the proofs that a credentials file asks for.

    The file's keys are principals with the sha256 of their secrets; its tables ``[tokens]`` and
    ``[client_certificates]`` are :class:`TokenTable` and :class:`CertificateTable`, and
    ``[tenants]`` is read by :func:`load_tenants`.

    Raises:
        GuardError: the file or one it names cannot be read, or a value is wrong.
    """
    found = read_table(path, "credentials", CredentialsFile)
    proofs: list[Proof] = []
    if found.client_certificates is not None:
        file = path.parent / found.client_certificates.authorities
        proofs.append(ClientCertificates(read_authorities(file, "authorities"), now))
    if found.model_extra:
        proofs.append(SharedSecrets(found.model_extra))
    if found.tokens is not None:
        keys = _keys(path.parent / found.tokens.keys)
        proofs.append(SignedTokens(found.tokens, keys, now))
    if found.tenants is not None and not proofs:
        raise GuardError(
            f"credentials file `{path}`: `tenants` are of principals that prove who they are"
        )
    return proofs


def load_tenants(path: Path) -> Tenants | None:
    """Return the tenants that a credentials file names, None where all principals are of one.

    Raises:
        GuardError: the file cannot be read, or a table is wrong.
    """
    tables = read_table(path, "credentials", CredentialsFile).tenants
    return None if tables is None else Tenants(tables)


def load_digests(path: Path) -> dict[str, str]:
    """Return sha256 digests by name, from a file that may hold nothing else.

    Raises:
        GuardError: the file cannot be read or a value is not a sha256 in hex.
    """
    return read_table(path, "credentials", DigestsFile).root


def client_authorities(proofs: Iterable[Proof]) -> list[x509.Certificate]:
    """Return the authorities of clients' certificates; none where clients are not asked for any."""
    found = [proof.authorities for proof in proofs if isinstance(proof, ClientCertificates)]
    return [one for authorities in found for one in authorities]


def _keys(path: Path) -> dict[str, object]:
    """Return public keys by id."""
    try:
        raw = path.read_bytes()
        if raw.lstrip().startswith(b"{"):
            found = jwt.PyJWKSet.from_dict(json.loads(raw)).keys
            keys: dict[str, object] = {one.key_id or "": one.key for one in found}
            if len(keys) < len(found):
                raise GuardError(
                    f"`{path}` has keys without a `kid`, or with the same one; give each its own"
                )
        else:
            keys = {"": serialization.load_pem_public_key(raw)}
    except (OSError, ValueError, jwt.PyJWTError) as error:
        raise GuardError(f"`{path}` is neither a JWK Set nor a public key in PEM form") from error
    if any(isinstance(key, bytes) or hasattr(key, "private_bytes") for key in keys.values()):
        raise GuardError(
            f"`{path}` holds a private or symmetric key; the guard needs public keys only"
        )
    return keys


MAX_SHARDS: Final = 256
_HASHED: Final = 8
"""Bytes of a digest that a shard is drawn from."""

Pattern = Annotated[ToolPattern, BeforeValidator(ToolPattern.parse)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")]


class TenantTable(BaseModel):
    """Table ``[tenants.NAME]``."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    principals: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Globs, or ``{re2 = "..."}``; the first table that names a principal counts."""
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    """Tenants that its principals are spread over, where they share no memory with each other."""


class CredentialsFile(BaseModel):
    """A credentials file: principals with the sha256 of their secrets, and three tables."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Digest]

    tokens: TokenTable | None = None
    client_certificates: CertificateTable | None = None
    tenants: dict[Name, TenantTable] | None = None


class DigestsFile(RootModel[dict[str, Digest]]):
    """A file of names with the sha256 of their secrets, and nothing else."""


class Tenants:
    """The tenants of a deployment.

    Args:
        tables: by name, in the file's order.
    """

    def __init__(self, tables: Mapping[str, TenantTable]) -> None:
        self._tables = tuple(tables.items())
        shards = [
            _shard(name, n) for name, x in self._tables if x.shards > 1 for n in range(x.shards)
        ]
        whole = [name for name, x in self._tables if x.shards == 1]
        self.names = tuple(dict.fromkeys((DEFAULT_TENANT, *whole, *shards)))

    def of(self, principal: str) -> str:
        """Return a principal's tenant: the same at every worker, guard and start."""
        for name, table in self._tables:
            if any(pattern.matches(principal) for pattern in table.principals):
                if table.shards == 1:
                    return name
                digest = hashlib.sha256(principal.encode("utf-8", "surrogatepass")).digest()
                return _shard(name, int.from_bytes(digest[:_HASHED], "big") % table.shards)
        return DEFAULT_TENANT


def _shard(name: str, number: int) -> str:
    # No table is called like this: its name has no dot.
    return f"{name}.{number}"
