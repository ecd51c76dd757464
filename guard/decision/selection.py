"""Selections of graph memories: what is written to a ledger, and what a recall is worth.

A save into a store with a ``selection`` appends its structure to the store's ledger, with the label
of what it was made of.  An answer of such a store is replayed on the part that counts before it is
released; items that stand before their authenticated place leave a record with each of their
values, and a later call that names one finds it unknown (docs/graph-memory.md).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import AuditError, GuardError
from guard.core.labels import Channel
from guard.core.metrics import ERRORS, SELECTION_FIDELITY, SELECTIONS
from guard.core.model import Integrity, PrincipalRung
from guard.core.policy import Action, Mode, Reason
from guard.graph_memory import namespaces as namespaces_of
from guard.graph_memory.answers import Ranked, annotated, documents_in, read_ranked, reordered
from guard.graph_memory.comparison import Comparison, note_on, whose_structure
from guard.graph_memory.graph import Graph
from guard.graph_memory.grounding import Grounding
from guard.graph_memory.ledger import (
    Change,
    Ledger,
    LedgerReader,
    Write,
    Writer,
    ledger_set,
    seal_writes,
)
from guard.graph_memory.replay import SelectionReplay, UnreplayedError, replay
from guard.graph_memory.selectors import discover_selectors
from guard.graph_memory.selectors.base import CommunitySelector
from guard.provenance.label_sets import label_sets
from guard.provenance.ladder import SELECTED_WHY
from guard.provenance.selected_values import (
    explanation_lookup,
    explanation_write,
    read_explanation,
    selected_writes,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    import numpy as np

    from guard.core.calls import ClassifiedCall, ToolResult, TracedCall
    from guard.core.labels import LabelSet, LabelWrite
    from guard.core.mappings import (
        Namespaces,
        PathQuery,
        RankedMapping,
        SelectionPolicy,
        StructureMapping,
    )
    from guard.core.model import Json
    from guard.core.policy import Policy, Verdict
    from guard.decision.decision_log import Records
    from guard.decision.large_work import RunsElsewhere
    from guard.decision.stores import Stores
    from guard.graph_memory.graph import Recall
    from guard.graph_memory.selectors import Selector
    from guard.provenance.seal import Seal

RECENT: Final = 100
"""Answers over which the share that the replica made alike is taken."""
ENOUGH: Final = 20
"""Answers from which that share counts."""
CHECKED: Final = 8
"""Of recalls without untrusted structure, every how many the replica is compared."""
FLYING: Final = 30.0
"""Seconds for which a write that has not come back may still be under way."""
LANDING: Final = 0.5
"""Share of its deadline for which a replay waits for writes that are under way."""
BEFORE: Final = 8
"""Calls that wrote since a question, of which an answer may have seen the older ones alone."""
ATTRIBUTING: Final = 0.5
"""Share of its deadline after which a replay looks no further for whose doing a difference is."""
ADVISED: Final = {
    "selection_annotated": "structure that nobody authenticated decides this answer: it has a note",
    "selection_substituted": "structure that nobody authenticated decided this answer: it is "
    "released in the authenticated order",
}
"""Why an answer is released otherwise than it came, by code."""
DUAL: Final = "dual_query"
NAMESPACE: Final = "selection_namespace"
"""Reason code of a call that was given other namespaces, or that names none."""
USER, READ, INFERRED = "user_input", "tool_result", "model_inference"


@dataclass(frozen=True, slots=True)
class Selected:
    """What follows of an answer before it is released."""

    writes: tuple[LabelWrite, ...] = ()
    """Records to store."""
    content: Json = None
    """What is released in its place; None where it is released as it came."""
    reason: Reason | None = None
    """Why."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A write that is under way."""

    at: float
    """When it was asked for."""
    landed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One answer that is replayed."""

    selector: Selector
    mapping: RankedMapping
    result: ToolResult
    ranked: Ranked
    started: float
    last: bool
    """Whether it is not looked at again."""


@dataclass(slots=True)
class _Replica:
    """The ledger of one store as this process has it."""

    selection: SelectionPolicy
    area: LabelSet
    reader: LedgerReader
    ledger: Ledger
    read: int = 0
    """Entries of the store that have been read."""
    last: object = None
    """The newest of them: the store must still have it."""
    lost: bool = False
    """Whether the store no longer has what it had: the ledger has a gap."""
    faithful: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    compared_at: int = -1
    """Version at which the replica was last compared with an answer."""
    recalls: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_as_compared(self) -> bool:
        """Whether everything counts, and nothing was written since the replica was compared."""
        whole = not (self.lost or self.reader.faults or self.lock.locked())
        return whole and self.ledger.uncounted == 0 and self.compared_at == len(self.ledger)


class SelectionReplays:
    """The ledgers and replays of one worker.

    Args:
        stores: of ledgers, marks and explanations, and the servers of graph memories.
        seal: the deployment's key.
        records: audit log and metrics for answers that are not released as they were served.
        apart: runs selectors that hold the interpreter in another process; None uses a thread.
    """

    def __init__(
        self, stores: Stores, seal: Seal, records: Records, apart: RunsElsewhere | None = None
    ) -> None:
        self._apart, self._seal = apart, seal
        self._ledger, self._store, self._asks = stores.ledger, stores.sessions, stores.memories
        self._audit, self._metrics = records.audit, records.metrics
        self._replicas: dict[tuple[str, str], _Replica] = {}
        self._unwritten: set[tuple[str, str]] = set()
        """Ledgers that lack a write of this process: the store could not be told of it."""
        self._flying: dict[tuple[str, str], dict[str, _Flight]] = {}
        """Writes that were let through and have not come back, by ledger and call."""

    async def learn(self, policy: Policy, result: ToolResult) -> Selected:
        """Take what a result says of a store's structure, or judge what it selected.

        Returns:
            what to store and to release; nothing where the answer stands as it is.
        """
        call = result.call.classified
        selection = _selection_of(policy, call)
        if selection is None or result.is_error:
            self._land(selection, result)
            return Selected()
        ranked = selection.ranks(call.call.tool)
        if ranked is not None:
            return await self._judge(policy, selection, ranked, result)
        await self._write(selection, result)
        self._land(selection, result)
        return Selected()

    def let_through(
        self, policy: Policy, traced: TracedCall, verdict: Verdict, *, granted: bool
    ) -> tuple[TracedCall, Verdict]:
        """Return a call that is let through, with the namespaces that it is to name.

        A write of structure is on record as under way until its result is there.
        """
        selection = _selection_of(policy, traced.classified)
        if selection is None or not verdict.enforced.forwards:
            return traced, verdict
        call = traced.call
        if any(mapping.matches(call.tool) for mapping in selection.structure):
            flying = self._flying.setdefault((call.identity.tenant, selection.store), {})
            # In one step: a large call is judged in a thread.
            for old, flight in list(flying.items()):
                if flight.at < call.at - FLYING:
                    flying.pop(old, None)
            flying[call.id] = _Flight(call.at)
        if granted or selection.namespaces is None:
            return traced, verdict
        return self._kept_apart(selection, selection.namespaces, traced, verdict)

    def _land(self, selection: SelectionPolicy | None, result: ToolResult) -> None:
        """Note that a write is under way no more."""
        if selection is not None:
            call = result.call.call
            flight = self._flying.get((call.identity.tenant, selection.store), {}).pop(
                call.id, None
            )
            if flight is not None:
                flight.landed.set()

    def _kept_apart(
        self,
        selection: SelectionPolicy,
        namespaces: Namespaces,
        traced: TracedCall,
        verdict: Verdict,
    ) -> tuple[TracedCall, Verdict]:
        """Return a call that is let through, with the namespaces that it is to name.

        What does not count is written into an untrusted namespace, and a read reads both.  Where a
        write cannot be kept apart, a person is asked.
        """
        call = traced.call
        try:
            if not namespaces_of.writes(namespaces, call.tool):
                changed = namespaces_of.widened(namespaces, call.tool, call.arguments)
            elif call.server in namespaces.servers or counts(
                selection, writer_of(self._seal, traced, call.at)
            ):
                return traced, verdict
            else:
                changed = namespaces_of.kept_apart(namespaces, call.tool, call.arguments)
        except namespaces_of.NamespaceError as error:
            reason = Reason(NAMESPACE, "", Action.ASK, str(error), remedy="name one namespace")
            reasons = (reason, *verdict.reasons)
            return traced, dataclasses.replace(
                verdict, action=Action.ASK, reasons=reasons, decided_by=()
            )
        if changed is None:
            return traced, verdict
        reason = Reason(NAMESPACE, "", Action.REDACT, "what does not count is kept apart")
        verdict = dataclasses.replace(
            verdict, action=Action.REDACT, reasons=(reason, *verdict.reasons), decided_by=()
        )
        moved = dataclasses.replace(call, arguments=changed)
        classified = dataclasses.replace(traced.classified, call=moved)
        return dataclasses.replace(traced, classified=classified), verdict

    async def explained(self, policy: Policy, traced: TracedCall, verdict: Verdict) -> Verdict:
        """Return a refusal with both orders of the answer that a value in it came from.

        One more round trip, and only where a selection is why.  Never raises: what cannot be told
        changes no verdict.
        """
        try:
            reasons = [
                await self._explained(policy, traced, reason)
                if reason.code in SELECTED_WHY.values()
                else reason
                for reason in verdict.reasons
            ]
        except Exception:  # noqa: BLE001  (the refusal stands, told or not)
            self._metrics.count(ERRORS, "state")
            return verdict
        return dataclasses.replace(verdict, reasons=tuple(reasons))

    async def _explained(self, policy: Policy, traced: TracedCall, reason: Reason) -> Reason:
        for target in (*traced.targets, *traced.guarded):
            attested = target.attestation
            if attested is None or attested.record is None or attested.why != reason.code:
                continue
            record, identity = attested.record, traced.call.identity
            lookup = explanation_lookup(label_sets(policy.limits), identity.tenant, record)
            [raw] = await self._store.look_up(identity, lookup)
            told = read_explanation(self._seal, lookup.area, raw)
            if told is not None:
                return dataclasses.replace(reason, data={**reason.data, "selection": told})
        return reason

    # --- a save ----------------------------------------------------------------------------------

    async def _write(self, selection: SelectionPolicy, result: ToolResult) -> None:
        """Append the structure of a save; where that fails, the ledger has a gap."""
        call = result.call.call
        tenant = call.identity.tenant
        try:
            writer = writer_of(self._seal, result.call, result.at)
            writes = list(changes_of(selection.structure, call.tool, call.arguments, writer))
            if writes:
                area = ledger_set(tenant, selection.store)
                entries = seal_writes(self._seal, area, call.id, writes)
                if self._ledger is None:
                    raise UnreplayedError("ledger_gap")
                await self._ledger.append(tenant, area, entries)
        except Exception:  # noqa: BLE001  (what is not on record makes every later recall untrusted)
            self._unwritten.add((tenant, selection.store))
            self._metrics.count(SELECTIONS, "unwritten")

    # --- a recall --------------------------------------------------------------------------------

    async def _judge(
        self,
        policy: Policy,
        selection: SelectionPolicy,
        mapping: RankedMapping,
        result: ToolResult,
    ) -> Selected:
        content = result.content
        found, reason, unreplayed = None, "unread_answer", ""
        try:
            ranked = read_ranked(mapping, content)
        except UnreplayedError:
            ranked = Ranked((content,), ())
        else:
            if await self._is_unchanged(selection, mapping, result, ranked):
                self._metrics.count(SELECTIONS, "stands")
                return Selected()
            found, reason = await self._in_time(
                self._replayed(selection, mapping, result, ranked), selection.deadline
            )
            namespaces = selection.namespaces
            if found is None and namespaces is not None:
                self._metrics.count(SELECTIONS, reason)
                asked, unreplayed = self._asked_twice(namespaces, mapping, result, ranked), reason
                found, reason = await self._in_time(asked, namespaces.deadline)
        if found is not None and not found.diverged and len(ranked.items) <= selection.top_k:
            self._metrics.count(SELECTIONS, reason)
            return Selected()
        told = _told(selection, found, reason, unreplayed)
        replica = self._replicas.get((result.call.call.identity.tenant, selection.store))
        if replica is not None and replica.ledger.ignored:
            told["ignored_edges"] = replica.ledger.ignored
        instead, why = None, None
        if (found is None or found.diverged) and policy.mode is Mode.ENFORCE:
            instead, why, found, ranked = _advised(selection, mapping, result, found, ranked, told)
        items: Sequence[Json] = (content,)
        if found is not None:
            items = _falling(ranked, found, selection)
        self._tell(result, reason, told)
        writes: list[LabelWrite] = []
        if items:
            sets, seconds = label_sets(policy.limits), policy.limits.session_idle
            channel = Channel.UNREPLAYED if found is None else Channel.SELECTION
            writes = selected_writes(self._seal, sets, result, items, channel, seconds)
            writes.append(explanation_write(self._seal, sets, result, told))
        return Selected(tuple(writes), instead, why)

    async def _is_unchanged(
        self,
        selection: SelectionPolicy,
        mapping: RankedMapping,
        result: ToolResult,
        ranked: Ranked,
    ) -> bool:
        """Return whether an answer stands without a replay.

        That is so where everything counts, and the ledger has gained nothing since the replica was
        compared.  Whatever else is the case, and every eighth answer, is for :meth:`_replayed`.
        """
        key = (result.call.call.identity.tenant, selection.store)
        replica = self._replicas.get(key)
        if replica is None or replica.selection is not selection or key in self._unwritten:
            return False
        simple = mapping.unless is None and len(ranked.items) <= selection.top_k
        due = not (replica.recalls + 1) % CHECKED
        if self._ledger is None or not simple or due or not replica.is_as_compared:
            return False
        try:
            async with (
                asyncio.timeout(selection.deadline),
                aclosing(self._ledger.read(key[0], replica.area, replica.read - 1)) as chunks,
            ):
                gained: list[object] = await anext(chunks, [])
            _known(replica.ledger, ranked.names)
            grounding_of(mapping, result, replica.ledger)
        except (GuardError, TimeoutError):
            return False
        if gained != [replica.last] or not replica.is_as_compared:
            return False
        replica.recalls += 1
        return True

    async def _asked_twice(
        self, namespaces: Namespaces, mapping: RankedMapping, result: ToolResult, ranked: Ranked
    ) -> Comparison:
        """Return an answer beside the store's own to the same question without what does not count.

        Raises:
            UnreplayedError: the store cannot be asked, or its answer cannot be read.
        """
        call = result.call.call
        try:
            arguments = namespaces_of.narrowed(namespaces, call.tool, call.arguments)
        except namespaces_of.NamespaceError as error:
            raise UnreplayedError("unasked") from error
        places: tuple[int | None, ...] = tuple(range(len(ranked.names)))
        if arguments == call.arguments:
            return Comparison(ranked.names, ranked.names, places, DUAL)
        if arguments is None:
            return Comparison(ranked.names, (), (None,) * len(places), DUAL)
        if self._asks is None:
            raise UnreplayedError("unasked")
        try:
            answer = await self._asks(call, namespaces.path, arguments)
        except OSError as error:
            raise UnreplayedError("unasked") from error
        alone = read_ranked(mapping, answer, may_be_empty=True)
        return Comparison(ranked.names, alone.names, alone.places_of(ranked), DUAL, instead=answer)

    async def _in_time(
        self, work: Coroutine[Any, Any, Comparison], seconds: float
    ) -> tuple[Comparison | None, str]:
        """Return a comparison, or None and why there is none."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(_end)
        try:
            # A ledger that is still being read is there for the next recall.
            found = await asyncio.wait_for(asyncio.shield(task), seconds)
        except UnreplayedError as error:
            return None, str(error)
        except TimeoutError:
            return None, "late"
        except ValueError:
            return None, "unrankable"
        except Exception:  # noqa: BLE001  (whatever failed: the answer vouches for nothing)
            return None, "error"
        return found, "diverged" if found.diverged else "stands"

    def _tell(self, result: ToolResult, reason: str, told: dict[str, Json]) -> None:
        """Count an answer, and write a line about one that does not stand as it was served.

        What cannot be written changes nothing: the values are marked whatever the log says.
        """
        self._metrics.count(SELECTIONS, reason)
        if reason == "stands":
            return
        call = result.call.call
        fields: dict[str, Json] = {
            "tool": call.tool,
            "call_id": call.id,
            "principal": call.identity.principal,
            **told,
        }
        try:
            self._audit.event("selection", fields)
        except AuditError:
            self._metrics.count(ERRORS, "audit")

    async def _replayed(
        self,
        selection: SelectionPolicy,
        mapping: RankedMapping,
        result: ToolResult,
        ranked: Ranked,
    ) -> Comparison:
        """Return the replay of an answer.

        Raises:
            UnreplayedError: it cannot be replayed.
        """
        if not selection.selector:
            raise UnreplayedError("no_replica")
        if mapping.unless is not None and _is_given(mapping.unless, result):
            raise UnreplayedError("other_ranking")
        key = (result.call.call.identity.tenant, selection.store)
        flying = list(self._flying.get(key, {}).values())
        try:
            return await self._once(selection, mapping, result, ranked, last=not flying)
        except UnreplayedError as error:
            if not flying or str(error) != "unfaithful":
                raise
        # The store may have had a write before its answer was made, and its result not yet ours.
        landing = [asyncio.ensure_future(flight.landed.wait()) for flight in flying]
        _, waiting = await asyncio.wait(landing, timeout=LANDING * selection.deadline)
        for one in waiting:
            one.cancel()
        return await self._once(selection, mapping, result, ranked, last=True)

    async def _once(
        self,
        selection: SelectionPolicy,
        mapping: RankedMapping,
        result: ToolResult,
        ranked: Ranked,
        *,
        last: bool,
    ) -> Comparison:
        """Return the replay of an answer on what the ledger has now.

        Raises:
            UnreplayedError: it cannot be replayed.
        """
        started = time.monotonic()
        tenant = result.call.call.identity.tenant
        replica = self._replica(tenant, selection)
        async with replica.lock:
            await self._sync(tenant, replica)
            if (
                replica.lost
                or replica.reader.faults
                or (tenant, selection.store) in self._unwritten
            ):
                raise UnreplayedError("ledger_gap")
            replica.recalls += 1
            selector = discover_selectors()[selection.selector]()
            if self._apart is not None and isinstance(selector, CommunitySelector):
                selector = _Elsewhere(selector, self._apart, selection.deadline)
            asked = _Asked(selector, mapping, result, ranked, started, last)
            return await asyncio.to_thread(self._compare, replica, asked)

    def _replica(self, tenant: str, selection: SelectionPolicy) -> _Replica:
        key = (tenant, selection.store)
        found = self._replicas.get(key)
        if found is None or found.selection is not selection:
            # None yet, or as another policy counted.
            area = ledger_set(tenant, selection.store)
            ledger = Ledger(
                lambda writer: counts(selection, writer), duplicates_add=selection.duplicates_add
            )
            found = _Replica(selection, area, LedgerReader(self._seal, area), ledger)
            self._replicas[key] = found
        return found

    async def _sync(self, tenant: str, replica: _Replica) -> None:
        """Read what the ledger has gained.

        Raises:
            StateError: the store did not answer.
        """
        if self._ledger is None:
            raise UnreplayedError("ledger_gap")
        start = max(0, replica.read - 1)
        first = replica.read > 0
        async for chunk in self._ledger.read(tenant, replica.area, start):
            entries = chunk
            if first:
                if entries[0] != replica.last:
                    replica.lost = True
                    return
                entries, first = entries[1:], False
            if entries:
                # Never on the event loop: one write more can have the whole of it folded again.
                await asyncio.to_thread(_extend, replica, entries)
        if first:
            replica.lost = True

    def _compare(self, replica: _Replica, asked: _Asked) -> Comparison:
        """Replay an answer on both graphs; runs in a thread, under the replica's lock."""
        ledger, selection, selector = replica.ledger, replica.selection, asked.selector
        names = asked.ranked.names
        if not selector.reads_structure:
            if ledger.taken:
                # No edge changes its order, but what is gone stands before nothing any more.
                raise UnreplayedError("items_gone")
            return _as_served(asked.ranked)
        known = _known(ledger, names)
        numbers, top = list(map(ledger.root, known)), len(known)
        full, authentic = ledger.full, ledger.authentic
        grounding = grounding_of(asked.mapping, asked.result, ledger)
        recall = grounding.recall(top, ledger.root)
        until = asked.started + ATTRIBUTING * selection.deadline
        unmerged = _unmerged(ledger, asked.mapping, grounding, known)
        found = replay(selector, full, authentic, recall, numbers, compare=True, unmerged=unmerged)
        if not found.faithful:
            since = ledger.calls_since(asked.result.call.call.at, BEFORE)
            late = takewhile(lambda _: time.monotonic() < until, since)
            found = _before_writes(selector, ledger, late, found, unmerged, grounding, known)
        # One that is not the store's is looked at again with every answer.
        replica.compared_at = len(ledger) if found.faithful else -1
        self._count(selection, replica, found, last=asked.last)
        authenticated = tuple(ledger.names[number] for number in found.authentic)
        compared = Comparison(names, authenticated, found.places, selector.name, len(ledger))
        if not compared.diverged:
            return compared
        writer = whose_structure(
            selector, ledger, grounding, compared, lambda: time.monotonic() < until
        )
        return dataclasses.replace(compared, writer=writer)

    def _count(
        self, selection: SelectionPolicy, replica: _Replica, found: SelectionReplay, *, last: bool
    ) -> None:
        recent = replica.faithful
        if not found.faithful and not last:
            raise UnreplayedError("unfaithful")
        recent.append(found.faithful)
        share = sum(recent) / len(recent)
        self._metrics.set(SELECTION_FIDELITY, share, selection.store)
        if not found.faithful:
            raise UnreplayedError("unfaithful")
        if len(recent) >= ENOUGH and share < selection.fidelity:
            raise UnreplayedError("fidelity")


