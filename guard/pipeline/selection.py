"""Selections of graph memories: what is written to a ledger, and what a recall is worth.

A save into a store with a ``selection`` appends its structure to the store's ledger, with the label
of what it was made of.  An answer of such a store is replayed on the part that counts before it is
released.  Items before their authenticated place leave a record with each of their values.  A later
call that names such a value finds it unknown (docs/explanation/graph-memory.md).
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import aclosing, asynccontextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.core.metrics import SELECTION_FIDELITY, SELECTIONS, Metrics
from guard.core.policy import Action, Mode, Policy, Reason, Verdict, blocked_for
from guard.extensions.graph_memory.answers import Ranked, read_ranked
from guard.extensions.graph_memory.comparison import Comparison, whose_structure, writer_document
from guard.extensions.graph_memory.ledger import (
    Ledger,
    LedgerReader,
    Writer,
    ledger_set,
    seal_writes,
)
from guard.extensions.graph_memory.replay import SelectionReplay, UnreplayedError, replay
from guard.pipeline.selection_answers import (
    Selected,
    SelectionRecords,
    ask_again,
    changed_answer,
    keep_apart,
    report_on,
    unvouched,
)
from guard.pipeline.selection_replay import (
    Answer,
    Flight,
    Replica,
    as_served,
    before_writes,
    changes_of,
    counts,
    derivations_of,
    extend_replica,
    grounding_of,
    is_given,
    known_nodes,
    partition_keys,
    reader_mark,
    selector_of,
    unmerged_recall,
    writer_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from guard.core.calls import ClassifiedCall, ToolResult, TracedCall
    from guard.core.mappings import (
        RankedMapping,
        SelectionPolicy,
    )
    from guard.core.model import Json
    from guard.core.ports import AuditLog
    from guard.pipeline.large_work import RunsElsewhere
    from guard.pipeline.stores import Stores
    from guard.provenance.seal import Seal

ENOUGH: Final = 20
"""Answers from which that share counts."""
CHECKED: Final = 8
"""Interval of comparisons: one in this many recalls without untrusted structure is compared with
the replica."""
FLYING: Final = 30.0
"""Seconds for which a write that has not come back may still be under way."""
LANDING: Final = 0.5
"""Share of its deadline for which a replay waits for writes that are under way."""
DERIVED: Final = "derived_structure"
"""Reason of an answer whose store derived structure from content that does not count."""
BEFORE: Final = 8
"""Calls that wrote since a question, of which an answer may have seen the older ones alone."""
ATTRIBUTING: Final = 0.5
"""Share of its deadline after which a replay looks no further for whose doing a difference is."""


class SelectionReplays:
    """The ledgers and replays of one worker.

    Args:
        stores: of ledgers, marks and explanations, and the servers of graph memories.
        seal: the deployment's key.
        audit: gets a line for each answer that is not released as it was served.
        metrics: counts answers.
        apart: runs selectors that hold the interpreter in another process; None uses a thread.
    """

    def __init__(
        self,
        stores: Stores,
        seal: Seal,
        audit: AuditLog,
        metrics: Metrics,
        apart: RunsElsewhere | None = None,
    ) -> None:
        self._apart, self._seal = apart, seal
        self._ledger, self._store, self._asks = stores.ledger, stores.sessions, stores.memories
        self._metrics = metrics
        self.records = SelectionRecords(self._store, seal, audit, metrics)
        """Marks and explanations of answers."""
        self._replicas: dict[tuple[str, str], Replica] = {}
        self._unwritten: set[tuple[str, str]] = set()
        """Ledgers that lack a write of this process: the store could not be told of it."""
        self._flying: dict[tuple[str, str], dict[str, Flight]] = {}
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
        if any(one.matches(call.call.tool) for one in selection.reads):
            return await self._judge_derived(policy, selection, result)
        await self._write(selection, result)
        self._land(selection, result)
        return Selected()

    async def record_derivation(
        self, policy: Policy, traced: TracedCall, verdict: Verdict
    ) -> Verdict:
        """Record a write from which the store derives structure, before it is forwarded.

        A write whose answer never arrives is on record too.  What cannot be recorded is blocked.
        """
        selection = _selection_of(policy, traced.classified)
        if selection is None or not verdict.enforced.forwards:
            return verdict
        call = traced.call
        writes = derivations_of(self._seal, selection, traced)
        if not writes:
            return verdict
        tenant = call.identity.tenant
        area = ledger_set(tenant, selection.store)
        try:
            if self._ledger is None:
                raise UnreplayedError("ledger_gap")
            entries = seal_writes(self._seal, area, f"derive {call.id}", writes)
            await self._ledger.append(tenant, area, entries)
        except Exception:  # noqa: BLE001  (structure of unknown origin would vouch later)
            self._metrics.count(SELECTIONS, "unwritten")
            reason = Reason(
                "structure_unrecorded",
                "",
                Action.BLOCK,
                "the origin of the structure that this memory derives could not be recorded",
                remedy="retry later",
            )
            return blocked_for(policy, reason)
        return verdict

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
            flying[call.id] = Flight(call.at)
        if granted or selection.namespaces is None:
            return traced, verdict
        return keep_apart(self._seal, selection, selection.namespaces, traced, verdict)

    def _land(self, selection: SelectionPolicy | None, result: ToolResult) -> None:
        """Note that a write is under way no more."""
        if selection is not None:
            call = result.call.call
            flight = self._flying.get((call.identity.tenant, selection.store), {}).pop(
                call.id, None
            )
            if flight is not None:
                flight.landed.set()

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

    async def _judge_derived(
        self, policy: Policy, selection: SelectionPolicy, result: ToolResult
    ) -> Selected:
        """Judge an answer without a ranking: only its store's own structure can be untrusted."""
        _, reason = await self._in_time(
            self._on_derived(selection, result), selection.deadline, "stands"
        )
        if reason == "stands":
            return Selected()
        report = self._report(selection, result, None, reason, "")
        self.records.report(result, reason, report)
        return Selected(
            self.records.marks(policy, result, [result.content], report, replayed=False)
        )

    async def _on_derived(self, selection: SelectionPolicy, result: ToolResult) -> None:
        """Check that a store derived no structure from content that does not count.

        Raises:
            UnreplayedError: it did, or nobody can say.
        """
        async with self._synced(selection, result):
            return

    @asynccontextmanager
    async def _synced(
        self, selection: SelectionPolicy, result: ToolResult
    ) -> AsyncIterator[Replica]:
        """Hold the replica of a store, with all that the ledger has now.

        Raises:
            UnreplayedError: the ledger lacks a write, or structure is derived from what does not
                count.
            StateError: the store did not answer.
        """
        tenant = result.call.call.identity.tenant
        replica = self._replica(tenant, selection)
        async with replica.lock:
            await self._sync(tenant, replica)
            unwritten = (tenant, selection.store) in self._unwritten
            if replica.lost or replica.reader.faults or unwritten:
                raise UnreplayedError("ledger_gap")
            if self._deriver(replica, result) is not None:
                raise UnreplayedError(DERIVED)
            yield replica

    def _deriver(self, replica: Replica, result: ToolResult) -> Writer | None:
        """Return the writer from whose content the store derived structure of an answer.

        An agent's own content counts for itself where the policy names no principals.
        """
        selection, call = replica.selection, result.call
        if not selection.derives:
            return None
        asked = call.call
        keys = partition_keys(selection.reads, asked.tool, dict(asked.arguments))
        mark = "" if selection.principals else reader_mark(self._seal, call)
        return replica.ledger.derived(keys or (), mark)

    def _report(
        self,
        selection: SelectionPolicy,
        result: ToolResult,
        found: Comparison | None,
        reason: str,
        unreplayed: str,
    ) -> dict[str, Json]:
        report = report_on(selection, found, reason, unreplayed)
        replica = self._replicas.get((result.call.call.identity.tenant, selection.store))
        if replica is not None and replica.ledger.ignored:
            report["ignored_edges"] = replica.ledger.ignored
        if replica is not None and reason == DERIVED:
            report["writer"] = writer_document(self._deriver(replica, result))
        return report

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
                asked, unreplayed = (
                    ask_again(self._asks, namespaces, mapping, result, ranked),
                    reason,
                )
                found, reason = await self._in_time(asked, namespaces.deadline)
        if found is not None and not found.diverged and len(ranked.items) <= selection.top_k:
            self._metrics.count(SELECTIONS, reason)
            return Selected()
        report = self._report(selection, result, found, reason, unreplayed)
        instead, why = None, None
        if (found is None or found.diverged) and policy.mode is Mode.ENFORCE:
            instead, why, found, ranked = changed_answer(
                selection, mapping, result, found, ranked, report
            )
        items = [content] if found is None else unvouched(ranked, found, selection)
        self.records.report(result, reason, report)
        writes = self.records.marks(policy, result, items, report, replayed=found is not None)
        return Selected(writes, instead, why)

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
            known_nodes(replica.ledger, ranked.names)
            grounding_of(mapping, result, replica.ledger)
        except (GuardError, TimeoutError):
            return False
        if gained != [replica.last] or not replica.is_as_compared:
            return False
        if self._deriver(replica, result) is not None:
            return False
        replica.recalls += 1
        return True

    async def _in_time(
        self,
        work: Coroutine[Any, Any, Comparison | None],
        seconds: float,
        without: str = "error",
    ) -> tuple[Comparison | None, str]:
        """Return a comparison, or None and why there is none.

        Args:
            work: compares; a check that compares nothing returns None.
            seconds: time that it may take.
            without: reason for such a check that succeeded.
        """
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
        if found is None:
            return None, without
        return found, "diverged" if found.diverged else "stands"

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
        if mapping.unless is not None and is_given(mapping.unless, result):
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
        async with self._synced(selection, result) as replica:
            replica.recalls += 1
            selector = selector_of(selection, self._apart)
            asked = Answer(selector, mapping, result, ranked, started, last)
            return await asyncio.to_thread(self._compare, replica, asked)

    def _replica(self, tenant: str, selection: SelectionPolicy) -> Replica:
        key = (tenant, selection.store)
        found = self._replicas.get(key)
        if found is None or found.selection is not selection:
            # None yet, or as another policy counted.
            area = ledger_set(tenant, selection.store)
            ledger = Ledger(
                lambda writer: counts(selection, writer), duplicates_add=selection.duplicates_add
            )
            found = Replica(selection, area, LedgerReader(self._seal, area), ledger)
            self._replicas[key] = found
        return found

    async def _sync(self, tenant: str, replica: Replica) -> None:
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
                await asyncio.to_thread(extend_replica, replica, entries)
        if first:
            replica.lost = True

    def _compare(self, replica: Replica, asked: Answer) -> Comparison:
        """Replay an answer on both graphs; runs in a thread, under the replica's lock."""
        ledger, selection, selector = replica.ledger, replica.selection, asked.selector
        names = asked.ranked.names
        if not selector.reads_structure:
            if ledger.taken:
                # No edge changes its order, but what is gone stands before nothing any more.
                raise UnreplayedError("items_gone")
            return as_served(asked.ranked)
        known = known_nodes(ledger, names)
        numbers, top = list(map(ledger.root, known)), len(known)
        full, authentic = ledger.full, ledger.authentic
        grounding = grounding_of(asked.mapping, asked.result, ledger)
        recall = grounding.recall(top, ledger.root)
        until = asked.started + ATTRIBUTING * selection.deadline
        unmerged = unmerged_recall(ledger, asked.mapping, grounding, known)
        found = replay(selector, full, authentic, recall, numbers, unmerged=unmerged)
        if not found.faithful:
            since = ledger.calls_since(asked.result.call.call.at, BEFORE)
            late = takewhile(lambda _: time.monotonic() < until, since)
            found = before_writes(selector, ledger, late, found, unmerged, grounding, known)
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
        self, selection: SelectionPolicy, replica: Replica, found: SelectionReplay, *, last: bool
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


def _end(task: asyncio.Future[Comparison | None]) -> None:
    """Take note of how a replay ended that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
