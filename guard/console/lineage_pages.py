"""Where a value or item came from and what it touched; incidents: open, scope, contain, undo."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import RedirectResponse, Response

from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.adapters.redis.operators import LabelOperator
from guard.console.access import Role
from guard.console.acts import EVENT_INCIDENT
from guard.console.drawing import Node, draw
from guard.console.pages import Page, field_of, number, person_of
from guard.core.errors import GuardError, InputError
from guard.core.policy import StateLimits
from guard.propagation.events import Flag, What
from guard.propagation.evidence import Tier
from guard.propagation.scope import select
from guard.provenance.lineage import ALTERED, BEGINNINGS, GAP, SAVED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.adapters.redis.operators import LabelTrace
    from guard.console.drawing import Drawing
    from guard.console.pages import Shelf
    from guard.propagation.events import Event
    from guard.propagation.graph import Graph
    from guard.propagation.incident import Incident
    from guard.propagation.scope import Scope
    from guard.provenance.lineage import Step

LISTED: Final = 200
"""Rows of a table; the whole scope is in `guard incident export`."""
_GIVEN: Final = ("node", "item", "store", "value", "source", "server", "principal", "session")


class LineagePages:
    """Pages over labels, the propagation graph and the incidents of all tenants.

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
        view, act = Role.VIEWER, Role.APPROVER
        return [
            Page("/lineage", self.ask, view),
            Page("/lineage", self.value, view, "POST"),
            Page("/lineage/{tenant}/{node}", self.node, view),
            Page("/incidents", self.incidents, view),
            Page("/incidents", self.open, act, "POST"),
            Page("/incidents/{tenant}/{incident}", self.incident, view),
            Page("/incidents/{tenant}/{incident}", self.act, act, "POST"),
        ]

    def _operator(self, tenant: str) -> IncidentOperator:
        return IncidentOperator(self._shelf.store, self._shelf.seal, tenant, self._shelf.limits())

    # --- lineage ---------------------------------------------------------------------------------

    async def ask(self, request: Request) -> Response:
        """Ask for the lineage of a value or item; what is asked for is in no URL."""
        return self._shown(request, "lineage", **await self._asked({}), found=[], graphs=[])

    async def _asked(self, form: dict[str, str]) -> dict[str, Any]:
        tenants = await asyncio.to_thread(self._shelf.index.tenants)
        return {"asked": {**dict.fromkeys((*_GIVEN, "tenant"), ""), **form}, "tenants": tenants}

    async def value(self, request: Request) -> Response:
        """Every save of a value or item: what it came from, what followed from it."""
        form = {name: field_of(request.state.form, name).strip() for name in (*_GIVEN, "tenant")}
        tenant = form["tenant"] or "default"
        text = form["value"] or form["item"]
        if not text:
            raise InputError(
                "name a value, such as an address, or the key of an item with its store"
            )
        labels = LabelOperator(
            self._shelf.store, self._shelf.seal, self._shelf.limits() or StateLimits(), tenant
        )
        traced = await labels.trace(
            text, self._shelf.now(), store=form["store"], principal=form["principal"]
        )
        found = [(name, _records(one), _path_drawing(one)) for name, one in traced.items()]
        graphs = []
        graph = await self._operator(tenant).graph()
        selected = self._selected(tenant, graph, form)
        if selected:
            graphs.append(_graph_drawing(tenant, graph, selected))
        return self._shown(
            request, "lineage", **await self._asked(form), found=found, graphs=graphs
        )

    def _selected(self, tenant: str, graph: Graph, form: dict[str, str]) -> list[int]:
        """Return the saves of what was asked for; none where it names no address and no item."""
        named: dict[str, Any] = {
            name: form[name] for name in ("value", "item", "store") if form[name]
        }
        try:
            selector = self._operator(tenant).selector(Given(**named))
        except GuardError:
            return []
        return select(graph, selector)

    async def node(self, request: Request) -> Response:
        """One save, send or recall: what led to it and what followed, as far as is on record."""
        tenant, name = request.path_params["tenant"], request.path_params["node"]
        graph = await self._operator(tenant).graph()
        try:
            place = graph.place(bytes.fromhex(name).rjust(8, b"\0")[:8])
        except ValueError as error:
            raise InputError("a node is named in hex digits") from error
        if place is None:
            raise GuardError("this node is not on record")
        graphs = [_graph_drawing(tenant, graph, [place])]
        asked = await self._asked({"tenant": tenant, "node": name})
        return self._shown(request, "lineage", **asked, found=[], graphs=graphs)

    # --- incidents -------------------------------------------------------------------------------

    async def incidents(self, request: Request) -> Response:
        """The incidents of all tenants, and the form that opens one."""
        asked = await self._asked({})
        listed = [
            (tenant, one)
            for tenant in asked["tenants"]
            for one in reversed(await self._operator(tenant).listed())
        ]
        return self._shown(request, "incidents", **asked, listed=listed)

    async def open(self, request: Request) -> Response:
        """Open an incident from whatever is named: what did it touch."""
        form, person = request.state.form, person_of(request)
        tenant = field_of(form, "tenant") or "default"
        named: dict[str, Any] = {name: field_of(form, name).strip() for name in _GIVEN}
        note = field_of(form, "note")[:500]
        incident = await self._operator(tenant).open(
            Given(**named), self._shelf.now(), person.name, note
        )
        self._audit.event(
            EVENT_INCIDENT, {"incident": incident.id, "act": "open", "by": person.name}
        )
        return _to(tenant, incident)

    async def incident(self, request: Request) -> Response:
        """One incident: what it reached, what was done about it, what is not known."""
        tenant, name = request.path_params["tenant"], request.path_params["incident"]
        operator = self._operator(tenant)
        incident = await operator.incident(name)
        graph, scope = await operator.scope(name)
        offered = await operator.offered(name)
        return self._shown(
            request,
            "incident",
            tenant=tenant,
            incident=incident,
            scope=scope,
            counts=_counts(scope),
            rows=[*scope.items, *scope.sends, *scope.asked][:LISTED],
            exposed=len(scope.exposed),
            picture=_scope_drawing(tenant, graph, scope),
            offered=offered,
            what=event_title,
        )

    async def act(self, request: Request) -> Response:
        """Contain what an incident reached, take a step back, release what was cleared, close."""
        form, person = request.state.form, person_of(request)
        tenant, name = request.path_params["tenant"], request.path_params["incident"]
        operator, at, by = self._operator(tenant), self._shelf.now(), person.name
        act, step = field_of(form, "act"), number(field_of(form, "step"))
        nodes = form.get("node", [])
        acts = {
            "contain": lambda: operator.contain(name, at, by),
            "contain_likely": lambda: operator.contain(name, at, by, likely=True),
            "undo": lambda: operator.undo(name, step, at, by),
            "release": lambda: operator.release(name, nodes, at, by),
            "close": lambda: operator.close(name, at, by),
        }
        if act not in acts:
            raise InputError("this is no act")
        fields = {"incident": name, "act": act, "by": by, **({"step": step} if step else {})}
        self._audit.event(EVENT_INCIDENT, fields)
        try:
            await acts[act]()
        except GuardError as error:
            self._audit.event(EVENT_INCIDENT, {**fields, "failed": str(error)[:200]})
            raise
        return RedirectResponse(f"/incidents/{tenant}/{name}", 303)