def _selection_of(policy: Policy, call: ClassifiedCall) -> SelectionPolicy | None:
    """Return what the policy says of the selection of the store that a call is about."""
    mapping = call.mapping
    store = call.saves_to or (mapping.store if mapping is not None else "")
    return policy.selections.get(store)


def _told(
    selection: SelectionPolicy, found: Comparison | None, reason: str, unreplayed: str
) -> dict[str, Json]:
    """Return what is told of an answer, and why it was not replayed where the store was asked."""
    told: dict[str, Json] = {"store": selection.store, "reason": reason}
    if unreplayed:
        told["replay"] = unreplayed
    return told if found is None else told | found.document()


def _advised(
    selection: SelectionPolicy,
    mapping: RankedMapping,
    result: ToolResult,
    found: Comparison | None,
    ranked: Ranked,
    told: dict[str, Json],
) -> tuple[Json, Reason | None, Comparison | None, Ranked]:
    """Return what is released in the place of an answer and why, and what it is compared as then.

    An answer whose items cannot be put into another order is given the note alone.
    """
    if not (selection.annotates or selection.substitutes) or result.is_report:
        return None, None, found, ranked
    content, code = result.content, "selection_annotated"
    if selection.substitutes and found is not None:
        other = _substitute(mapping, content, found, ranked)
        if other is not None:
            code, (content, found, ranked) = "selection_substituted", other
    note = note_on(told, substituted=code == "selection_substituted")
    noted = annotated(content, note, told)
    if noted is None and content is result.content:
        return None, None, found, ranked
    reason = Reason(code, "", Action.REDACT, ADVISED[code], {"store": selection.store})
    return content if noted is None else noted, reason, found, ranked


