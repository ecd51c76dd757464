"""Memory: held-back writes, partitions, trust, labels, lineage, findings, structure.

Searched texts are in the body of a request, never in its URL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from guard.console.routes import LARGE, Resource, acted
from guard.core.errors import InputError
from guard.operations import memory as requests
from guard.operations.deployment import Role
from guard.operations.memory import LISTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.console.routes import Call
    from guard.operations.memory import MemoryActions


MOST: Final = 1000


MOST_LABELS: Final = 100_000


@dataclass(frozen=True, slots=True)
class MemoryResources:
    """Resources over :class:`MemoryActions`.

    Args:
        actions: the memories.
        tenants: returns the tenants of a request.
    """

    actions: MemoryActions
    tenants: Callable[[Call], Awaitable[list[str]]]

    def table(self) -> list[Resource]:
        """Return the resources."""
        view, act, admin, of = Role.VIEWER, Role.APPROVER, Role.ADMIN, self.actions
        base, limited = "/memory", ("tenant", "limit")
        return [
            Resource(
                base, "Closed partitions, drift, held-back writes.", self.overview, view,
                query=limited, template="memory",
            ),
            Resource(
                f"{base}/promote", "Let one refused write in, once.",
                acted(of.promote), act, requests.Promotion,
            ),
            Resource(
                f"{base}/quarantine", "Close a partition to writes.",
                acted(of.close), act, requests.Closing, back=base,
            ),
            Resource(
                f"{base}/release", "Open a closed partition.",
                acted(of.open), act, requests.Partition, back=base,
            ),
            Resource(
                f"{base}/trust", "Trust a source or principal again.",
                acted(of.restore), act, requests.Restoring, back=base,
            ),
            Resource(
                f"{base}/accept-loss", "Count labels as complete after a loss.",
                acted(of.accept_loss), admin, requests.Accepting,
            ),
            Resource(
                f"{base}/in-flight", "Forwarded writes of unknown fate.", self.in_flight, view,
                query=("tenant", "older_than"),
            ),
            Resource(
                f"{base}/fate", "Record the fate of a write.",
                acted(of.settle), act, requests.Settling,
            ),
            Resource(f"{base}/labels", "Label records.", self.labels, view, query=limited),
            Resource(
                f"{base}/labels", "Label what a memory held before the guard.",
                acted(of.import_items), admin, requests.Items,
                longest=LARGE,
            ),
            Resource(
                f"{base}/find", "Labels of the values in a text.",
                lambda call: of.find(call.body), view, requests.Search,
            ),
            Resource(
                f"{base}/trace", "Path of the values in a text.",
                lambda call: of.trace(call.body), view, requests.Search,
            ),
            Resource(
                f"{base}/reach", "Consequences or causes of saves.",
                lambda call: of.reach(call.body), view, requests.Reach,
            ),
            Resource(
                f"{base}/findings", "Saves that look poisoned.", self.findings, view,
                query=("tenant",),
            ),
            Resource(
                f"{base}/findings/clear", "Clear findings.",
                acted(of.clear), act, requests.Clearing,
            ),
            Resource(
                f"{base}/structure", "A store's ledger as JSON lines.", self.structure, admin,
                query=("tenant", "store"),
            ),
            Resource(
                f"{base}/structure", "Add structure from before the guard.",
                acted(of.append), admin, requests.Structure,
                longest=LARGE,
            ),
        ]  # fmt: skip

    async def overview(self, call: Call) -> Any:
        """Return closed partitions, drift and held-back writes."""
        return await self.actions.overview(
            await self.tenants(call), call.number("limit", LISTED, MOST)
        )

    async def in_flight(self, call: Call) -> Any:
        """Return writes in flight."""
        try:
            older = float(call.query.get("older_than", "0"))
        except ValueError as error:
            raise InputError("`older_than` is a number of seconds") from error
        return await self.actions.in_flight(await self.tenants(call), older)

    async def labels(self, call: Call) -> Any:
        """Return label records."""
        return await self.actions.labels(
            await self.tenants(call), call.number("limit", 100, MOST_LABELS)
        )

    async def findings(self, call: Call) -> Any:
        """Return findings."""
        return await self.actions.findings(await self.tenants(call))

    async def structure(self, call: Call) -> Any:
        """Stream a ledger."""
        tenant, store = call.query.get("tenant", "default"), call.query.get("store", "")
        if not store:
            raise InputError("name the store")
        lines = self.actions.ledger(tenant, store)
        return StreamingResponse(lines, media_type="application/jsonl")
