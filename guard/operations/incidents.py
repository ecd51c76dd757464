"""Incidents of poisoned items: open, scope, contain, repair, undo, close.

A step writes its journal before its first change, and its record before and after: after a crash,
the next operator completes or undoes it.  A record is replaced only if it is unchanged since it was
read: of two operators at once, one fails.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.errors import GuardError
from guard.core.model import Identity, Json
from guard.core.policy import StateLimits
from guard.extensions.propagation.containment import ITEM as ITEM_FIELD
from guard.extensions.propagation.containment import contained_set
from guard.extensions.propagation.events import Event, server_of
from guard.extensions.propagation.evidence import Tier
from guard.extensions.propagation.graph import SAVED, Graph
from guard.extensions.propagation.incident import (
    CLOSED,
    DONE,
    PLANNED,
    UNDOING,
    UNDONE,
    Change,
    Incident,
    Selector,
    Step,
)
from guard.extensions.propagation.repair import (
    RESTORE,
    RESTORED,
    Offer,
    Proposal,
    is_restored,
    proposals,
    whole_marks,
)
from guard.extensions.propagation.scope import Scope, scope_of, select, without_items
from guard.operations.containment import ContainmentChanges
from guard.operations.deployment import Body, HexText
from guard.provenance.label_sets import (
    ATTESTED,
    ITEM,
    TAINTED,
)
from guard.provenance.lineage import place_of
from guard.provenance.result_documents import source_mark
from guard.store.incident_records import (
    CHANGED,
    IncidentRecords,
    read_graph,
    read_staged,
    read_texts,
)
from guard.values.finding import find_values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore

ROUNDS: Final = 5
"""Maximum number of passes of a containment: each contains what was saved during the last."""
WRITING: Final = 30.0
"""Seconds during which a repair that has begun may still write."""
Texts: TypeAlias = "dict[bytes, tuple[str, dict[str, Json]]]"
"""Tool and arguments of a save, by node."""
TextWriter: TypeAlias = "Callable[[str, dict[str, Json]], Awaitable[object]]"
"""Saves something with a tool through the guard; takes the tool's name and its arguments."""


class Given(Body):
    """Selection that an incident is opened from; every given field must hold of a save."""

    node: HexText = ""
    """Node of the graph, in hex."""
    item: str = ""
    """Key of an item of ``store``."""
    store: str = ""
    value: str = ""
    """An address, or a text with some."""
    source: str = ""
    """A sender or URL host."""
    server: str = ""
    """A listener; or a listener, a blank, and an upstream."""
    principal: str = ""
    session: str = ""
    """Session of ``principal``."""
    since: float = 0.0
    """Seconds since the epoch."""
    until: float = 0.0
    """Likewise; 0 for no end."""

    def named(self) -> dict[str, str]:
        """Return what was given."""
        given = self.model_dump(include={*Given.model_fields})
        return {name: str(value) for name, value in given.items() if value}


