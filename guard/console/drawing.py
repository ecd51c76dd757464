"""Lineage as a picture: boxes in columns by distance, and arrows between them.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH: Final = 240
HEIGHT: Final = 52
ACROSS: Final = 56
"""Between two columns."""
DOWN: Final = 14
MARGIN: Final = 10
MOST: Final = 120
"""Boxes of one picture; of more, those next to where it begins are drawn."""
_CHARS: Final = 34


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph, to be drawn as a box."""

    id: str
    column: int
    """Distance from where it begins; what led there has a negative one."""
    title: str
    note: str
    kind: str
    """Class of the box, which gives its colour."""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A node with its place, in pixels."""

    node: Node
    x: int
    y: int
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge."""

    path: str
    """For ``d`` of an SVG path."""
    kind: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    left_out: int
    """Nodes that did not fit."""


def draw(nodes: Sequence[Node], edges: Iterable[tuple[str, str, str]]) -> Drawing:
    """Return a picture of nodes in columns, with edges as (from, to, kind).

    Within a column nodes stand near the mean place of what leads to them.
    """
    kept = sorted(nodes, key=lambda one: abs(one.column))[:MOST]
    known = {one.id for one in kept}
    drawn = [(a, b, kind) for a, b, kind in edges if a in known and b in known]
    rows = _rows(kept, drawn)
    first = min((one.column for one in kept), default=0)
    boxes = {
        one.id: Box(
            one,
            MARGIN + (one.column - first) * (WIDTH + ACROSS),
            MARGIN + rows[one.id] * (HEIGHT + DOWN),
            _short(one.title),
            _short(one.note),
        )
        for one in kept
    }
    return Drawing(
        width=max((box.x for box in boxes.values()), default=0) + WIDTH + MARGIN,
        height=max((box.y for box in boxes.values()), default=0) + HEIGHT + MARGIN,
        boxes=tuple(boxes.values()),
        arrows=tuple(Arrow(_path(boxes[a], boxes[b]), kind) for a, b, kind in drawn),
        left_out=len(nodes) - len(kept),
    )


def _rows(nodes: Sequence[Node], edges: Sequence[tuple[str, str, str]]) -> Mapping[str, int]:
    """Return the row of each node in its column."""
    before: dict[str, list[str]] = {}
    for source, target, _ in edges:
        before.setdefault(target, []).append(source)
    rows: dict[str, int] = {}
    for column in sorted({one.column for one in nodes}):
        own = [one for one in nodes if one.column == column]

        def mean(one: Node) -> float:
            places = [rows[other] for other in before.get(one.id, ()) if other in rows]
            return sum(places) / len(places) if places else len(rows)

        for row, one in enumerate(sorted(own, key=mean)):
            rows[one.id] = row
    return rows


def _path(source: Box, target: Box) -> str:
    x, y = source.x + WIDTH, source.y + HEIGHT // 2
    to_x, to_y = target.x, target.y + HEIGHT // 2
    if to_x < x:  # Within a column, or against the order of time.
        x, to_x = source.x + WIDTH // 2, target.x + WIDTH // 2
        down = target.y > source.y
        y, to_y = source.y + HEIGHT * down, target.y + HEIGHT * (not down)
        return f"M{x} {y}L{to_x} {to_y}"
    middle = (x + to_x) // 2
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"


def _short(text: str) -> str:
    return text if len(text) <= _CHARS else text[: _CHARS - 1] + "…"
