"""State, key, audit log and policy that operators act on."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, Field

from guard.core.errors import GuardError, InputError
from guard.core.policy import Policy, StateLimits
from guard.telemetry.audit_log import AuditLogFile, NoAuditLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from guard.core.model import Json
    from guard.operations.people import Person
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore

ERROR_CHARACTERS: Final = 200


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
    def recorded(self, event: str, person: Person, **fields: Json) -> Iterator[dict[str, Json]]:
        """Write the audit line of an act before it takes effect, and another one if it fails.

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
            self.audit.event(event, {**line, "failed": str(error)[:ERROR_CHARACTERS]})
            raise
