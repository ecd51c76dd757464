"""Persons who act on a deployment: their roles, and the rule of the second person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError, InputError
from guard.provenance.approvals import UNNAMED, Approver

if TYPE_CHECKING:
    from collections.abc import Collection

    from guard.core.model import Json


class Role(StrEnum):
    """Role of a person; approver and author include viewer."""

    VIEWER = "viewer"
    """See decisions, sessions, requests and tools."""
    APPROVER = "approver"
    """Answer requests, revoke remembered receivers, quarantine."""
    AUTHOR = "author"
    """Change policies."""
    ADMIN = "admin"
    """Every role, and accept changed tool definitions."""


_HOLDS: Final = {
    Role.VIEWER: {Role.VIEWER},
    Role.APPROVER: {Role.VIEWER, Role.APPROVER},
    Role.AUTHOR: {Role.VIEWER, Role.AUTHOR},
    Role.ADMIN: set(Role),
}


@dataclass(frozen=True, slots=True)
class Person:
    """A signed-in person."""

    name: str
    roles: frozenset[Role]
    realm: str = "people"
    """Way to sign in: ``people`` (the file's), ``link``, ``machine`` (this user's commands),
    ``certificate``, or the issuer of OpenID Connect."""
    subject: str = ""
    """Identifier in the realm; empty if it is the name."""
    names: frozenset[str] = frozenset()
    """Further names of the person."""

    @property
    def approver(self) -> Approver:
        """Identity under which the person answers requests."""
        return Approver(self.name, self.realm, self.subject or self.name, self.names)

    @property
    def key(self) -> tuple[str, str]:
        """Realm and subject."""
        return self.realm, self.subject or self.name

    def may(self, role: Role) -> bool:
        """Return whether one of the person's roles includes a role."""
        return any(role in _HOLDS[one] for one in self.roles)

    def fields(self) -> dict[str, Json]:
        """Return the person as fields of an audit line; the name may be one of his choice."""
        return {"by": self.name, "realm": self.realm, "subject": self.approver.subject}

    def check_other(self, principal: str) -> None:
        """Refuse a person who would let something of his own agent through.

        Raises:
            GuardError: the person signed in by name, and the principal has the same name.
        """
        if self.realm not in UNNAMED and self.approver.is_principal(principal):
            raise GuardError(f"`{self.name}` cannot do that for an agent in the same name")

    def check_second(self, writers: Collection[tuple[str, str]]) -> None:
        """Refuse a second person who is not known to be different from the authors.

        Raises:
            InputError: an author, or somebody who signed in otherwise or without a name.
        """
        if self.key in writers:
            raise InputError("you wrote in it; a second person has to agree")
        if {realm for realm, _ in (self.key, *writers)} != {self.realm} or self.realm in UNNAMED:
            raise InputError(
                "that you are two people is known only where both sign in by name, in the same way"
            )
