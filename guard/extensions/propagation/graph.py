"""The propagation graph in memory: reach, its way back, the cut.  Pure: no I/O.

Edges are held as arrays (compressed sparse rows), so that a million items are walked in a fraction
of a second.  Reach follows confirmed and likely edges.  Exposure (a session recalled an item and
then saved or sent something) is listed one step out and never followed: every session that reads
much is exposed to nearly everything.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.extensions.propagation.events import (
    EDGE,
    EDGE_COUNT_AT,
    EDGES_AT,
    NODE,
    NODE_AT,
    Event,
    EventKind,
    unpack_event,
)
from guard.extensions.propagation.evidence import Kind, Tier

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
UNREACHED: Final = -1
SAVED: Final = frozenset({EventKind.SAVE, EventKind.DRAFT})
_RECORD: Final = np.dtype([("parent", ">u8"), ("kind", "u1")])


@dataclass(frozen=True, slots=True)
class Adjacency:
    """Directed edges between numbered nodes, by the node that they leave."""

    starts: Longs
    """Start of each node's edges; one more for the end."""
    ends: Ints
    """The node that each edge leads to."""

    @classmethod
    def of(cls, count: int, sources: Ints, targets: Ints) -> Adjacency:
        """Return the edges of ``count`` nodes."""
        order = np.argsort(sources, kind="stable")
        starts = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(sources, minlength=count), out=starts[1:])
        return cls(starts, targets[order])

    def reach(self, roots: Ints) -> Ints:
        """Return the fewest edges from the roots to each node, ``UNREACHED`` where there are none.

        Breadth first, one level at a time, so cycles end it like anything else.
        """
        hops: Ints = np.full(len(self.starts) - 1, UNREACHED, dtype=np.int32)
        level = np.unique(roots).astype(np.int32)
        hops[level] = 0
        depth = 0
        while len(level):
            depth += 1
            found = self._after(level)
            found = found[hops[found] == UNREACHED]
            hops[found] = depth
            # Each once, without sorting: whoever wrote its number last is kept.
            level = found if len(found) < 2 else np.flatnonzero(hops == depth).astype(np.int32)  # noqa: PLR2004
        return hops

    def _after(self, level: Ints) -> Ints:
        """Return where the edges of some nodes lead."""
        begin, counts = self.starts[level], self.starts[level + 1] - self.starts[level]
        total = int(counts.sum())
        if not total:
            return np.zeros(0, dtype=np.int32)
        # Places of all edges: each node's own, one run behind the other.
        shift = np.repeat(begin - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        found: Ints = self.ends[np.arange(total, dtype=np.int64) + shift]
        return found


class Reached(NamedTuple):
    """A node that an incident reached."""

    place: int
    """Its number in the graph."""
    tier: Tier
    hops: int
    confidence: float
    """Confidence of its best path: the product over its edges."""


WEIGHT: Final = {
    Kind.VALUE: 1.0,
    Kind.CITATION: 1.0,
    Kind.RUN: 1.0,
    Kind.RESEMBLANCE: 0.6,
    Kind.DILUTED: 0.2,
}
"""Share of the confidence in a node that an edge of each kind passes on."""


_LIKELY: Final = [kind for kind in Kind if kind.tier is Tier.LIKELY]


class Graph:
    """The events of one tenant with their edges.

    Args:
        bodies: of the events whose seals fit, in the order of the log.
        missing: events whose numbers are gone.
        altered: events whose seals do not fit.
    """

    def __init__(self, bodies: Sequence[bytes], missing: int = 0, altered: int = 0) -> None:
        self.bodies = bodies
        self.missing = missing
        self.altered = altered
        self._unpacked: dict[int, Event] = {}
        ids = np.frombuffer(b"".join([b[NODE_AT : NODE_AT + NODE] for b in bodies]), dtype=">u8")
        self.ids = ids.astype(np.uint64)
        counts = [body[EDGE_COUNT_AT] for body in bodies]
        raw = b"".join(
            [b[EDGES_AT : EDGES_AT + n * EDGE] for b, n in zip(bodies, counts, strict=True) if n]
        )
        edges = np.frombuffer(raw, dtype=_RECORD)
        targets = np.repeat(np.arange(len(bodies), dtype=np.int32), counts)
        order = np.argsort(self.ids, kind="stable")
        self._sorted, self._order = self.ids[order], order
        sources = self._places(edges["parent"].astype(np.uint64))
        known = sources != UNREACHED
        self.lost = int((~known).sum())
        """Edges from nodes that are not on record any more."""
        # An edge leads forward: what cites itself or something later is no evidence of anything.
        known &= sources < targets
        self.sources: Ints = sources[known].astype(np.int32)
        self.targets: Ints = targets[known].astype(np.int32)
        self.kinds = edges["kind"][known]

    def _places(self, ids: NDArray[np.uint64]) -> Ints:
        if not len(self._sorted):
            return np.full(len(ids), UNREACHED, dtype=np.int32)
        # Of two events of one call the first counts.
        at = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        return np.where(self._sorted[at] == ids, self._order[at], UNREACHED).astype(np.int32)

    def __len__(self) -> int:
        return len(self.bodies)

    def event(self, place: int) -> Event:
        """Return the event of a number."""
        found = self._unpacked.get(place)
        if found is None:
            found = self._unpacked[place] = unpack_event(self.bodies[place])
        return found

    def place(self, node: bytes) -> int | None:
        """Return the number of a node; None where it is not on record."""
        [found] = self._places(np.array([int.from_bytes(node, "big")], dtype=np.uint64))
        return None if found == UNREACHED else int(found)

    def adjacency(self, tier: Tier, *, up: bool = False) -> Adjacency:
        """Return the edges up to a tier, or the same the other way round."""
        wanted = np.isin(self.kinds, [kind for kind in Kind if kind.tier <= tier])
        ends = self.sources[wanted], self.targets[wanted]
        sources, targets = reversed(ends) if up else ends
        return Adjacency.of(len(self), sources, targets)

    def diluted(self, since: Mapping[int, float]) -> Graph:
        """Return the graph with the edges weakened that leave repaired and cleared items.

        They are likely at most; nothing is taken out of the log, and taking the step back that
        repaired or cleared an item gives its edges their weight again.

        Args:
            since: seconds since the epoch by node; what was saved later can hardly follow from the
                contained version.  0 where a person has cleared it: nothing bad follows from it.
        """
        leaving = np.isin(self.sources, np.fromiter(since, dtype=np.int32, count=len(since)))
        weak = [
            place
            for place in np.flatnonzero(leaving).tolist()
            if self.event(int(self.targets[place])).at > since[int(self.sources[place])]
        ]
        other = copy(self)
        other.kinds = self.kinds.copy()
        other.kinds[weak] = Kind.DILUTED
        return other

    def reach(self, roots: Iterable[int], *, up: bool = False) -> list[Reached]:
        """Return what follows from some nodes (or what they follow from), the roots included.

        A node is confirmed where a path of confirmed edges leads to it.
        """
        begin = np.array(sorted(set(roots)), dtype=np.int32)
        if not len(begin):
            return []
        hops = self.adjacency(Tier.LIKELY, up=up).reach(begin)
        surely = hops
        if bool(np.isin(self.kinds, _LIKELY).any()):
            surely = self.adjacency(Tier.CONFIRMED, up=up).reach(begin)
        reached = hops != UNREACHED
        unsure = bool((reached & (surely == UNREACHED)).any())
        confidence = self._confidence(hops, up=up) if unsure else {}
        surely_reached = (surely != UNREACHED).tolist()
        distance = hops.tolist()
        return [
            Reached(place, Tier.CONFIRMED, distance[place], 1.0)
            if surely_reached[place]
            else Reached(place, Tier.LIKELY, distance[place], confidence.get(place, 0.0))
            for place in np.flatnonzero(reached).tolist()
        ]

    def _confidence(self, hops: Ints, *, up: bool) -> dict[int, float]:
        """Return the product of the weights of each node's best path, along shortest paths."""
        sources, targets = (self.targets, self.sources) if up else (self.sources, self.targets)
        inside = (hops[sources] != UNREACHED) & (hops[targets] == hops[sources] + 1)
        found = {int(place): 1.0 for place in np.flatnonzero(hops == 0)}
        order = np.argsort(hops[sources[inside]], kind="stable")
        edges = zip(
            sources[inside][order].tolist(),
            targets[inside][order].tolist(),
            self.kinds[inside][order].tolist(),
            strict=True,
        )
        for source, target, kind in edges:
            weight = found.get(source, 0.0) * WEIGHT[Kind(kind)]
            found[target] = max(found.get(target, 0.0), weight)
        return found

    def edges_between(self, places: Collection[int]) -> list[tuple[int, int]]:
        """Return the edges whose both ends are among some nodes."""
        chosen = np.fromiter(places, dtype=np.int32, count=len(places))
        inside = np.isin(self.sources, chosen) & np.isin(self.targets, chosen)
        return list(zip(self.sources[inside].tolist(), self.targets[inside].tolist(), strict=True))

    def exposed(self, reached: set[int]) -> dict[int, int]:
        """Return what was saved or sent in a session after it had recalled a reached item.

        Returns:
            By the number of each such event the number of the recall; nothing that is reached.
        """
        marks = {mark for place in reached for mark in self.event(place).marks}
        seen: dict[bytes, int] = {}
        found: dict[int, int] = {}
        if not marks:
            return found
        for place in range(min(reached), len(self)):
            event = self.event(place)
            if event.what is EventKind.RECALL:
                if not marks.isdisjoint(event.marks):
                    seen.setdefault(event.session, place)
            elif event.session in seen and place not in reached:
                found[place] = seen[event.session]
        return found

    def written_after(
        self, reached: Mapping[int, int], cleared: Collection[int] = ()
    ) -> dict[int, int]:
        """Return the saves of sessions that had recalled a reached item, whatever they say.

        A save that follows from such a save, or was made after a recall of it, is one as well.
        Values and passages that other saves have too do not tell a recall.

        Args:
            reached: hops by the number of each reached event.
            cleared: events that a person has cleared: nothing follows from them.

        Returns:
            Hops by the number of each such save; nothing that is reached.
        """
        surely = np.isin(
            self.kinds, [k for k in Kind if k.tier <= Tier.LIKELY and k != Kind.DILUTED]
        )
        ends = zip(self.targets[surely].tolist(), self.sources[surely].tolist(), strict=True)
        parents: dict[int, list[int]] = {}
        for target, source in ends:
            parents.setdefault(target, []).append(source)
        hops = {place: hop for place, hop in reached.items() if place not in cleared}
        marks: dict[bytes, int] = {}
        common: set[bytes] = set()
        sessions: dict[bytes, int] = {}
        found: dict[int, int] = {}
        for place in range(len(self)):
            event = self.event(place)
            if event.what is EventKind.RECALL:
                near = [marks[m] for m in event.marks if m in marks and m not in common]
                if near:
                    sessions.setdefault(event.session, min(near) + 1)
                continue
            if event.what not in SAVED or place in cleared:
                continue
            if place not in hops:
                near = [hops[parent] + 1 for parent in parents.get(place, ()) if parent in hops]
                near += [sessions[event.session]] if event.session in sessions else []
                if near:
                    found[place] = hops[place] = min(near)
            if place in hops:
                marks |= dict.fromkeys(event.marks, hops[place])
            else:
                common.update(event.values, event.runs)
        return found

    def cut(self, roots: set[int], goals: set[int]) -> list[int] | None:
        """Return the first node without which nothing leads from the roots to any of the goals.

        None where there is no such node.  Edges lead forward, so parents are looked at first.

        Args:
            roots: where the ways begin.
            goals: where they end; those that the roots do not lead to are left out.
        """
        parents: dict[int, list[int]] = {}
        for source, target in self.edges_between({one.place for one in self.reach(roots)}):
            parents.setdefault(target, []).append(source)
        through: dict[int, frozenset[int]] = dict.fromkeys(roots, frozenset())
        for node in sorted(parents.keys() - roots):
            ways = [through[parent] for parent in parents[node]]
            through[node] = frozenset.intersection(*ways) | {node}
        ends = [through[goal] for goal in goals if goal in through]
        found = frozenset.intersection(*ends) - goals if ends else frozenset()
        return [min(found)] if found else None
