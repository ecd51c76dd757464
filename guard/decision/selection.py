"""Selections of graph memories: what is written to a ledger, and what a recall is worth.

A save into a store with a ``selection`` appends its structure to the store's ledger, with the label
of what it was made of.  An answer of such a store is replayed on the part that counts before it is
released; items that stand before their authenticated place leave a record with each of their
values, and a later call that names one finds it unknown (docs/graph-memory.md).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.errors import AuditError, GuardError
from guard.core.labels import Channel
from guard.core.metrics import ERRORS, SELECTION_FIDELITY, SELECTIONS
from guard.core.model import Integrity, PrincipalRung
from guard.graph_memory.graph import Recall
from guard.graph_memory.grounding import mentioned
from guard.graph_memory.ledger import (
    Change,
    Ledger,
    LedgerReader,
    Write,
    Writer,
    ledger_set,
    seal_writes,
)
from guard.graph_memory.replay import Replay, replay
from guard.graph_memory.selectors import discover_selectors
from guard.provenance.label_sets import label_sets
from guard.provenance.result_documents import Blocks, parsed, roots_of
from guard.provenance.selected_values import selected_writes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.calls import ToolResult, TracedCall
    from guard.core.labels import LabelSet, LabelWrite
    from guard.core.mappings import (
        PathQuery,
        RankedMapping,
        SelectionPolicy,
        StructureMapping,
    )
    from guard.core.metrics import Metrics
    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.core.ports import AuditLog, LedgerStore
    from guard.graph_memory.selectors import Selector
    from guard.provenance.seal import Seal

RECENT: Final = 100
"""Answers over which the share that the replica made alike is taken."""
ENOUGH: Final = 20
"""Answers from which that share counts."""
CHECKED: Final = 8
"""Of recalls without untrusted structure, every how many the replica is compared."""
IN_THREAD: Final = 64
"""Writes from which a ledger is extended in a thread."""
ATTRIBUTED: Final = 32
"""Writers of whom it is tried whether their structure alone made the difference."""
USER, READ, INFERRED = "user_input", "tool_result", "model_inference"


class UnreplayedError(GuardError):
    """A selection cannot be replayed; its text is the reason, from a closed set."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """An answer as it was read: its items, best first, and the names of their nodes."""

    items: tuple[Json, ...]
    names: tuple[str, ...]


_Judged: TypeAlias = "tuple[Replay, dict[str, Json] | None]"


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


class SelectionReplays:
    """The ledgers and replays of one worker.

    Args:
        ledger: where the ledgers lie.
        seal: the deployment's key.
        audit: told of every answer that does not stand as it was served.
        metrics: counted.
    """

    def __init__(
        self, ledger: LedgerStore | None, seal: Seal, audit: AuditLog, metrics: Metrics
    ) -> None:
        self._ledger, self._seal, self._audit, self._metrics = ledger, seal, audit, metrics
        self._replicas: dict[tuple[str, str], _Replica] = {}
        self._unwritten: set[tuple[str, str]] = set()
        """Ledgers that lack a write of this process: the store could not be told of it."""

    async def learn(self, policy: Policy, result: ToolResult) -> list[LabelWrite]:
        """Take what a result says of a store's structure, or judge what it selected.

        Returns:
            records to store before the answer is released; empty where it stands as it is.
        """
        call = result.call.classified
        mapping = call.mapping
        store = call.saves_to or (mapping.store if mapping is not None else "")
        selection = policy.selections.get(store)
        if selection is None or result.is_error:
            return []
        ranked = selection.ranks(call.call.tool)
        if ranked is not None:
            return await self._judge(policy, selection, ranked, result)
        await self._write(selection, result)
        return []

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
    ) -> list[LabelWrite]:
        items: Sequence[Json] = (result.content,)
        channel, reason = Channel.UNREPLAYED, "error"
        told: dict[str, Json] | None = None
        try:
            if mapping.unless is not None and _is_given(mapping.unless, result):
                raise UnreplayedError("other_ranking")
            ranked = read_ranked(mapping, result)
            task = asyncio.ensure_future(self._replayed(selection, mapping, result, ranked))
            task.add_done_callback(_end)
            # A ledger that is still being read is there for the next recall.
            found, told = await asyncio.wait_for(asyncio.shield(task), selection.deadline)
        except UnreplayedError as error:
            reason = str(error)
        except TimeoutError:
            reason = "late"
        except ValueError:
            reason = "unrankable"
        except Exception:  # noqa: BLE001  (whatever failed: the answer vouches for nothing)
            reason = "error"
        else:
            channel, reason = Channel.SELECTION, "diverged"
            items = _falling(ranked, found, selection)
        if not items:
            self._metrics.count(SELECTIONS, "stands")
            return []
        self._tell(selection, result, reason, told)
        limits = policy.limits
        return selected_writes(
            self._seal, label_sets(limits), result, items, channel, limits.session_idle
        )

    def _tell(
        self,
        selection: SelectionPolicy,
        result: ToolResult,
        reason: str,
        told: dict[str, Json] | None,
    ) -> None:
        """Count an answer that does not stand as it was served, and write a line about it.

        What cannot be written changes nothing: the values are marked whatever the log says.
        """
        self._metrics.count(SELECTIONS, reason)
        call = result.call.call
        fields: dict[str, Json] = {
            "store": selection.store,
            "reason": reason,
            "tool": call.tool,
            "call_id": call.id,
            "principal": call.identity.principal,
            **(told or {}),
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
    ) -> _Judged:
        """Return the replay of an answer, and what is told of one that diverged.

        Raises:
            UnreplayedError: it cannot be replayed.
        """
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
            return await asyncio.to_thread(
                self._compare, selection, mapping, replica, result, ranked
            )

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
                if len(entries) > IN_THREAD:
                    await asyncio.to_thread(_extend, replica, entries)
                else:
                    _extend(replica, entries)
        if first:
            replica.lost = True

    def _compare(
        self,
        selection: SelectionPolicy,
        mapping: RankedMapping,
        replica: _Replica,
        result: ToolResult,
        ranked: Ranked,
    ) -> _Judged:
        """Replay an answer on both graphs; runs in a thread, under the replica's lock."""
        ledger = replica.ledger
        selector = discover_selectors()[selection.selector]()
        if not selector.reads_structure:
            # What no edge can change needs no replay; the labels of the items are theirs.
            places = tuple(range(len(ranked.names)))
            return Replay(places, places, faithful=True, stands=(True,) * len(places)), None
        served = [ledger.number(name) for name in ranked.names]
        if None in served:
            raise UnreplayedError("unknown_item")
        known = [number for number in served if number is not None]
        numbers = list(map(ledger.root, known))
        full, authentic = ledger.full, ledger.authentic
        seeds = seeds_of(mapping, result, ledger)
        recall = Recall(dict.fromkeys(map(ledger.root, seeds), 1.0), top=len(numbers))
        # A stranger's merge must move neither where the authenticated walk begins nor its items.
        own = [ledger.root(number, authentic=True) for number in known]
        begin = dict.fromkeys((ledger.root(seed, authentic=True) for seed in seeds), 1.0)
        unmerged = Recall(begin, top=len(numbers)), own
        alike = full is authentic
        if alike and replica.compared_at == len(ledger) and replica.recalls % CHECKED:
            found = replay(None, full, authentic, recall, numbers)
        else:
            found = replay(
                selector, full, authentic, recall, numbers, compare=True, unmerged=unmerged
            )
            if not found.faithful:
                found = _before_writes(
                    selector, ledger, result.call.call.at, found, unmerged, recall
                )
            replica.compared_at = len(ledger)
            self._count(selection, replica, found)
        told = None
        if found.diverged:
            told = self._document(replica, ranked, recall, found, selector)
        return found, told

    def _count(self, selection: SelectionPolicy, replica: _Replica, found: Replay) -> None:
        recent = replica.faithful
        recent.append(found.faithful)
        share = sum(recent) / len(recent)
        self._metrics.set(SELECTION_FIDELITY, share, selection.store)
        if not found.faithful:
            raise UnreplayedError("unfaithful")
        if len(recent) >= ENOUGH and share < selection.fidelity:
            raise UnreplayedError("fidelity")

    @staticmethod
    def _document(
        replica: _Replica, ranked: Ranked, recall: Recall, found: Replay, selector: Selector
    ) -> dict[str, Json]:
        """Return both orders, what rose and fell out, and whose structure made the difference."""
        names = replica.ledger.names
        served = set(found.served)
        return {
            "selector": selector.name,
            "ledger": len(replica.ledger),
            "served": list(ranked.names),
            "authenticated": [names[number] for number in found.authentic],
            "rose": [n for n, ok in zip(ranked.names, found.stands, strict=True) if not ok],
            "fell_out": [names[number] for number in found.authentic if number not in served],
            "writer": _writer_document(whose_structure(selector, replica.ledger, recall, found)),
        }


