"""The memory gate on the pages: partitions that are closed, drift, writes that were held back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, RedirectResponse, Response

from guard.adapters.redis.gate_operator import GateOperator
from guard.console.access import Role
from guard.console.pages import Page, by_whom, field_of, number, person_of
from guard.core.errors import GuardError, InputError
from guard.core.memory import Trust

if TYPE_CHECKING:
    from starlette.requests import Request

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.console.pages import Shelf
    from guard.core.model import Json

LISTED: Final = 50
"""Writes that were held back, per tenant."""
EXCERPT: Final = 1000
MOST_HOURS: Final = 24 * 365
_SHOWN: Final = ("id", "fate", "reasons", "principal", "tool", "store", "partition")


class MemoryPages:
    """What the gate keeps out of memories, and why.

    Args:
        shelf: what the pages are about.
        audit: takes a line per act.
    """

    def __init__(self, shelf: Shelf, audit: AuditLogFile | NoAuditLog) -> None:
        self._shelf = shelf
        self._shown = shelf.templates.shown
        self._audit = audit

    def table(self) -> list[Page]:
        """Return the routes."""
        return [
            Page("/memory", self.memory, Role.VIEWER),
            Page("/memory", self.act, Role.APPROVER, "POST"),
            Page("/api/memory", self.api_memory, Role.VIEWER),
        ]

    def _operator(self, tenant: str) -> GateOperator:
        store = self._shelf.store
        return GateOperator(store.client, namespace=store.namespace, tenant=tenant)

    async def _found(self) -> dict[str, Any]:
        """Return closed partitions, drift and held-back writes of all tenants, as JSON values."""
        found: dict[str, Any] = {"tenants": [], "closed": [], "drift": [], "writes": []}
        for tenant in await asyncio.to_thread(self._shelf.index.tenants):
            operator = self._operator(tenant)
            found["tenants"].append(tenant)
            for one in await operator.closed():
                found["closed"].append({"tenant": tenant, **one._asdict()})
            for principal, subject in await operator.drift():
                level = Trust(await operator.trust("principal", principal)).name.lower()
                told = {"tenant": tenant, "principal": principal, "subject": subject}
                found["drift"].append({**told, "trust": level})
            for write in await operator.review(LISTED):
                shown = {name: write.fields.get(name, "") for name in _SHOWN}
                text = write.fields.get("content", "")[:EXCERPT]
                found["writes"].append({"tenant": tenant, **shown, "content": text})
        return found

    async def memory(self, request: Request) -> Response:
        """What is closed, what drifts, what was held back."""
        return self._shown(request, "memory", **await self._found())

    async def api_memory(self, request: Request) -> Response:
        """What is closed, what drifts, what was held back."""
        del request
        return JSONResponse(await self._found())

    async def act(self, request: Request) -> Response:
        """Close a partition, open it again, or trust a principal or source again."""
        form, by = request.state.form, by_whom(person_of(request))
        tenant = field_of(form, "tenant") or "default"
        store, partition = (field_of(form, name).strip() for name in ("store", "partition"))
        name, reason = (field_of(form, name).strip() for name in ("name", "reason"))
        operator, hours = self._operator(tenant), number(field_of(form, "hours"))
        fields: dict[str, Json] = {"tenant": tenant, "store": store, "reason": reason, **by}
        match field_of(form, "act"):
            case "close":
                if not (store and partition and 0 < hours <= MOST_HOURS):
                    raise InputError("say which partition of which store, and for how many hours")
                self._audit.event("guard.memory_quarantined", {**fields, "ttl": f"{hours}h"})
                await operator.quarantine(store, partition, reason, hours * 3600)
            case "open":
                self._audit.event("guard.memory_released", fields)
                if not await operator.release(store, partition):
                    raise GuardError("this partition is not closed; it may be open again")
            case "trust":
                kind = field_of(form, "kind")
                if kind not in {"principal", "source"} or not (name and reason):
                    raise InputError("say whom to trust again, and why")
                told = {"tenant": tenant, "kind": kind, "name": name, "reason": reason, **by}
                self._audit.event("guard.memory_trust_restored", told)
                await operator.restore(kind, name)
            case _:
                raise InputError("this is no act")
        return RedirectResponse("/memory", 303)