def _substitute(
    mapping: RankedMapping, content: Json, found: Comparison, ranked: Ranked
) -> tuple[Json, Comparison, Ranked] | None:
    """Return the authenticated answer, what it is compared as, and its items; None: there is none.

    It is the store's own where that was asked, else the served items in another order.
    """
    if isinstance(found.instead, dict) and isinstance(content, dict):
        ranked = read_ranked(mapping, found.instead, may_be_empty=True)
        places: tuple[int | None, ...] = tuple(range(len(ranked.names)))
        return found.instead, dataclasses.replace(found, served=ranked.names, places=places), ranked
    other = reordered(content, mapping, found.order) if found.order else None
    if other is None:
        return None
    ranked, places = ranked.taken(found.order), tuple(found.places[at] for at in found.order)
    return other, dataclasses.replace(found, served=ranked.names, places=places), ranked


def _end(task: asyncio.Future[Comparison]) -> None:
    """Take note of how a replay ended that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def _extend(replica: _Replica, entries: Sequence[object]) -> None:
    replica.ledger.extend(replica.reader.read(entries))
    replica.read += len(entries)
    replica.last = entries[-1]


def _falling(ranked: Ranked, found: Comparison, selection: SelectionPolicy) -> list[Json]:
    """Return the items that vouch for nothing."""
    all_of_them, stands = selection.asks_always and found.diverged, found.stands
    return [
        item
        for place, item in enumerate(ranked.items)
        if all_of_them or place >= selection.top_k or not stands[place]
    ]


def counts(selection: SelectionPolicy, writer: Writer) -> bool:
    """Return whether a writer's structure is authenticated under a policy."""
    if selection.principals and writer.principal not in selection.principals:
        return False
    if selection.sources and writer.source not in selection.sources:
        return False
    return writer.label >= selection.label