def _to(tenant: str, incident: Incident) -> Response:
    return RedirectResponse(f"/incidents/{tenant}/{incident.id}", 303)


def event_title(event: Event) -> str:
    """Return what an event is, in words."""
    words = {
        What.SAVE: "saved in",
        What.DRAFT: "drafted in",
        What.SEND: "sent by",
        What.RECALL: "recalled from",
        What.ASKED: "asked about, by",
    }
    where = event.tool if event.what in {What.SEND, What.ASKED} else event.store or event.tool
    return f"{words[event.what]} {where}"


def _node(tenant: str, event: Event, column: int, *, root: bool) -> Node:
    outside = bool(event.flags & Flag.OUTSIDE)
    note = f"{event.label.name.lower()}, call {event.call}{', outside' if outside else ''}"
    kind = "root" if root else "outside" if outside else event.label.name.lower()
    name = event.node.hex()
    return Node(name, column, event_title(event), note, kind, f"/lineage/{tenant}/{name}")


def _graph_drawing(tenant: str, graph: Graph, roots: list[int]) -> Drawing:
    """Return what led to some events and what followed from them."""
    columns = {one.place: -one.hops for one in graph.reach(roots, up=True)}
    columns |= {one.place: one.hops for one in graph.reach(roots)}
    return _drawn(tenant, graph, columns, set(roots))


def _scope_drawing(tenant: str, graph: Graph, scope: Scope) -> Drawing:
    items = (*scope.items, *scope.sends, *scope.asked)
    columns = {item.reached.place: item.reached.hops for item in items}
    return _drawn(tenant, graph, columns, set(scope.roots))


def _drawn(tenant: str, graph: Graph, columns: dict[int, int], roots: set[int]) -> Drawing:
    near = sorted(columns, key=lambda place: abs(columns[place]))[: 4 * LISTED]
    nodes = [_node(tenant, graph.event(p), columns[p], root=p in roots) for p in near]
    edges = [
        (graph.event(a).node.hex(), graph.event(b).node.hex(), kind.name.lower())
        for a, b, kind in graph.edges_between(set(near))
    ]
    return draw(nodes, edges)


def _counts(scope: Scope) -> dict[str, int]:
    tiers = Counter(item.reached.tier for item in scope.items)
    return {
        "items reached for certain": tiers[Tier.CONFIRMED],
        "likely": tiers[Tier.LIKELY],
        "sends": len(scope.sends),
        "of them to the outside": sum(bool(s.event.flags & Flag.OUTSIDE) for s in scope.sends),
        "asked about": len(scope.asked),
        "principals": len(scope.agents),
        "exposed, one step out": len(scope.exposed),
    }


def _records(trace: LabelTrace) -> list[tuple[str, Any]]:
    return [(one.kind, one.record) for one in sorted(trace.records, key=lambda r: r.record.at)]


def _path_drawing(trace: LabelTrace) -> Drawing:
    """Return the steps of a value, each to the right of what it came from."""
    nodes: list[Node] = []
    edges: list[tuple[str, str, str]] = []

    def grow(steps: Iterable[Step], column: int, parent: str) -> None:
        for step in steps:
            name = f"s{len(nodes)}"
            nodes.append(_step_node(name, step, column))
            if parent:
                edges.append((parent, name, "value"))
            grow(step.then, column + 1, name)

    grow(trace.steps, 0, "")
    return draw(nodes, edges)


def _step_node(name: str, step: Step, column: int) -> Node:
    record, hop = step.record, step.hop
    if step.kind == SAVED and hop is not None:
        title = f"saved in {hop.store}"
    elif step.kind == GAP:
        title = "a save that is not on record"
    elif step.kind == ALTERED:
        title = "a record whose seal does not fit"
    else:
        title = BEGINNINGS.get(step.kind, "the agent's own words")
    label = record.label.name.lower() if record is not None else ""
    note = f"{label}, {record.source} call {record.call}" if record is not None else step.why
    return Node(name, column, title, note, label or "gap")
