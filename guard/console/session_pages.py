"""A session or principal: its calls in order, its score over time, what it read and remembered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from guard.adapters.redis.propagation import read_graph
from guard.console.access import Role
from guard.console.lineage_pages import event_title
from guard.console.routes import Page
from guard.core.errors import StateError
from guard.core.model import Identity
from guard.core.policy import StateLimits
from guard.core.trajectory import FEATURES_13
from guard.provenance.label_sets import BUCKETS, LabelSets

if TYPE_CHECKING:
    from starlette.requests import Request

    from guard.console.decisions import Row
    from guard.console.pages import PageSources
    from guard.core.labels import LabelRecord
    from guard.core.trajectory import Window

CALLS: Final = 500
"""Decisions of one page."""
RECORDS: Final = 200
"""Labels that are listed."""
EVENTS: Final = 200


class SessionPages:
    """Pages over what one agent did.

    Args:
        sources: what the pages are about.
    """

    def __init__(self, sources: PageSources) -> None:
        self._sources = sources
        self._shown = sources.templates.shown

    def table(self) -> list[Page]:
        """Return the routes."""
        return [
            Page("/sessions", self.sessions, Role.VIEWER),
            Page("/sessions/score.svg", self.score, Role.VIEWER),
        ]

    async def sessions(self, request: Request) -> Response:
        """One session or principal; or who was last seen."""
        wanted = {name: request.query_params.get(name, "") for name in ("session", "principal")}
        rows = await asyncio.to_thread(self._sources.index.page, wanted, limit=CALLS)
        chosen = any(wanted.values())
        parts = await self._parts(wanted, rows) if chosen else []
        results = [one for part in parts for one in _results(part)]
        return self._shown(
            request,
            "sessions",
            wanted=wanted,
            rows=timeline(rows[::-1], results) if chosen else [],
            seen=[] if chosen else _seen(rows),
            chosen=chosen,
            scored=chosen and any(row["score"] is not None for row in rows),
            parts=parts,
        )

    async def _parts(self, wanted: dict[str, str], rows: list[Row]) -> list[dict[str, Any]]:
        """Return what the state holds of each principal that the decisions are of."""
        found = dict.fromkeys((row["tenant"], row["principal"]) for row in rows)
        parts: list[dict[str, Any]] = []
        for tenant, principal in list(found)[:3]:
            who = Identity(principal, wanted["session"], tenant or "default")
            try:
                parts.append(await self._part(who))
            except StateError as error:
                parts.append({"principal": principal, "error": str(error) or "not reachable"})
        return parts

    async def _part(self, who: Identity) -> dict[str, Any]:
        session, principal = await self._sources.store.windows(who)
        graph = await read_graph(self._sources.store, self._sources.seal, who.tenant)
        own = self._sources.seal.session(who) if who.session else b""
        whose = self._sources.seal.principal(who)
        events = []
        for place in range(len(graph) - 1, -1, -1):
            event = graph.event(place)
            if event.session == own or (not own and event.principal == whose):
                events.append(event)
            if len(events) >= EVENTS:
                break
        window = session if who.session else principal
        return {
            "calls": _calls(window),
            "tenant": who.tenant,
            "principal": who.principal,
            "error": "",
            "features": _features(window),
            "read": await self._read(who, own),
            "events": [(event_title(event), event) for event in events[::-1]],
        }

    async def _read(self, who: Identity, session: bytes) -> list[tuple[str, LabelRecord]]:
        """Return values that untrusted text named to a principal, by fingerprint, oldest first."""
        areas = LabelSets(self._sources.limits() or StateLimits())
        epoch = areas.epoch(self._sources.now())
        found: list[tuple[str, LabelRecord]] = []
        of_buckets = (
            areas.of_bucket(who.tenant, who.principal, bucket, epoch) for bucket in range(BUCKETS)
        )
        taints = [area for one in of_buckets for area in one.taints]
        # At once: what meets in one turn of the event loop travels in one write.
        every = await asyncio.gather(
            *(self._sources.store.some_fields(who, area) for area in taints)
        )
        for area, fields in zip(taints, every, strict=True):
            for name, raw in fields.items():
                record = self._sources.seal.read(area, name, raw)
                if record is not None and (not session or record.session == session):
                    found.append((name.hex()[:12], record))
        return sorted(found, key=lambda one: one[1].at)[:RECORDS]

    async def score(self, request: Request) -> Response:
        """The classifier's score before each send and unmapped call, in order."""
        wanted = {name: request.query_params.get(name, "") for name in ("session", "principal")}
        rows = await asyncio.to_thread(self._sources.index.page, wanted, limit=CALLS)
        picture = await asyncio.to_thread(_curve, rows[::-1])
        # As an image it runs nothing; its own style stands in it.
        headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Response(picture, media_type="image/svg+xml", headers=headers)


def _seen(rows: list[Row]) -> list[Row]:
    """Return who was seen in some decisions, the latest first, with the counts of each."""
    seen: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["principal"], row["session"])
        one = seen.setdefault(key, {**row, "calls": 0, "held": 0})
        one["calls"] += 1
        one["held"] += row["enforced"] in {"ask", "block"}
    return list(seen.values())


def _results(part: dict[str, Any]) -> list[Row]:
    """Return what a principal gained labels by: results in which somebody else named values."""
    found: dict[tuple[str, int, bytes], Row] = {}
    for _, record in part.get("read", ()):
        new = {"at": record.at, "read_by": part["principal"], "source": record.source}
        key = (record.source, record.call, record.session)
        one = found.setdefault(key, {**new, "call": record.call, "named": 0, "label": record.label})
        one["named"] += 1
        one["label"] = min(one["label"], record.label)
    return list(found.values())


def timeline(calls: list[Row], results: list[Row]) -> list[Row]:
    """Return calls and results, oldest first.

    Results are on record to the second: one stands behind the last call of its tool in that
    second, else behind every call of it.
    """
    behind: dict[int, list[Row]] = {}
    for one in sorted(results, key=lambda result: int(result["at"])):
        second = int(one["at"])
        before = [n for n, call in enumerate(calls) if int(call["at"]) <= second]
        own = [
            n for n in before if (int(calls[n]["at"]), calls[n]["tool"]) == (second, one["source"])
        ]
        behind.setdefault((own or before or [-1])[-1], []).append(one)
    placed = [row for n, call in enumerate(calls) for row in (call, *behind.get(n, ()))]
    return [*behind.get(-1, ()), *placed]


def _calls(window: Window) -> dict[str, int]:
    """Return what became of the calls, also of those whose result brought no label."""
    asked, back = sum(window.attempted), sum(window.trajectory.executed)
    refused = sum(window.refused)
    return {"asked": asked, "back": back, "refused": refused, "open": asked - back - refused}


def _features(window: Window) -> list[tuple[str, str]]:
    values = window.trajectory.features_13()
    return [(name, f"{value:g}") for name, value in zip(FEATURES_13, values, strict=True)]


def _curve(rows: list[Row]) -> bytes:
    """Return a picture of scores from 0 to 1."""
    import pygal

    from guard.console.pages import chart_style

    chart = pygal.Line(
        style=chart_style(), height=180, width=900, js=[], margin=8, show_legend=False,
        range=(0, 1), disable_xml_declaration=True, allow_interruptions=True, dots_size=2,
        y_labels=[0, 0.25, 0.5, 0.75, 1],
    )  # fmt: skip
    chart.add("score", [row["score"] for row in rows])
    picture: str = chart.render()
    return picture.encode()