class IncidentOperator:
    """The incidents of one tenant.

    Args:
        store: a connected store in the guard's namespace.
        seal: the deployment's key.
        tenant: name of the tenant.
        limits: state limits of the guard's policy.
        reached: takes the name of each point that a step passes; for tests.
    """

    def __init__(
        self,
        store: RedisSessionStore,
        seal: Seal,
        tenant: str = "default",
        limits: StateLimits | None = None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._seal = seal
        self._tenant = tenant
        self._identity = Identity("", "", tenant=tenant)
        self._reached = reached
        self._records = IncidentRecords(store, seal, tenant)
        self._changes = ContainmentChanges(
            store, seal, self._records, tenant, limits or StateLimits()
        )
        self.listed = self._records.listed
        self.contained = self._records.contained

    # --- looking ---------------------------------------------------------------------------------

    async def graph(self) -> Graph:
        """Return the tenant's graph as it is now."""
        return await read_graph(self._store, self._seal, self._tenant)

    def selector(self, given: Given) -> Selector:
        """Return the selector of a selection.

        Raises:
            GuardError: it selects nothing, or cannot be read.
        """
        shown = given.named()
        if not shown:
            raise GuardError("say what the incident is about: an item, a value, a source, …")
        values = set(find_values(given.value).plain) if given.value else set()
        if given.value and not values:
            raise GuardError(f"`{given.value}` has no address or other value in it")
        seal, identity = self._seal, self._identity
        reader = replace(identity, principal=given.principal, session=given.session)
        listener, _, upstream = given.server.partition(" ")
        item = f"item:{given.store}:{given.item}" if given.item else ""
        return Selector(
            nodes=frozenset({bytes.fromhex(given.node)} if given.node else ()),
            places=frozenset({place_of(seal, given.store, item)} if given.item else ()),
            values=frozenset(seal.fingerprint(value) for value in values),
            origins=frozenset({source_mark(given.source)} if given.source else ()),
            servers=frozenset({server_of(seal, listener, upstream)} if given.server else ()),
            principals=frozenset({seal.principal(reader)} if given.principal else ()),
            sessions=frozenset({seal.session(reader)} if given.session else ()),
            since=given.since,
            until=given.until or float("inf"),
            shown=shown,
        )

    async def incident(self, identifier: str) -> Incident:
        """Return an incident.

        Raises:
            GuardError: there is none of that id, or its record was altered.
        """
        return (await self._records.read(identifier))[0]

    async def scope(self, identifier: str, *, exposed: bool = False) -> tuple[Graph, Scope]:
        """Return the current scope of an incident; nothing is changed.

        Args:
            identifier: of the incident.
            exposed: whether it has the saves of sessions that had recalled a reached item.
        """
        incident = await self.incident(identifier)
        graph = await self._diluted(await self.graph())
        cleared = _places(graph, incident.released) if exposed else None
        scope = scope_of(graph, _places(graph, incident.roots), exposed=cleared)
        if exposed:
            scope = without_items(scope, incident.released)
        unjudged = await self._unjudged(graph)
        if unjudged:
            scope = replace(scope, unknown={**scope.unknown, "events_not_judged": unjudged})
        return graph, scope

    async def _unjudged(self, graph: Graph) -> int:
        """Return the number of events that the detector has not judged; 0 without a detector."""
        judged = await self._records.judged()
        total = len(graph) + graph.missing + graph.altered
        return 0 if judged is None else max(0, total - judged)

    async def texts(self, scope: Scope) -> Texts:
        """Return the texts of the items and sends of a scope, as far as they are kept."""
        return await self._texts(item.event for item in (*scope.items, *scope.sends))

    async def _texts(self, events: Iterable[Event]) -> Texts:
        """Return the texts of some saves: kept texts, else staged ones.

        A staged text is not sealed, so it counts only if its digests are those of the save.
        """
        wholes = {event.node: set(event.wholes) for event in events}
        kept = await read_texts(self._store, self._seal, self._tenant, set(wholes))
        left = wholes.keys() - kept.keys()
        staged = await read_staged(self._store, self._seal, self._tenant, left) if left else {}
        for node, (tool, arguments) in staged.items():
            if wholes[node] and whole_marks(self._seal, arguments) == wholes[node]:
                kept[node] = tool, arguments
        return kept

    async def proposals(self, identifier: str) -> tuple[list[Proposal], Texts]:
        """Return the restorations of each contained item, and the known texts."""
        graph, scope = await self.scope(identifier, exposed=True)
        nodes = {name[1:] for name in await self.contained()}
        contained = {item.reached.place for item in scope.items if item.event.node in nodes}
        events = map(graph.event, range(len(graph)))
        texts = await self._texts(event for event in events if event.what in SAVED)
        stores = {graph.event(place).store for place in contained}
        marks = {place_of(self._seal, store, "") for store in stores}
        return proposals(graph, contained, marks, set(texts)), texts

    def arguments(
        self, one: Proposal, own: dict[str, Json], text: dict[str, Json]
    ) -> dict[str, Json]:
        """Return the arguments that save a text under the name of an item.

        Args:
            one: the item.
            own: arguments that saved the contained version.
            text: arguments that saved what is to be there instead.
        """
        names = {
            name: value
            for name, value in own.items()
            if place_of(self._seal, one.store, f"item:{one.store}:{value}") == one.item
        }
        return {**text, **names}

    async def _diluted(self, graph: Graph) -> Graph:
        """Return the graph in which repaired and cleared events count less."""
        since: dict[int, float] = {}
        for incident in await self.listed():
            for node, at in incident.dilutes():
                for place in _places(graph, (node,)):
                    since[place] = min(at, since.get(place, at))
        return graph.diluted(since) if since else graph

    async def offered(self, identifier: str) -> list[Offer]:
        """Return the contained items that a person may let be recalled again, and why.

        Looked at anew each time: nothing surely leads to them any more, since others were cleared
        or repaired.
        """
        incident = await self.incident(identifier)
        graph = await self.graph()
        roots = _places(graph, incident.roots)
        before = {one.place: one.tier for one in graph.reach(roots)}
        graph = await self._diluted(graph)
        released = set(_places(graph, incident.released))
        now = {one.place: one.tier for one in graph.reach(set(roots) - released)}
        held = {name[1:] for name in await self.contained()}
        found: list[Offer] = []
        for item in scope_of(graph, roots).items:
            place = item.reached.place
            if item.event.node not in held or place in released or now.get(place) is Tier.CONFIRMED:
                continue
            if before[place] is Tier.CONFIRMED or place not in now:
                found.append(Offer(item.event, "nothing of the incident surely leads to it now"))
        return found

    # --- acting ----------------------------------------------------------------------------------

    async def open(
        self, given: Given, at: float, by: str, note: str = "", *, two_people: bool = False
    ) -> Incident:
        """Open an incident from whatever the selection names.

        Args:
            given: the selection.
            at: now.
            by: who does it.
            note: why.
            two_people: whether the policy in force has two for what gives something back.

        Raises:
            GuardError: nothing on record is named by it.
        """
        selector = self.selector(given)
        graph = await self.graph()
        roots = select(graph, selector)
        if not roots:
            raise GuardError("nothing on record is named by that; see `guard memory trace`")
        incident = Incident(
            id=f"inc-{secrets.token_hex(6)}",
            opened_at=at,
            opened_by=by,
            selectors=selector.shown,
            roots=tuple(graph.event(place).node.hex() for place in roots),
            note=note,
            two_people=two_people,
        ).logged(at, by, f"opened from {len(roots)} events")
        return await self._records.write(incident, b"")

    async def contain(
        self, identifier: str, at: float, by: str, tier: Tier = Tier.CONFIRMED
    ) -> Incident:
        """Withhold what an incident reached, and lower what followed from it.

        Args:
            identifier: of the incident.
            at: now.
            by: who does it.
            tier: least certain items that are contained; `EXPOSED`: whatever sessions saved after
                they had recalled a contained item, reworded copies among it.

        Raises:
            GuardError: the incident is closed, or somebody else is at work on it.
        """
        incident = await self._resumed(identifier, at, by)
        for _ in range(ROUNDS):
            graph = await self._diluted(await self.graph())
            cleared = _places(graph, incident.released) if tier is Tier.EXPOSED else None
            scope = scope_of(graph, _places(graph, incident.roots), exposed=cleared)
            scope = without_items(scope, incident.released)
            events = [item.event for item in scope.nodes(tier)]
            reached = (one for one in (*scope.sends, *scope.asked) if one.reached.tier <= tier)
            sends = [one.event for one in reached]
            changes = await self._changes.all(graph, scope, events, sends)
            nodes = tuple(event.node.hex() for event in events)
            # What another incident holds already is this one's to hold as well.
            if not changes and incident.holds(nodes):
                break
            incident = await self._take_step(incident, ("contain", nodes), changes, at, by)
        return incident

    async def undo(self, identifier: str, number: int, at: float, by: str) -> Incident:
        """Take one step back: every field becomes what it was, unless somebody changed it since.

        Raises:
            GuardError: there is no such step, or it was undone before.
        """
        incident = await self._resumed(identifier, at, by)
        step = next((one for one in incident.steps if one.number == number), None)
        if step is None or step.state != DONE:
            raise GuardError(f"step {number} of `{identifier}` is not one that can be undone")
        for other, kept in (await self._kept_by_others(identifier)).items():
            shared = [
                change
                async for changes in self._records.journal(identifier, step, backwards=False)
                for change in changes
                if change.name in kept
            ]
            if shared:
                # From now on it is the other incident's to undo.
                held = await self._resumed(other, at, by, closed=True)
                await self._take_step(held, ("contain", ()), shared, at, by)
        incident = await self._change_step(
            incident, replace(step, state=UNDOING, undone_by=by, undone_at=at), at, by
        )
        return await self._finish(incident, at, by)

    async def _kept_by_others(self, identifier: str) -> dict[str, set[bytes]]:
        """Return the fields that other incidents want as they are, by incident."""
        found: dict[str, set[bytes]] = {}
        others = [one for one in await self.listed() if one.id != identifier]
        if not others:
            return found
        graph = await self.graph()
        for other in others:
            nodes = [
                node
                for step in other.steps
                if step.kind == "contain" and step.state == DONE
                for node in step.nodes
            ]
            for place in _places(graph, nodes):
                event = graph.event(place)
                names = found.setdefault(other.id, set())
                names |= {ITEM_FIELD + event.node, event.place + ITEM}
                names |= {value + mark for value in event.values for mark in (TAINTED, ATTESTED)}
        return found

    async def close(self, identifier: str, at: float, by: str) -> Incident:
        """Close an incident; what it contains stays contained."""
        incident = await self._resumed(identifier, at, by)
        _, raw = await self._records.read(identifier)
        closed = replace(incident, state=CLOSED).logged(at, by, "closed")
        return await self._records.write(closed, raw)

    async def release(self, identifier: str, nodes: Iterable[str], at: float, by: str) -> Incident:
        """Let items that were cleared be recalled again; nothing else is taken back.

        Raises:
            GuardError: none of them is contained.
        """
        incident = await self._resumed(identifier, at, by)
        wanted = set(nodes)
        held = await self.contained()
        key = self._store.key_of(self._tenant, contained_set(self._tenant))
        changes = [
            Change("item", key, name, raw, None)
            for name, raw in held.items()
            if name[1:].hex() in wanted
        ]
        if not changes:
            raise GuardError("none of these items is contained")
        return await self._take_step(incident, ("release", tuple(sorted(wanted))), changes, at, by)

    async def repair(
        self,
        identifier: str,
        one: Proposal,
        text: tuple[Texts, bytes],
        write: TextWriter,
        at: float,
        by: str,
    ) -> str:
        """Have a text written in the place of a contained item; return what came of it.

        The step is on record before the write and again after it.  Whoever comes after a crash
        looks in the graph whether a better version was saved: then the step is done, else it is
        undone.

        Args:
            identifier: of the incident.
            one: what can be done about the item.
            text: texts that are kept, and the node of the one that a person picks (empty: none).
            write: saves it through the guard.
            at: now.
            by: who does it.

        Raises:
            GuardError: the incident is closed, or somebody else is at work on it.
        """
        texts, node = text
        if not node and one.action == RESTORE and one.version is not None:
            node = one.version.node
        if not node and one.action != RESTORED:
            return one.action
        if node and not {node, one.contained} <= texts.keys():
            return "withheld: its text is not kept"
        incident = await self._resumed(identifier, at, by, writing=True)
        if one.contained.hex() in incident.repaired:
            return "repaired"
        incident, step = await self._plan(incident, ("repair", (one.contained.hex(),)), (), at, by)
        if not node:
            await self._change_step(incident, replace(step, state=DONE), at, by)
            return one.action
        tool, arguments = texts[node]
        try:
            await write(tool, self.arguments(one, texts[one.contained][1], arguments))
        except OSError as error:
            await self._change_step(incident, replace(step, state=UNDONE), at, by)
            return f"withheld: it could not be written ({error})"
        self._reached("written")
        await self._change_step(incident, replace(step, state=DONE), at, by)
        return "written"

    # --- steps -----------------------------------------------------------------------------------

    async def _resumed(
        self,
        identifier: str,
        at: float,
        by: str,
        *,
        closed: bool = False,
        writing: bool = False,
    ) -> Incident:
        """Return an incident with whatever was cut short before finished.

        Args:
            identifier: of the incident.
            at: now.
            by: who acts.
            closed: it may be closed.
            writing: what follows writes an item, so it waits for others that do.  That is seen in
                the very record that the next step replaces: between two readings others begin.

        Raises:
            GuardError: it is closed; or another repair, begun less than :data:`WRITING` ago, may
                still write.
        """
        incident = await self.incident(identifier)
        if incident.state == CLOSED and not closed:
            raise GuardError(f"`{identifier}` is closed")
        step = incident.unfinished
        if step is None:
            return incident
        left = step.at + WRITING - at
        if writing and step.kind == "repair" and left > 0:
            raise GuardError(f"{step.by} is writing an item of this incident; wait {left:.0f} s")
        return await self._finish(incident, at, by)

    async def _take_step(
        self,
        incident: Incident,
        what: tuple[str, tuple[str, ...]],
        changes: Sequence[Change],
        at: float,
        by: str,
    ) -> Incident:
        incident, _ = await self._plan(incident, what, changes, at, by)
        return await self._finish(incident, at, by)

    async def _plan(
        self,
        incident: Incident,
        what: tuple[str, tuple[str, ...]],
        changes: Sequence[Change],
        at: float,
        by: str,
    ) -> tuple[Incident, Step]:
        """Put a step on record that is about to be taken, its journal first."""
        kind, nodes = what
        number = 1 + max((step.number for step in incident.steps), default=0)
        counts: dict[str, int] = {}
        for change in changes:
            counts[change.part] = counts.get(change.part, 0) + 1
        nonce = secrets.token_hex(8)
        step = Step(number, kind, PLANNED, at, by, counts, nodes, nonce=nonce)
        await self._records.announce(incident.id, step, changes, self._reached)
        incident = await self._change_step(incident, step, at, by)
        await self._records.drop_others(incident.id, step)
        self._reached("planned")
        return incident, step

    async def _change_step(self, incident: Incident, step: Step, at: float, by: str) -> Incident:
        current, raw = await self._records.read(incident.id)
        if current.version != incident.version:
            raise GuardError(CHANGED)
        what = f"{step.kind} {step.number}: {step.state}"
        return await self._records.write(incident.with_step(step, at, by, what), raw)

    async def _finish(self, incident: Incident, at: float, by: str) -> Incident:
        """Make the changes of a step that is planned, or take back those of one being undone.

        Whether a repair that was cut short was written, the graph says.
        """
        step = incident.unfinished
        if step is None:
            return incident
        if step.kind == "repair" and step.state == PLANNED:
            graph = await self.graph()
            written = all(is_restored(graph, bytes.fromhex(node)) for node in step.nodes)
            step = replace(step, state=DONE if written else UNDONE)
            return await self._change_step(incident, step, at, by)
        undoing, conflicts = step.state == UNDOING, 0
        kept: set[bytes] = set()
        if undoing:
            kept = kept.union(*(await self._kept_by_others(incident.id)).values())
        async for changes in self._records.journal(incident.id, step, backwards=undoing):
            made = [one for one in changes if one.name not in kept]
            made = [one.undone() for one in reversed(made)] if undoing else made
            conflicts += await self._records.make(made)
            await self._changes.list_again(made)
            self._reached("changed")
        await self._records.next_epoch()
        self._reached("epoch")
        state = UNDONE if undoing else DONE
        done = replace(step, state=state, conflicts=step.conflicts + conflicts)
        return await self._change_step(incident, done, at, by)


def _places(graph: Graph, roots: Iterable[str]) -> list[int]:
    """Return the numbers of the roots that are still on record."""
    found = (graph.place(bytes.fromhex(root)) for root in roots)
    return [place for place in found if place is not None]
