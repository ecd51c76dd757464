"""What every route of the console is made with: its declaration, its body, its errors.

Pages and the API share it; the API alone also answers commands where no console runs
(``guard/console/local.py``), so nothing here needs templates.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from guard.adapters.audit_log import NoAuditLog
from guard.core.errors import AuditError, GuardError, InputError, StateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Literal

    from starlette.requests import Request
    from starlette.responses import Response

    from guard.adapters.audit_log import AuditLogFile
    from guard.adapters.redis.store import RedisSessionStore
    from guard.console.access import Person, Role, SignedIn
    from guard.core.model import Json
    from guard.core.policy import StateLimits
    from guard.provenance.seal import Seal

BodyT = TypeVar("BodyT")
_DIGITS: Final = 18
BODY_LIMIT: Final = 1024 * 1024
"""Bytes of a body."""
LARGE: Final = 16 * 1024 * 1024
"""Likewise, where evidence or a whole memory is brought in."""
CONFLICT: Final = 409
INVALID: Final = 400
UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True)
class Page:
    """One route."""

    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    needs: Role | Literal["public", "counted"]
    method: str = "GET"
    body: type[Any] | None = None
    """What the API takes there: a pydantic model or dataclass."""
    query: tuple[str, ...] = ()
    """Parameters that the API takes besides."""
    longest: int = BODY_LIMIT
    """Bytes of its body."""

    @property
    def operation(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


class PagesOf(Protocol):
    """A part of the console with routes of its own."""

    def table(self) -> list[Page]:
        """Return its routes."""


class Body(BaseModel):
    """What a route of the API takes; other members are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Deployment:
    """What acts of people work on."""

    store: RedisSessionStore
    """Connected."""
    seal: Seal
    """The deployment's key."""
    audit: AuditLogFile | NoAuditLog
    """Takes a line per act."""
    now: Callable[[], float]
    """Seconds since the epoch."""
    tenants: Callable[[], Awaitable[list[str]]]
    """Of whom anything is on record."""
    limits: Callable[[], StateLimits | None] = lambda: None
    """Of the policy in force."""

    async def tenants_of(self, request: Request) -> list[str]:
        """Return the tenant that a request asks about, else all."""
        named = request.query_params.get("tenant", "")
        return [named] if named else await self.tenants()

    def check_recorded(self) -> None:
        """Refuse what may not be done without a record.

        Raises:
            InputError: there is no audit log.
        """
        if isinstance(self.audit, NoAuditLog):
            raise InputError("no --audit given, so this would not be on record")


def person_of(request: Request) -> Person:
    """Return who sent a request that the door has let in."""
    signed_in: SignedIn = request.state.signed_in
    return signed_in.person


def by_whom(person: Person) -> dict[str, Json]:
    """Return who it was, for the record: the name may be one that he chose."""
    return {"by": person.name, "realm": person.realm, "subject": person.approver.subject}


def field_of(form: Mapping[str, list[str]], name: str) -> str:
    """Return the first value of a form's field; empty where there is none."""
    return next(iter(form.get(name, [])), "")


def number(text: str) -> int:
    """Return a text of digits as a number, 0 for any other."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0


async def read_body(request: Request, model: type[BodyT]) -> BodyT:
    """Return the body of a request.

    Raises:
        InputError: it is not like this model.
    """
    try:
        found: BodyT = TypeAdapter(model).validate_json(await request.body())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"the body: {place}: {first['msg']}") from error
    return found


def failure(error: Exception) -> tuple[int, str]:
    """Return status and text of what was not done, and why; nothing was released by it."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, InputError):
        return INVALID, str(error)
    if isinstance(error, StateError | AuditError | sqlite3.Error):
        return UNAVAILABLE, f"nothing was done: {str(error) or type(error).__name__}"
    return (CONFLICT if isinstance(error, GuardError) else 500), str(error)