def writer_of(seal: Seal, call: TracedCall, at: float) -> Writer:
    """Return through which channel a save came: who, and what its text was made of.

    All unauthenticated traffic of a listener is one principal, and that has no name here.
    """
    identity, saved = call.call.identity, call.saved
    label = saved.label if saved is not None else Integrity.UNTRUSTED
    source = READ if label is Integrity.UNTRUSTED else INFERRED
    if saved is not None and saved.prompted:
        source = USER
    known = identity.principal_rung is not PrincipalRung.ANONYMOUS
    return Writer(
        identity.principal if known else "", seal.session(identity), call.index, at, source, label
    )


def changes_of(
    mappings: Sequence[StructureMapping], tool: str, arguments: Json, writer: Writer
) -> Iterator[Write]:
    """Yield the structural writes of a call, in the order of the mappings."""
    for mapping in mappings:
        if mapping.matches(tool):
            for _, value in mapping.each.find(arguments):
                yield from _changes(mapping, value, writer)


def _changes(mapping: StructureMapping, value: Json, writer: Writer) -> Iterator[Write]:
    members = value if isinstance(value, dict) else {}
    ones = _names(members.get(mapping.one)) if mapping.one else _names(value)
    twos = _names(members.get(mapping.two)) if mapping.two else [""]
    weight = members.get(mapping.weight, 1.0) if mapping.weight else 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        weight = float("nan")
    for one in ones:
        for two in twos:
            yield Write(
                Change[mapping.change.upper()],
                one,
                two,
                "".join(_names(members.get(mapping.relation))) if mapping.relation else "",
                float(weight),
                mapping.item,
                writer,
                tuple(_names(members.get(mapping.parents))) if mapping.parents else (),
            )


