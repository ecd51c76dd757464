"""The people file: people who may sign in on the console, their secrets and roles."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator

from guard.console.oidc import OidcTable
from guard.core.errors import InputError
from guard.credentials.certificates import read_authorities
from guard.credentials.client_authentication import ClientCertificates
from guard.operations.deployment import Body, Person, Role
from guard.settings import read_secret

if TYPE_CHECKING:
    from collections.abc import Callable


ModelT = TypeVar("ModelT", bound=BaseModel)


class PersonEntry(Body):
    """Table ``[people.NAME]``: somebody with a secret."""

    secret: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    """SHA-256 of the secret, in hex."""
    roles: tuple[Role, ...]


class CertificateTable(Body):
    """Table ``[certificates]``: people whose browser shows a certificate (RFC 8446, 4.3.2)."""

    authorities: Path
    """PEM file of the authorities that they come from, beside the people file."""
    roles: Annotated[dict[str, tuple[Role, ...]], Field(min_length=1)]
    """Roles by name: the first URI, else mail address, else DNS name in the certificate."""


class PeopleFile(Body):
    """The whole file."""

    people: dict[str, PersonEntry] = Field(default_factory=dict)
    oidc: OidcTable | None = None
    certificates: CertificateTable | None = None

    @field_validator("people")
    @classmethod
    def _own_secrets(cls, value: dict[str, PersonEntry]) -> dict[str, PersonEntry]:
        if len({one.secret.lower() for one in value.values()}) != len(value):
            raise ValueError("each person has a secret of his own")
        return value


@dataclass(frozen=True, slots=True)
class CertificateHolders:
    """People known by their certificates.

    Args:
        authorities: PEM file, for the TLS handshake.
        proof: verifies a certificate and names its holder.
        roles: by name.
    """

    authorities: Path
    proof: ClientCertificates
    roles: dict[str, tuple[Role, ...]]

    def person(self, certificate: bytes) -> Person | None:
        """Return whose certificate (DER) it is, None where nobody with a role has it."""
        name = self.proof.holder((certificate,))
        roles = self.roles.get(name or "", ())
        return Person(name, frozenset(roles), "certificate") if name and roles else None


@dataclass(frozen=True, slots=True)
class People:
    """People who may sign in, besides the holder of the printed link."""

    secrets: dict[str, Person] = field(default_factory=dict)
    """By the SHA-256 of each person's secret, in hex."""
    oidc: OidcTable | None = None
    oidc_secret: str = ""
    """Secret of the client; empty for a public one."""
    holders: CertificateHolders | None = None


def read_table(path: Path, name: str, model: type[ModelT]) -> ModelT:
    """Return a TOML file as a model.

    Raises:
        InputError: the file cannot be read, or does not fit.
    """
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{name} file `{path}`: `{place}`: {first['msg']}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name} file `{path}` cannot be read: {error}") from error


def load_people(path: Path | None, now: Callable[[], float]) -> People:
    """Return who may sign in, from a TOML file.

    Args:
        path: of the file; None: nobody.
        now: seconds since the epoch, for certificates.

    Raises:
        InputError: the file, or one that it names, cannot be read or says something else.
    """
    if path is None:
        return People()
    found = read_table(path, "people", PeopleFile)
    oidc, table, holders = found.oidc, found.certificates, None
    secret = path.parent / oidc.client_secret if oidc and oidc.client_secret else None
    if table is not None:
        file = path.parent / table.authorities
        proof = ClientCertificates(read_authorities(file, "authorities"), now)
        holders = CertificateHolders(file, proof, table.roles)
    people = {
        one.secret.lower(): Person(name, frozenset(one.roles)) for name, one in found.people.items()
    }
    return People(people, oidc, read_secret(secret) if secret else "", holders)
