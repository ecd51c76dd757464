"""Pages on the lineage of a value or item: where it came from, and what followed from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.redis.incidents import GIVEN, Given, IncidentOperator
from guard.adapters.redis.operators import LabelOperator
from guard.console.access import Role
from guard.console.drawing import Node, draw
from guard.console.routes import Page, field_of
from guard.core.errors import GuardError, InputError
from guard.core.policy import StateLimits
from guard.propagation.events import EventKind, Flag
from guard.propagation.scope import select
from guard.provenance.lineage import ALTERED, BEGINNINGS, GAP, SAVED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from guard.adapters.redis.operators import LabelTrace
    from guard.console.drawing import Drawing
    from guard.console.pages import PageSources
    from guard.propagation.events import Event
    from guard.propagation.graph import Graph
    from guard.propagation.scope import Scope
    from guard.provenance.lineage import Step

LISTED: Final = 200
"""Rows of a table; the whole scope is in `guard incident export`."""


class LineagePages:
    """Pages over labels and the propagation graph.

    Args:
        sources: what the pages are about.
    """

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources
        self._shown = sources.templates.shown

    def table(self) -> list[Page]:
        """Return the routes."""
        view = Role.VIEWER
        return [
            Page("/lineage", self.ask, view),
            Page("/lineage", self.value, view, "POST"),
            Page("/lineage/{tenant}/{node}", self.node, view),
        ]

    def _operator(self, tenant: str) -> IncidentOperator:
        return IncidentOperator(
            self._sources.store, self._sources.seal, tenant, self._sources.limits()
        )

    async def ask(self, request: Request) -> Response:
        """Ask for the lineage of a value or item; what is asked for is in no URL."""
        return self._shown(request, "lineage", **await self._asked({}), found=[], graphs=[])

    async def _asked(self, form: dict[str, str]) -> dict[str, Any]:
        tenants = await asyncio.to_thread(self._sources.index.tenants)
        return {"asked": {**dict.fromkeys((*GIVEN, "tenant"), ""), **form}, "tenants": tenants}

    async def value(self, request: Request) -> Response:
        """Every save of a value or item: what it came from, what followed from it."""
        form = {name: field_of(request.state.form, name).strip() for name in (*GIVEN, "tenant")}
        tenant = form["tenant"] or "default"
        text = form["value"] or form["item"]
        if not text:
            raise InputError(
                "name a value, such as an address, or the key of an item with its store"
            )
        labels = LabelOperator(
            self._sources.store, self._sources.seal, self._sources.limits() or StateLimits(), tenant
        )
        traced = await labels.trace(
            text, self._sources.now(), store=form["store"], principal=form["principal"]
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


def event_title(event: Event) -> str:
    """Return what an event is, in words."""
    words = {
        EventKind.SAVE: "saved in",
        EventKind.DRAFT: "drafted in",
        EventKind.SEND: "sent by",
        EventKind.RECALL: "recalled from",
        EventKind.ASKED: "asked about, by",
    }
    where = (
        event.tool if event.what in {EventKind.SEND, EventKind.ASKED} else event.store or event.tool
    )
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


def scope_drawing(tenant: str, graph: Graph, scope: Scope) -> Drawing:
    """Return what an incident reached."""
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
