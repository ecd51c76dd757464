"""Replays of a graph memory's answers on the structure that was written into it."""

from __future__ import annotations

import asyncio
import unicodedata
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from guard.core.model import Integrity, Json, PrincipalRung
from guard.extensions.graph_memory.answers import Ranked, documents_in
from guard.extensions.graph_memory.comparison import Comparison
from guard.extensions.graph_memory.graph import Graph, Recall
from guard.extensions.graph_memory.grounding import Grounding
from guard.extensions.graph_memory.ledger import Change, Ledger, LedgerReader, Write, Writer
from guard.extensions.graph_memory.replay import SelectionReplay, UnreplayedError, replay
from guard.extensions.graph_memory.selectors import Selector, selector_from
from guard.extensions.graph_memory.selectors.base import CommunitySelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from guard.core.calls import ToolResult, TracedCall
    from guard.core.labels import LabelSet
    from guard.core.mappings import (
        PartitionMapping,
        PathQuery,
        RankedMapping,
        SelectionPolicy,
        StructureMapping,
    )
    from guard.pipeline.large_work import RunsElsewhere
    from guard.provenance.seal import Seal


USER: Final = "user_input"
READ: Final = "tool_result"
INFERRED: Final = "model_inference"
PARTITION_KEY: Final = 48
"""Characters by which partitions are told apart: a store may cut a longer name."""


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
    ones = names_in(members.get(mapping.one)) if mapping.one else names_in(value)
    twos = names_in(members.get(mapping.two)) if mapping.two else [""]
    weight = members.get(mapping.weight, 1.0) if mapping.weight else 1.0
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        weight = float("nan")
    for one in ones:
        for two in twos:
            yield Write(
                Change[mapping.change.upper()],
                one,
                two,
                "".join(names_in(members.get(mapping.relation))) if mapping.relation else "",
                float(weight),
                mapping.item,
                writer,
                tuple(names_in(members.get(mapping.parents))) if mapping.parents else (),
            )


def derivations_of(seal: Seal, selection: SelectionPolicy, call: TracedCall) -> list[Write]:
    """Return the records of a write from whose content the store derives structure by itself."""
    asked = call.call
    keys = partition_keys(selection.derives, asked.tool, dict(asked.arguments))
    if keys is None:
        return []
    if selection.namespaces is not None and asked.server in selection.namespaces.servers:
        keys = {partition_key(selection.namespaces.default + selection.namespaces.suffix)}
    writer, mark = writer_of(seal, call, asked.at), reader_mark(seal, call)
    return [Write(Change.DERIVE, key, mark, writer=writer) for key in sorted(keys or {""})]


def reader_mark(seal: Seal, call: TracedCall) -> str:
    """Return the mark of a principal, by which its own content is known again."""
    return seal.principal(call.call.identity).hex()


def partition_keys(
    mappings: Sequence[PartitionMapping], tool: str, arguments: Json
) -> set[str] | None:
    """Return the keys of the partitions that a call names, empty for every one.

    Returns:
        None where no mapping is about the tool.
    """
    found = [one for one in mappings if one.matches(tool)]
    if not found:
        return None
    keys: set[str] = set()
    for one in found:
        values = [] if one.partition is None else [v for _, v in one.partition.find(arguments)]
        names = [name for value in values for name in names_in(value)]
        if not names or len(names) < len(values):
            return set()
        keys.update(map(partition_key, names))
    return set() if "" in keys else keys


def partition_key(name: str) -> str:
    """Return a partition as it is compared: a store may fold its name, or cut it."""
    text = unicodedata.normalize("NFKC", name).casefold()
    return "".join(filter(str.isalnum, text))[:PARTITION_KEY]


def names_in(value: Json) -> list[str]:
    """Return the names in a member: a single name, or a list."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]


def is_given(query: PathQuery, result: ToolResult) -> bool:
    """Return True if an argument of the recall has a value at a path."""
    arguments = dict(result.call.call.arguments)
    return any(value not in {None, ""} for _, value in query.find(arguments))


def as_served(ranked: Ranked) -> Comparison:
    """Return the comparison of an answer that nothing uncounted can have changed."""
    return Comparison(ranked.names, ranked.names, tuple(range(len(ranked.names))))


def known_nodes(ledger: Ledger, names: Sequence[str]) -> list[int]:
    """Return the nodes of the items of an answer, as they were before any merge.

    Raises:
        UnreplayedError: one is on no record.
    """
    found = [ledger.number(name) for name in names]
    if None in found:
        raise UnreplayedError("unknown_item")
    return [number for number in found if number is not None]


def unmerged_recall(
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


def before_writes(  # noqa: PLR0913  (an answer, and the graph that it may come from)
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
        for name in names_in(value)
    ]
    found = Grounding(ledger, tuple(texts), mapping.names_in_text)
    if not found.seeds():
        raise UnreplayedError("no_grounding")
    return found


RECENT: Final = 100
"""Answers over which the share that the replica made alike is taken."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A write that is under way."""

    at: float
    """Time at which it was requested."""
    landed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer that is replayed."""

    selector: Selector
    mapping: RankedMapping
    result: ToolResult
    ranked: Ranked
    started: float
    last: bool
    """True if it is not compared again."""


@dataclass(slots=True)
class Replica:
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
    """True if the store no longer has entries that it had: the ledger has a gap."""
    faithful: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    compared_at: int = -1
    """Version at which the replica was last compared with an answer."""
    recalls: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_as_compared(self) -> bool:
        """True if everything counts, and nothing was written since the replica was compared."""
        whole = not (self.lost or self.reader.faults or self.lock.locked())
        return whole and self.ledger.uncounted == 0 and self.compared_at == len(self.ledger)


def extend_replica(replica: Replica, entries: Sequence[object]) -> None:
    """Read new entries of the ledger."""
    replica.ledger.extend(replica.reader.read(entries))
    replica.read += len(entries)
    replica.last = entries[-1]


def selector_of(selection: SelectionPolicy, runs: RunsElsewhere | None) -> Selector:
    """Return the selector of a store; one of communities works in another process.

    Args:
        selection: of the store.
        runs: runs a function in another process; None works here.
    """
    selector = selector_from(selection.selector, dict(selection.parameters))
    if runs is None or not isinstance(selector, CommunitySelector):
        return selector
    return RemoteSelector(selector, runs, selection.deadline)


class RemoteSelector(CommunitySelector):
    """A selector that finds communities in another process; used in a thread.

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
        """Key of the wrapped selector."""
        return self._selector.key

    async def _of(self, graph: Graph) -> np.ndarray:
        found: np.ndarray = await self._run(self._selector.membership, graph)
        return found