def _names(value: Json) -> list[str]:
    """Return the names in a member: one, or a list of them."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]


def _is_given(query: PathQuery, result: ToolResult) -> bool:
    arguments = dict(result.call.call.arguments)
    return any(value not in {None, ""} for _, value in query.find(arguments))


def _as_served(ranked: Ranked) -> Comparison:
    """Return the comparison of an answer that nothing uncounted can have changed."""
    return Comparison(ranked.names, ranked.names, tuple(range(len(ranked.names))))


def _known(ledger: Ledger, names: Sequence[str]) -> list[int]:
    """Return the nodes of the items of an answer, as they were before any merge.

    Raises:
        UnreplayedError: one is on no record.
    """
    found = [ledger.number(name) for name in names]
    if None in found:
        raise UnreplayedError("unknown_item")
    return [number for number in found if number is not None]


def _unmerged(
    ledger: Ledger, mapping: RankedMapping, grounding: Grounding, known: Sequence[int]
) -> tuple[Recall, list[int]]:
    """Return the recall and its items by the nodes of the authenticated graph.

    What strangers merged or named moves neither where the authenticated walk begins nor its items.

    Raises:
        UnreplayedError: nothing that counts names a node that is asked about, or the server told
            nodes of strangers, who may then have displaced others.
    """
    own = grounding.seeds(ledger.is_authentic)
    if not own or (mapping.seeds_in_result and len(own) < len(grounding.seeds())):
        raise UnreplayedError("no_grounding")

    def root(node: int) -> int:
        return ledger.root(node, authentic=True)

    return grounding.recall(len(known), root, ledger.is_authentic), list(map(root, known))


def _before_writes(  # noqa: PLR0913  (an answer, and the graph that it may come from)
    selector: Selector,
    ledger: Ledger,
    calls: Iterable[list[int]],
    found: SelectionReplay,
    unmerged: tuple[Recall, Sequence[int]],
    grounding: Grounding,
    known: Sequence[int],
) -> SelectionReplay:
    """Return the comparison with the graph before some of the writes since a question, if one is.

    Args:
        selector: of the store.
        ledger: its structure.
        calls: writes of each call since then, the newest first.
        found: the comparison with the graph as it is.
        unmerged: as for :func:`replay`.
        grounding: what was asked.
        known: the items of the answer, by nodes as they were before any merge.

    Raises:
        ValueError: the selector cannot rank it.
    """
    late: list[int] = []
    for numbers in calls:
        late += numbers
        gone = set(late)
        full, root = ledger.without(late)
        recall = grounding.recall(len(known), root, partial(_is_there, ledger, gone))
        before = replay(
            selector, full, ledger.authentic, recall, list(map(root, known)), unmerged=unmerged
        )
        if before.faithful:
            return before
    return found


def _is_there(ledger: Ledger, gone: set[int], node: int) -> bool:
    """Return whether a node was named before some writes that are left out."""
    return ledger.introduced(node) not in gone


def grounding_of(mapping: RankedMapping, result: ToolResult, ledger: Ledger) -> Grounding:
    """Return what the selection of an answer begins with.

    Raises:
        UnreplayedError: nothing names a node of the ledger, or nobody can say what does.
    """
    if mapping.seeds is None:
        raise UnreplayedError("no_grounding")
    documents: Sequence[Json] = [dict(result.call.call.arguments)]
    if mapping.seeds_in_result:
        documents = documents_in(result.content)
    texts = [
        name
        for root in documents
        for _, value in mapping.seeds.find(root)
        for name in _names(value)
    ]
    found = Grounding(ledger, tuple(texts), mapping.names_in_text)
    if not found.seeds():
        raise UnreplayedError("no_grounding")
    return found


class _Elsewhere(CommunitySelector):
    """A selector whose communities another process finds; used in a thread beside the loop.

    Args:
        selector: of the store.
        apart: runs it there.
        seconds: longest wait.
    """

    def __init__(self, selector: CommunitySelector, apart: RunsElsewhere, seconds: float) -> None:
        self.name = selector.name  # type: ignore[misc]
        self._selector, self._run, self._seconds = selector, apart, seconds
        self._loop = asyncio.get_running_loop()

    def membership(self, graph: Graph) -> np.ndarray:
        """Return the number of each node's community.

        Raises:
            TimeoutError: it took too long.
        """
        bare = Graph(graph.size, graph.items, graph.source, graph.target, graph.weight)
        work = asyncio.run_coroutine_threadsafe(self._of(bare), self._loop)
        found: np.ndarray = work.result(self._seconds)
        return found

    @property
    def key(self) -> tuple[object, ...]:
        """As the selector's own."""
        return self._selector.key

    async def _of(self, graph: Graph) -> np.ndarray:
        found: np.ndarray = await self._run(self._selector.membership, graph)
        return found
