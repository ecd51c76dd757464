"""The scope of an incident: reached items by tier and priority, sends, agents, causes, cut, gaps.

The priority is R of the paper's equation 5 with its weights; docs/adr tells how its terms are read.
Nothing here changes anything.  Pure: no I/O.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from guard.extensions.propagation.events import Event, EventKind, Flag
from guard.extensions.propagation.evidence import Kind, Tier
from guard.extensions.propagation.graph import SAVED, Graph, Reached

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from guard.extensions.propagation.incident import Selector

GAMMAS: Final = (0.5, 0.3, 0.2)
"""Weights of probability, spread and conflict in equation 5."""
CUT_NODES: Final = 1_000
"""Reached nodes up to which the cut is worked out."""
LISTED: Final = 10_000
"""Nodes that a scope lists."""


@dataclass(frozen=True, slots=True)
class ScopedItem:
    """One reached event."""

    reached: Reached
    event: Event
    priority: float
    """R, equation 5."""
    spread: float
    conflict: float


@dataclass(frozen=True, slots=True)
class Scope:
    """Nodes that follow from the roots of an incident."""

    roots: tuple[int, ...]
    items: tuple[ScopedItem, ...]
    """Saves, the highest priority first, the roots included."""
    sends: tuple[ScopedItem, ...]
    """Sends that went out."""
    asked: tuple[ScopedItem, ...]
    """Sends that people were asked about."""
    exposed: Mapping[int, int]
    """Events one step out by number, with the recall that exposes each."""
    causes: tuple[int, ...]
    """Earliest saves that the roots follow from."""
    cut: tuple[int, ...] | None
    agents: tuple[bytes, ...]
    depth: int
    coverage: float
    """Share of the saves since the first root."""
    mean_hops: float
    unknown: dict[str, int]
    """Number of missing parts by kind."""

    def nodes(self, tier: Tier) -> list[ScopedItem]:
        """Return the items up to a tier."""
        return [item for item in self.items if item.reached.tier <= tier]


def select(graph: Graph, selector: Selector) -> list[int]:
    """Return the saves that a selector names, and what it names by node whatever that is."""
    return [place for place in range(len(graph)) if _selects(graph.event(place), selector)]


def _selects(event: Event, selector: Selector) -> bool:
    if selector.nodes:
        return event.node in selector.nodes
    tests: list[tuple[frozenset[bytes], Iterable[bytes]]] = [
        (selector.places, (event.place,)),
        (selector.values, event.values),
        (selector.origins, (event.origin,)),
        (selector.servers, (event.server,)),
        (selector.principals, (event.principal,)),
        (selector.sessions, (event.session,)),
    ]
    in_time = selector.since <= event.at <= selector.until
    return (
        event.what in SAVED
        and in_time
        and all(wanted.intersection(found) for wanted, found in tests if wanted)
    )


def scope_of(
    graph: Graph,
    roots: Iterable[int],
    *,
    up: bool = False,
    exposed: Collection[int] | None = None,
) -> Scope:
    """Return what follows from some events.

    Args:
        graph: of the tenant.
        roots: numbers of events.
        up: what they follow from instead.
        exposed: also everything that sessions saved after they had recalled a reached item; the
            numbers of the events that a person has cleared.
    """
    begin = sorted(set(roots))
    reached = graph.reach(begin, up=up)
    if exposed is not None:
        after = graph.written_after({one.place: one.hops for one in reached}, exposed)
        reached += [Reached(place, Tier.EXPOSED, hops, 0.0) for place, hops in after.items()]
    places = {one.place for one in reached}
    heights = _heights(graph, reached)
    highest = max(heights.values(), default=0) or 1
    earlier = _earlier_versions(graph, places)
    scoped = [
        _scoped(graph, one, heights[one.place] / highest, earlier.get(one.place)) for one in reached
    ]
    scoped.sort(key=lambda item: (item.reached.tier, -item.priority, item.reached.place))
    sends = {item.reached.place for item in scoped if item.event.what is EventKind.SEND}
    items = [item for item in scoped if item.event.what in SAVED]
    cut = graph.cut(set(begin), sends) if sends and len(places) <= CUT_NODES else None
    saves_since = sum(
        graph.event(place).what in SAVED for place in range(begin[0] if begin else 0, len(graph))
    )
    hops = [item.reached.hops for item in items if item.reached.hops]
    above = graph.reach(begin, up=True)
    inward = {int(target) for target in graph.targets.tolist()}
    return Scope(
        roots=tuple(begin),
        items=tuple(items),
        sends=tuple(item for item in scoped if item.event.what is EventKind.SEND),
        asked=tuple(item for item in scoped if item.event.what is EventKind.ASKED),
        exposed=graph.exposed(places) if places and not up else {},
        causes=tuple(one.place for one in above if one.place not in inward),
        cut=None if cut is None else tuple(cut),
        agents=tuple(dict.fromkeys(item.event.principal for item in scoped)),
        depth=max((one.hops for one in reached), default=0),
        coverage=len(items) / saves_since if saves_since else 0.0,
        mean_hops=sum(hops) / len(hops) if hops else 0.0,
        unknown=unknown_of(graph, places),
    )


def without_items(scope: Scope, cleared: Collection[str]) -> Scope:
    """Return a scope without the items (nodes in hex) that a person has cleared."""
    kept = tuple(item for item in scope.items if item.event.node.hex() not in cleared)
    return replace(scope, items=kept)


def unknown_of(graph: Graph, places: set[int]) -> dict[str, int]:
    """Return what may be missing from a scope, by what it is."""
    cut = sum(bool(graph.event(place).flags & Flag.CUT) for place in places)
    found = {
        "events_missing": graph.missing,
        "events_altered": graph.altered,
        "edges_from_lost_events": graph.lost,
        "events_cut_short": cut,
    }
    return {name: count for name, count in found.items() if count}


def _scoped(
    graph: Graph,
    one: Reached,
    spread: float,
    earlier: Event | None,
) -> ScopedItem:
    event = graph.event(one.place)
    conflict = event.conflict(earlier)
    priority = GAMMAS[0] * one.confidence + GAMMAS[1] * spread + GAMMAS[2] * conflict
    return ScopedItem(one, event, round(priority, 6), spread, conflict)


def _heights(graph: Graph, reached: list[Reached]) -> dict[int, int]:
    """Return the longest shortest path below each reached node: how far it carries on."""
    hops = {one.place: one.hops for one in reached}
    heights = dict.fromkeys(hops, 0)
    for source, target in sorted(graph.edges_between(hops), reverse=True):
        if hops[target] > hops[source]:
            heights[source] = max(heights[source], heights[target] + 1)
    return heights


def _earlier_versions(graph: Graph, places: set[int]) -> dict[int, Event]:
    """Return the version before each reached item, where it is of the same item and not reached."""
    last: dict[bytes, Event] = {}
    found: dict[int, Event] = {}
    for place in range(len(graph)):
        event = graph.event(place)
        if event.what not in SAVED:
            continue
        if place not in places:
            last[event.place] = event
        elif event.place in last:
            found[place] = last[event.place]
    return found


def scope_document(graph: Graph, scope: Scope) -> dict[str, Any]:
    """Return a scope as JSON values; digests in hex, no text."""
    tiers = Counter(item.reached.tier.name.lower() for item in scope.items)
    return {
        "roots": [graph.event(place).node.hex() for place in scope.roots],
        "counts": {
            "items": len(scope.items),
            **{
                tier.name.lower(): tiers[tier.name.lower()]
                for tier in (Tier.CONFIRMED, Tier.LIKELY)
            },
            "exposed": len(scope.exposed),
            "written_after_recall": tiers[Tier.EXPOSED.name.lower()],
            "sends": len(scope.sends),
            "sends_outside": sum(bool(s.event.flags & Flag.OUTSIDE) for s in scope.sends),
            "agents": len(scope.agents),
        },
        "depth": scope.depth,
        "mean_hops": round(scope.mean_hops, 3),
        "coverage": round(scope.coverage, 6),
        "items": [item_document(item) for item in scope.items[:LISTED]],
        "sends": [item_document(item) for item in scope.sends[:LISTED]],
        "asked": [item_document(item) for item in scope.asked[:LISTED]],
        "exposed": [
            {**event_document(graph.event(place)), "by": graph.event(recall).node.hex()}
            for place, recall in list(scope.exposed.items())[:LISTED]
        ],
        "root_cause": [cause_document(graph.event(place)) for place in scope.causes],
        "cut": None if scope.cut is None else [graph.event(p).node.hex() for p in scope.cut],
        "agents": [agent.hex() for agent in scope.agents],
        "unknown": scope.unknown,
    }


def event_document(event: Event) -> dict[str, Any]:
    """Return an event as JSON values."""
    return {
        "node": event.node.hex(),
        "what": event.what.name.lower(),
        "item": event.place.hex(),
        "store": event.store,
        "tool": event.tool,
        "label": event.label.name.lower(),
        "session": event.session.hex(),
        "principal": event.principal.hex(),
        "call": event.call,
        "at": event.at,
        "outside": bool(event.flags & Flag.OUTSIDE),
        "from": [
            {"node": edge.parent.hex(), "by": Kind(edge.kind).name.lower()} for edge in event.edges
        ],
    }


def item_document(item: ScopedItem) -> dict[str, Any]:
    """Return a reached event as JSON values."""
    return {
        **event_document(item.event),
        "tier": item.reached.tier.name.lower(),
        "hops": item.reached.hops,
        "r": item.priority,
        "p": round(item.reached.confidence, 4),
        "spread": round(item.spread, 4),
        "conflict": round(item.conflict, 4),
    }


def cause_document(event: Event) -> dict[str, Any]:
    """Return where a cause came from: the first untrusted text that its session had read."""
    return {
        **event_document(event),
        "read_in_call": event.root,
        "read_by_tool": event.root_tool,
        "source": event.origin.hex() if any(event.origin) else "",
    }
