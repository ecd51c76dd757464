"""Decisions as they are made, one decision, sessions, lineage, and the record of acts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from guard.console.decisions import FILTERS, PAGE, DecisionIndex, Row
from guard.console.routes import Call, Resource
from guard.core.errors import GuardError, InputError
from guard.operations.deployment import OfTenant, Role
from guard.operations.memory import MemoryActions, Reach, Search

if TYPE_CHECKING:
    from guard.operations.approvals import ApprovalActions

CALLS: Final = 500
"""Number of decisions of a session's page."""
VERDICTS: Final = ("allow", "redact", "ask", "block")
QUICK_SECONDS: Final = 2
CHART_HOURS: Final = 48
CHART_HEIGHT: Final = 120
BAR: Final = 18
"""Width of one hour of the chart, in pixels."""


class LineageBody(OfTenant):
    """Value or item whose lineage is looked up."""

    value: str = ""
    item: str = ""
    store: str = ""
    principal: str = ""
    """Principal whose untrusted reading is searched as well."""


@dataclass(frozen=True, slots=True)
class OverviewResources:
    """Resources over the audit log and the state of agents."""

    index: DecisionIndex
    actions: ApprovalActions
    memory: MemoryActions

    def table(self) -> list[Resource]:
        """Return the resources."""
        view = Role.VIEWER
        return [
            Resource(
                "/decisions", "Decisions, the newest first; `before` is an id.", self.decisions,
                view, query=(*FILTERS, "before"), template="now", page="/",
            ),
            Resource("/live", "", self.live, view, template="live", is_api=False),
            Resource(
                "/decisions/{decision}", "A decision.", self.decision, view, template="decision"
            ),
            Resource(
                "/sessions", "A session or principal.", self.sessions, view,
                query=("session", "principal"), template="sessions",
            ),
            Resource(
                "/lineage", "The form.", self.ask, view, template="lineage", is_api=False
            ),
            Resource(
                "/lineage", "Lineage of a value or item.", self.lineage, view, LineageBody,
                template="lineage", is_api=False,
            ),
            Resource(
                "/lineage/{tenant}/{node}", "Causes and consequences of an event.", self.node,
                view, template="lineage", is_api=False,
            ),
            Resource("/record", "Acts of persons and of the guard.", self.record, view,
                template="record"),
        ]  # fmt: skip

    async def decisions(self, call: Call) -> Any:
        """Return a page of decisions, the last two days by hour, and the state's health."""
        wanted = {name: call.query.get(name, "") for name in FILTERS}
        before = call.number("before")
        rows = await asyncio.to_thread(self.index.page, wanted, before=before)
        end = self.actions.deployment.now() + 3600
        hours = await asyncio.to_thread(self.index.series, end - CHART_HOURS * 3600, end)
        waiting, unreachable = None, ""
        try:
            tenants = await asyncio.to_thread(self.index.tenants)
            waiting = len(await self.actions.waiting(tenants))
        except GuardError as error:
            unreachable = str(error) or type(error).__name__
        return {
            "decisions": rows,
            "wanted": wanted,
            "older": rows[-1]["id"] if len(rows) == PAGE else 0,
            "live": not before,
            "bars": _bars([counts for _, counts in hours]),
            "unreachable": unreachable,
            "feed_error": self.index.error,
            "waiting": waiting,
        }

    async def live(self, call: Call) -> Any:
        """Return the newest decisions, for a page that is open.

        Raises:
            GuardError: the log cannot be followed; the page says so.
        """
        del call
        if self.index.error:
            raise GuardError(self.index.error)
        return {"decisions": await asyncio.to_thread(self.index.page, {})}

    async def decision(self, call: Call) -> Any:
        """Return one decision."""
        found = await asyncio.to_thread(self.index.decision, call.path["decision"])
        if found is None:
            raise HTTPException(404, "no decision on record has this id")
        return found

    async def record(self, call: Call) -> Any:
        """Return the acts on record, and the number of quick approvals."""
        events = await asyncio.to_thread(self.index.events)
        answers = [one["detail"] for one in events if one["event"] == "guard.approval"]
        granted = [one for one in answers if one.get("answer") == "granted" and "waited" in one]
        quick = sum(one["waited"] <= QUICK_SECONDS for one in granted)
        return {"events": events, "granted": len(granted), "quick": quick}

    # --- sessions --------------------------------------------------------------------------------

    async def sessions(self, call: Call) -> Any:
        """Return a session or principal; without a name, the last sessions."""
        wanted = {name: call.query.get(name, "") for name in ("session", "principal")}
        rows = await asyncio.to_thread(self.index.page, wanted, limit=CALLS)
        seen = {} if any(wanted.values()) else _seen(rows)
        return {"wanted": wanted, "decisions": rows[::-1], "seen": list(seen.values())}

    # --- lineage ---------------------------------------------------------------------------------

    async def ask(self, call: Call) -> Any:
        """Return the empty form; what is searched is never in a URL."""
        return await self._lineage(LineageBody())

    async def _lineage(self, asked: LineageBody, **more: Any) -> dict[str, Any]:
        tenants = await asyncio.to_thread(self.index.tenants)
        empty: dict[str, Any] = {"node": "", "values": [], "tree": None, "scopes": []}
        return {"asked": asked.model_dump(), "tenants": tenants, **empty, **more}

    async def lineage(self, call: Call) -> Any:
        """Return the path of a value or item through memory, and what followed from it."""
        body: LineageBody = call.body
        text = body.value or body.item
        if not text:
            raise InputError(
                "name a value, such as an address, or the key of an item with its store"
            )
        search = Search(tenant=body.tenant, text=text, store=body.store, principal=body.principal)
        found = await self.memory.trace(search)
        scopes = await self._scopes(body.tenant, text, body.store)
        return await self._lineage(
            body, tree=found["tree"][1], values=found["values"], scopes=scopes
        )

    async def node(self, call: Call) -> Any:
        """Return the causes and consequences of one save, send or recall."""
        tenant, node = call.path["tenant"], call.path["node"]
        scopes = await self._scopes(tenant, node.rjust(16, "0"), "")
        if not scopes:
            raise GuardError("this node is not on record")
        return await self._lineage(LineageBody(tenant=tenant), node=node, scopes=scopes)

    async def _scopes(self, tenant: str, text: str, store: str) -> list[dict[str, Any]]:
        """Return causes and consequences; none where the graph has no such save."""
        try:
            return [
                await self.memory.reach(Reach(tenant=tenant, text=text, store=store, up=up))
                for up in (True, False)
            ]
        except GuardError:
            return []


def _seen(rows: list[Row]) -> dict[tuple[str, str], Row]:
    """Return the sessions of some decisions, the latest first, with the counts of each."""
    seen: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["principal"], row["session"])
        one = seen.setdefault(key, {**row, "calls": 0, "held": 0})
        one["calls"] += 1
        one["held"] += row["enforced"] in {"ask", "block"}
    return seen


def _bars(hours: list[dict[str, int]]) -> list[dict[str, Any]]:
    """Return the stacked bars of a chart: verdict, count and place of each."""
    most = max((sum(counts.values()) for counts in hours), default=0) or 1
    bars: list[dict[str, Any]] = []
    for place, counts in enumerate(hours):
        top = CHART_HEIGHT
        for verdict in VERDICTS:
            height = round(CHART_HEIGHT * counts.get(verdict, 0) / most)
            top -= height
            bars.append({"verdict": verdict, "x": place * BAR, "y": top, "height": height})
    return [one for one in bars if one["height"]]