def _end(task: asyncio.Future[_Judged]) -> None:
    """Take note of how a replay ended that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def _extend(replica: _Replica, entries: Sequence[object]) -> None:
    replica.ledger.extend(replica.reader.read(entries))
    replica.read += len(entries)
    replica.last = entries[-1]


def _falling(ranked: Ranked, found: Replay, selection: SelectionPolicy) -> list[Json]:
    """Return the items that vouch for nothing."""
    all_of_them = selection.asks_always and found.diverged
    return [
        item
        for place, item in enumerate(ranked.items)
        if all_of_them or place >= selection.top_k or not found.vouches(place)
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


def _documents(content: Json) -> list[Json]:
    """Return the structures that an answer is: its texts parsed strictly, and its other forms."""
    found: list[Json] = []
    for root in roots_of(content):
        if isinstance(root, Blocks):
            found.append([parsed(text, every_format=False) for text in root.texts])
        elif isinstance(root, str):
            found.append(parsed(root, every_format=False))
        else:
            found.append(root)
    return [document for document in found if isinstance(document, dict | list)]


def read_ranked(mapping: RankedMapping, result: ToolResult) -> Ranked:
    """Return the items of an answer.

    Raises:
        UnreplayedError: they are not where they should be, or two forms of the answer differ.
    """
    found: dict[tuple[str, ...], Ranked] = {}
    for document in _documents(result.content):
        items = tuple(value for _, value in mapping.items.find(document))
        names = tuple(
            name for item in items for _, name in mapping.id.find(item) if isinstance(name, str)
        )
        if len(names) != len(items):
            raise UnreplayedError("unread_answer")
        if items:
            found[names] = Ranked(items, names)
    if len(found) != 1:
        raise UnreplayedError("unread_answer")
    return next(iter(found.values()))


def _before_writes(
    selector: Selector,
    ledger: Ledger,
    asked: float,
    found: Replay,
    unmerged: tuple[Recall, Sequence[int]],
    recall: Recall,
) -> Replay:
    """Return the comparison with the graph before the writes since a time, if that is the same.

    Raises:
        ValueError: the selector cannot rank it.
    """
    late = ledger.since(asked)
    if not late:
        return found
    full = ledger.without(late)
    before = replay(selector, full, ledger.authentic, recall, found.served, unmerged=unmerged)
    return before if before.faithful else found


def seeds_of(mapping: RankedMapping, result: ToolResult, ledger: Ledger) -> list[int]:
    """Return the nodes that the selection begins with, as they were before any merge.

    Raises:
        UnreplayedError: nothing names a node of the ledger.
    """
    documents: Sequence[Json] = [dict(result.call.call.arguments)]
    if mapping.seeds_in_result:
        documents = _documents(result.content)
    texts = [
        name
        for root in documents
        for _, value in mapping.seeds.find(root)
        for name in _names(value)
    ]
    if mapping.names_in_text:
        numbers = [number for text in texts for number in mentioned(ledger, text)]
    else:
        numbers = [number for name in texts if (number := ledger.number(name)) is not None]
    if not numbers:
        raise UnreplayedError("no_grounding")
    return numbers


def whose_structure(
    selector: Selector, ledger: Ledger, recall: Recall, found: Replay
) -> Writer | None:
    """Return the writer whose edges, removed alone, put the authenticated item first again."""
    for writer, numbers in list(ledger.strangers().items())[:ATTRIBUTED]:
        try:
            order = selector.rank(ledger.without(numbers), recall).items
        except ValueError:
            continue
        if order[:1] == found.authentic[:1]:
            return writer
    return None


def _writer_document(writer: Writer | None) -> Json:
    if writer is None:
        return None
    return {
        "principal": writer.principal,
        "session": writer.session.hex(),
        "call": writer.call,
        "at": writer.at,
        "source": writer.source,
    }
