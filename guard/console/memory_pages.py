"""The memory gate on the pages: partitions that are closed, drift, writes that were held back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError
from starlette.responses import RedirectResponse, Response

from guard.console.access import Role
from guard.console.memory_api import CloseBody, MemoryApi, PartitionBody, TrustBody
from guard.console.routes import Page, field_of, number, person_of
from guard.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.console.pages import PageSources
    from guard.console.routes import Body

EXCERPT: Final = 1000
BodyT = TypeVar("BodyT", bound="Body")


class MemoryPages:
    """What the gate keeps out of memories, and why.

    Args:
        sources: what the pages are about.
        audit: takes a line per act.
    """

    def __init__(self, sources: PageSources, audit: AuditLogFile | NoAuditLog) -> None:
        self._sources = sources
        self._shown = sources.templates.shown
        self.api = MemoryApi(sources.deployment(audit))

    def table(self) -> list[Page]:
        """Return the routes, those of the API among them."""
        return [
            Page("/memory", self.memory, Role.VIEWER),
            Page("/memory", self.act, Role.APPROVER, "POST"),
            *self.api.table(),
        ]

    async def memory(self, request: Request) -> Response:
        """What is closed, what drifts, what was held back."""
        found = await self.api.found(await asyncio.to_thread(self._sources.index.tenants))
        for write in found["writes"]:
            write["content"] = write["content"][:EXCERPT]
        return self._shown(request, "memory", **found)

    async def act(self, request: Request) -> Response:
        """Close a partition, open it again, or trust a principal or source again."""
        form, person = request.state.form, person_of(request)
        match field_of(form, "act"):
            case "close":
                hours = 3600 * number(field_of(form, "hours"))
                why = "say which partition of which store, and for how many hours"
                await self.api.close(person, _body(CloseBody, form, why, seconds=hours))
            case "open":
                await self.api.open(person, _body(PartitionBody, form, "say which partition"))
            case "trust":
                said = "say whom to trust again, and why"
                await self.api.restore(person, _body(TrustBody, form, said))
            case _:
                raise InputError("this is no act")
        return RedirectResponse("/memory", 303)


def _body(model: type[BodyT], form: Mapping[str, list[str]], why: str, **more: Any) -> BodyT:
    """Return the fields of a form as the API takes them.

    Raises:
        InputError: one is missing; ``why`` says what is to be given.
    """
    given = {name: field_of(form, name).strip() for name in model.model_fields}
    given["tenant"] = given["tenant"] or "default"
    try:
        return model.model_validate({**given, **more})
    except ValidationError as error:
        raise InputError(why) from error
