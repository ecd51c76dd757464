"""State, key, audit log and policy that operators act on.

Persons who act on a deployment: their roles, and the rule of the second person.

Metrics of the console in the Prometheus text format; a scrape needs the role ``viewer``.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from pydantic import BaseModel, ConfigDict, Field

from guard.core.errors import GuardError, InputError
from guard.core.policy import Policy, StateLimits
from guard.provenance.approvals import UNNAMED, Approver
from guard.telemetry.audit_log import AuditLogFile, NoAuditLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator

    from guard.core.model import Json
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore


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


ERROR_CHARACTERS: Final = 200


HexText = Annotated[str, Field(pattern=r"^([0-9a-fA-F]{2})*$")]
"""Bytes in hex digits."""


class Body(BaseModel):
    """Request; unknown members are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OfTenant(Body):
    """Request about one tenant."""

    tenant: str = Field(default="default", min_length=1)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Parts that every operation uses."""

    store: RedisSessionStore
    """A connected store."""
    seal: Seal
    """The deployment's key."""
    audit: AuditLogFile | NoAuditLog
    """The audit log; one line per act."""
    now: Callable[[], float]
    """Seconds since the epoch."""
    tenants: Callable[[], Awaitable[list[str]]]
    """Returns the tenants on record."""
    policy: Callable[[], Policy | None] = lambda: None
    """Returns the policy in force, None where no files were given."""

    @property
    def limits(self) -> StateLimits:
        """State limits of the policy in force; the default where it cannot be read."""
        # A file with a problem must not keep anybody from looking and denying.
        with suppress(GuardError):
            policy = self.policy()
            if policy is not None:
                return policy.limits
        return StateLimits()

    def check_recorded(self) -> None:
        """Refuse an act that needs a record.

        Raises:
            InputError: there is no audit log.
        """
        if isinstance(self.audit, NoAuditLog):
            raise InputError("no --audit given, so this would not be on record")

    @contextmanager
    def recorded(
        self, event: str, person: Person, outcome: str = "", **fields: Json
    ) -> Iterator[dict[str, Json]]:
        """Write the audit line of an act before it takes effect, and another one if it fails.

        Args:
            event: name of the line.
            person: who acts.
            outcome: field that says ``failed``, with the reason in ``error``; left out, the reason
                is in ``failed``.
            fields: of the line.

        Yields:
            the fields of the line, for a further line of the same act.

        Raises:
            AuditError: the line cannot be written; the act must not begin.
        """
        line = {**fields, **person.fields()}
        self.audit.event(event, line)
        try:
            yield line
        except GuardError as error:
            why = str(error)[:ERROR_CHARACTERS]
            failed = {outcome: "failed", "error": why} if outcome else {"failed": why}
            self.audit.event(event, {**line, **failed})
            raise


ANSWERS = ("granted", "approved", "denied", "failed", "revoked", "resumed")


class ConsoleMetrics:
    """The metrics of one console's process."""

    def __init__(self) -> None:
        # No second series for each, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # not annotated
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "guard_console_answers",
            "Answers of people, by what became of them.",
            ("answer",),
            registry=self.registry,
        )
        for answer in ANSWERS:
            self.answers.labels(answer)
        self.approval_seconds = Histogram(
            "guard_console_approval_seconds",
            "From a request to the approval that released it.",
            registry=self.registry,
            buckets=(2, 5, 15, 60, 300, 900, 3600),
        )
        self.waiting = Gauge(
            "guard_console_requests_waiting",
            "Requests that wait for an answer.",
            registry=self.registry,
        )
        self.paused = Gauge(
            "guard_console_principals_paused", "Principals that are paused.", registry=self.registry
        )
        self.open_glasses = Gauge(
            "guard_console_break_glasses_open",
            "Break-glasses that are open.",
            registry=self.registry,
        )
        self.errors = Counter(
            "guard_console_errors",
            "Errors of what keeps pages fresh, by part; each is tried again.",
            ("part",),
            registry=self.registry,
        )
        for part in ("feed", "state"):
            self.errors.labels(part)
        self.webhooks = Counter(
            "guard_console_webhooks",
            "Messages to webhooks, by what became of them.",
            ("outcome",),
            registry=self.registry,
        )
        for outcome in ("sent", "retried", "given_up"):
            self.webhooks.labels(outcome)

    def exposed(self) -> bytes:
        """Return the text of a scrape."""
        return generate_latest(self.registry)
