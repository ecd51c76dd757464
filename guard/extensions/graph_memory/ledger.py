"""The structural ledger: who wrote each node, edge, merge and deletion of a memory graph.  Pure.

A write has the integrity of the channel that brought it, never of the nodes that it touches; what
was derived from something else has the least over all that it was derived from.  A ledger is folded
twice: over every write (what the store has), and over the writes that count (what the store would
have had without the others).  A deletion by somebody who does not count thus leaves the second
graph as it was.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.core.frozen import frozen
from guard.core.labels import LabelSet
from guard.core.model import Integrity
from guard.extensions.graph_memory.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from guard.provenance.seal import Seal

MAX_WEIGHT: Final = 1e9
"""A heavier edge has no weight that a store gives."""
NAME_LIMIT: Final = 2**16 - 1
_HEAD: Final = struct.Struct(">BBBdd8sI")
_LENGTH: Final = struct.Struct(">H")
_VERSION: Final = 1


class Change(IntEnum):
    """Effect of a structural write."""

    NODE = 0
    """There is a node; ``item`` says whether a recall can return it."""
    EDGE = 1
    """Two nodes are related."""
    MERGE = 2
    """The second node is the first from now on."""
    DELETE_NODE = 3
    """A node is gone, and every edge that it had."""
    DELETE_EDGE = 4
    """A relation between two nodes is gone, or holds no longer."""
    DERIVE = 5
    """The store derived structure of its own from some content, which no record describes.

    The first name is the key of a partition (empty: unknown), the second one the writer's mark.
    """
    REVIEW = 6
    """An operator accepts the structure that a partition (empty: every one) derived before."""


@frozen
class Writer:
    """Through which channel a write came."""

    principal: str
    session: bytes = b""
    """Digest of the session."""
    call: int = -1
    at: float = 0.0
    """Seconds since the epoch."""
    source: str = ""
    """Origin of the text (a source type of the memory gate); ``import`` for an import."""
    label: Integrity = Integrity.UNTRUSTED


IMPORTED: Final = "import"
"""Source of what an operator imported; an agent's write never has it."""
UNKNOWN: Final = Writer("")
"""Writer of structure that has no record."""


@frozen
class Write:
    """One structural write."""

    change: Change
    one: str
    two: str = ""
    relation: str = ""
    weight: float = 1.0
    item: bool = False
    writer: Writer = UNKNOWN
    parents: tuple[str, ...] = ()
    """Nodes that it was derived from: an episode, a passage, the constituents of a merge."""


def pack(write: Write) -> bytes:
    """Return a write as bytes.

    Raises:
        ValueError: a name is longer than ``NAME_LIMIT`` bytes, or there are too many parents.
    """
    writer = write.writer
    flags = write.change << 1 | write.item
    call = min(max(writer.call + 1, 0), 2**32 - 1)
    session = writer.session[:8].ljust(8, b"\0")
    head = _HEAD.pack(_VERSION, flags, writer.label, write.weight, writer.at, session, call)
    texts = (write.one, write.two, write.relation, writer.principal, writer.source, *write.parents)
    parts = [head]
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > NAME_LIMIT:
            raise ValueError("a name in a structural write is too long")
        parts.append(_LENGTH.pack(len(data)) + data)
    return b"".join(parts)


def unpack(body: bytes, known: dict[object, Any] | None = None) -> Write:
    """Return the write in some bytes.

    Args:
        body: of an entry.
        known: texts and writers that were read before: one object for each, however many edges.

    Raises:
        ValueError: they are none.
    """
    known = {} if known is None else known
    try:
        version, flags, label, weight, at, session, call = _HEAD.unpack_from(body)
        texts: list[str] = []
        place = _HEAD.size
        while place < len(body):
            start = place + _LENGTH.size
            place = start + _LENGTH.unpack_from(body, place)[0]
            text = body[start:place].decode("utf-8", "surrogatepass")
            texts.append(known.setdefault(text, text))
        one, two, relation, principal, source, *parents = texts
        writer = Writer(principal, session, call - 1, at, source, Integrity(label))
        writer = known.setdefault(writer, writer)
        change = Change(flags >> 1)
    except (struct.error, ValueError) as error:
        raise ValueError("this is no structural write") from error
    if version != _VERSION or place != len(body):
        raise ValueError("this is no structural write")
    return Write(change, one, two, relation, weight, bool(flags & 1), writer, tuple(parents))


@dataclass(slots=True)
class _View:
    """The graph that some of the writes make."""

    duplicates_add: bool
    source: array[int] = field(default_factory=lambda: array("i"))
    target: array[int] = field(default_factory=lambda: array("i"))
    weight: array[float] = field(default_factory=lambda: array("d"))
    """Zero for an edge that is gone."""
    write: array[int] = field(default_factory=lambda: array("l"))
    """Number of the write that made each edge."""
    slots: dict[tuple[int, str, int], tuple[int, ...]] = field(default_factory=dict)
    at: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Edges by node, for deletions; filled once one is asked for."""
    indexed: int = 0
    items: dict[int, None] = field(default_factory=dict)
    named: set[int] = field(default_factory=set)
    """Nodes that these writes name, and do not merely take away."""
    alias: dict[int, int] = field(default_factory=dict)
    ignored: int = 0
    """Edges that a graph cannot hold: their weights are not positive numbers."""
    graph: Graph | None = None

    def apply(self, write: Write, number: int, one: int, two: int) -> None:
        """Apply a write between nodes of some numbers."""
        self.graph = None
        if write.change < Change.DELETE_NODE:
            self.named.add(one)
            self.named.add(two)
        if write.change is Change.NODE:
            if write.item:
                self.items[one] = None
        elif write.change is Change.EDGE:
            self._add(write, number, one, two)
        elif write.change is Change.MERGE:
            kept, gone = self.root(one), self.root(two)
            if kept != gone:
                self.alias[gone] = kept
        elif write.change is Change.DELETE_EDGE:
            for slot in self.slots.pop((one, write.relation, two), ()):
                self.weight[slot] = 0.0
        else:
            self._delete(one)

    def _add(self, write: Write, number: int, one: int, two: int) -> None:
        if not (math.isfinite(write.weight) and 0 < write.weight <= MAX_WEIGHT):
            self.ignored += 1
            return
        key = (one, write.relation, two)
        before = self.slots.get(key, ())
        # Edges that went with one of their nodes are still listed there.
        live = (self.weight[slot] > 0 for slot in before)
        if not self.duplicates_add and any(live):
            return
        self.slots[key] = (*before, len(self.weight))
        self.source.append(one)
        self.target.append(two)
        self.weight.append(write.weight)
        self.write.append(number)

    def _delete(self, node: int) -> None:
        self.items.pop(node, None)
        for slot in range(self.indexed, len(self.source)):
            self.at[self.source[slot]].append(slot)
            self.at[self.target[slot]].append(slot)
        self.indexed = len(self.source)
        for slot in self.at.pop(node, ()):
            self.weight[slot] = 0.0

    def root(self, node: int) -> int:
        """Return the node that a node has been merged into, itself where into none."""
        found = node
        while found in self.alias:
            found = self.alias[found]
        while node != found:
            # A chain of merges is walked once.
            self.alias[node], node = found, self.alias[node]
        return found

    def made(self, size: int, without: np.ndarray | None = None) -> Graph:
        """Return the graph; ``without`` masks writes by number, and such a graph is not kept."""
        if self.graph is not None and self.graph.size == size and without is None:
            return self.graph
        weight = np.frombuffer(self.weight, dtype=np.float64) if self.weight else np.zeros(0)
        live = weight > 0
        if without is not None and len(weight):
            live = live & ~without[np.frombuffer(self.write, dtype=np.int64)]
        ends = [
            np.frombuffer(end, dtype=np.int32)[live] if end else np.zeros(0, dtype=np.int32)
            for end in (self.source, self.target)
        ]
        items = np.fromiter(sorted({self.root(node) for node in self.items}), dtype=np.int64)
        if self.alias:
            roots = np.arange(size, dtype=np.int32)
            for node in self.alias:
                roots[node] = self.root(node)
            ends = [roots[end] for end in ends]
        graph = Graph(size, items, ends[0], ends[1], weight[live])
        if without is None:
            self.graph = graph
        return graph


class Ledger:
    """The writes of one store, in order, and the two graphs that they make.

    Args:
        counts: whether a writer is authenticated, as the policy says.
        duplicates_add: whether an edge that is written again weighs more, or is left as it was.
    """

    def __init__(self, counts: Callable[[Writer], bool], *, duplicates_add: bool = True) -> None:
        self._counts, self._duplicates_add = counts, duplicates_add
        self._numbers: dict[str, int] = {}
        self.names: list[str] = []
        self._writes: list[Write] = []
        self._full = _View(duplicates_add)
        self._authentic: _View | None = None
        """None as long as everything counts."""
        self._counted: dict[str, bool] = {}
        """By node, whether everything that has said anything of it counts: for derivations."""
        self._derived: dict[str, list[int]] = defaultdict(list)
        """Numbers of the writes that were derived from a node."""
        self._fallen: set[int] = set()
        """Writes of writers who count, derived from something that does not, or no longer does."""
        self._folded: dict[str, list[int]] = {}
        self._folded_to = 0
        self._words: dict[str, int] = {}
        self._strange: list[int] = []
        """Numbers of the writes that did not count when they were made."""
        self._introduced = array("l")
        """By node, the number of the write that named it first."""
        self._taken: set[int] = set()
        """Nodes that were deleted or merged away by what does not count."""
        self._derivations: dict[tuple[str, str, Integrity], Writer] = {}
        """Writers of content that does not count, by partition, mark and label: the store derived
        structure from it."""

    def __len__(self) -> int:
        """Return the version: the number of writes."""
        return len(self._writes)

    def __iter__(self) -> Iterator[Write]:
        """Yield every write, in order."""
        return iter(self._writes)

    def number(self, name: str) -> int | None:
        """Return the number of a node, None where no write has named it."""
        return self._numbers.get(name)

    def extend(self, writes: Iterable[Write]) -> None:
        """Append some writes."""
        fallen = False
        for write in writes:
            fallen |= self._append(write)
        if fallen:
            self._authentic = self._folded_of(filter(self.is_counted, range(len(self._writes))))

    def _append(self, write: Write) -> bool:
        """Append a write and return whether earlier ones no longer count."""
        number = len(self._writes)
        self._writes.append(write)
        if write.change >= Change.DERIVE:
            self._derive(write)
            return False
        one = self._node(write.one)
        two = self._node(write.two) if write.two else one
        self._full.apply(write, number, one, two)
        counts = self._counts(write.writer)
        if counts and not all(self._counted.get(parent, False) for parent in write.parents):
            self._fallen.add(number)
            counts = False
        for parent in write.parents:
            self._derived[parent].append(number)
        if not counts:
            if self._authentic is None:
                self._authentic = self._folded_of(range(number))
            self._strange.append(number)
            self._take(write)
        elif self._authentic is not None:
            self._authentic.apply(write, number, one, two)
            if write.change is Change.NODE:
                self._taken.discard(one)
        return self._say(write, counts=counts)

    def _derive(self, write: Write) -> None:
        """Note structure that the store derived by itself, or its acceptance by an operator."""
        writer = write.writer
        if write.change is Change.DERIVE:
            if not self._counts(writer):
                self._derivations[write.one, write.two, writer.label] = writer
        elif writer.source == IMPORTED and writer.label >= Integrity.AUTHENTICATED:
            accepted = [key for key in self._derivations if write.one in {"", key[0]}]
            for key in accepted:
                del self._derivations[key]

    def derived(self, partitions: Collection[str], reader: str) -> Writer | None:
        """Return a writer whose content, which does not count, the store derived structure from.

        Args:
            partitions: keys of the partitions that are read; empty for every one.
            reader: mark whose own content counts unless it is untrusted; empty: nobody's does.
        """
        for (partition, mark, label), writer in self._derivations.items():
            own = bool(reader) and mark == reader and label > Integrity.UNTRUSTED
            if not own and (not partitions or not partition or partition in partitions):
                return writer
        return None

    def _take(self, write: Write) -> None:
        """Note what a write that does not count takes away."""
        if write.change in {Change.DELETE_NODE, Change.MERGE}:
            self._taken.add(self._numbers[write.two or write.one])

    @property
    def taken(self) -> bool:
        """Return whether an uncounted write removed a node that nobody has written since."""
        return bool(self._taken)

    def _say(self, write: Write, *, counts: bool) -> bool:
        """Note whether all that has been said of a node counts; what was derived falls with it.

        Returns:
            whether anything fell.
        """
        if write.change is not Change.NODE:
            return False
        before = self._counted.get(write.one, True)
        self._counted[write.one] = before and counts
        falling = [write.one] if before and not counts else []
        fallen: set[int] = set()
        while falling:
            for number in self._derived.get(falling.pop(), ()):
                derived = self._writes[number]
                if number in self._fallen or not self._counts(derived.writer):
                    continue
                fallen.add(number)
                self._fallen.add(number)
                self._take(derived)
                if derived.change is Change.NODE and self._counted.get(derived.one, False):
                    self._counted[derived.one] = False
                    falling.append(derived.one)
        return bool(fallen)

    def _folded_of(self, numbers: Iterable[int]) -> _View:
        """Return the graph of some writes, in their order."""
        view = _View(self._duplicates_add)
        for number in numbers:
            write = self._writes[number]
            if write.change >= Change.DERIVE:
                continue
            one = self._numbers[write.one]
            two = self._numbers[write.two] if write.two else one
            view.apply(write, number, one, two)
        return view

    def is_counted(self, number: int) -> bool:
        """Return whether a write is part of the authenticated graph."""
        return number not in self._fallen and self._counts(self._writes[number].writer)

    def _node(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self._introduced.append(len(self._writes) - 1)
        return number

    def introduced(self, node: int) -> int:
        """Return the number of the write that named a node first."""
        return self._introduced[node]

    def is_authentic(self, node: int) -> bool:
        """Return whether anything that counts names a node."""
        return self._authentic is None or node in self._authentic.named

    @property
    def uncounted(self) -> int:
        """Number of writes that do not count."""
        return len(self._fallen.union(self._strange)) if self._authentic is not None else 0

    @property
    def ignored(self) -> int:
        """Number of edges left out of every graph because their weight is not a positive number.

        What a store makes of such an edge nobody can say.  A replay compares the order of the graph
        without it with the order that was served, so where it made a difference, that shows.
        """
        return self._full.ignored

    @property
    def full(self) -> Graph:
        """Everything that was written."""
        return self._full.made(len(self.names))

    @property
    def authentic(self) -> Graph:
        """Graph of the counted writes; the full graph if every write counts."""
        return self.full if self._authentic is None else self._authentic.made(len(self.names))

    def root(self, node: int, *, authentic: bool = False) -> int:
        """Return what a node was merged into, in the full graph or in the authenticated one."""
        view = self._authentic if authentic else None
        return (view or self._full).root(node)

    def without(self, numbers: Iterable[int]) -> tuple[Graph, Callable[[int], int]]:
        """Return what the other writes make, and into which node each was merged there."""
        gone = set(numbers)
        if self._duplicates_add and all(self._writes[n].change is Change.EDGE for n in gone):
            mask = np.zeros(len(self._writes), dtype=bool)
            mask[list(gone)] = True
            return self._full.made(len(self.names), mask), self._full.root
        others = (n for n in range(len(self._writes)) if n not in gone)
        view = self._folded_of(others)
        return view.made(len(self.names)), view.root

    def calls_since(self, at: float, most: int) -> Iterator[list[int]]:
        """Yield the numbers of the writes of each call of a time or later, the newest first."""
        number = len(self._writes) - 1
        for _ in range(most):
            writer, found = self._writes[number].writer if number >= 0 else UNKNOWN, []
            while number >= 0 and self._writes[number].writer == writer and writer.at >= at:
                found.append(number)
                number -= 1
            if not found:
                return
            yield found

    def folded_names(
        self, fold: Callable[[str], str]
    ) -> tuple[dict[str, list[int]], dict[str, int]]:
        """Return the numbers of the nodes by their names as they are compared.

        And by the first words of such names, of how many words the longest is.
        """
        for number in range(self._folded_to, len(self.names)):
            name = fold(self.names[number])
            self._folded.setdefault(name, []).append(number)
            first = name.partition(" ")[0]
            self._words[first] = max(self._words.get(first, 0), name.count(" ") + 1)
        self._folded_to = len(self.names)
        return self._folded, self._words

    def uncounted_by_writer(self) -> dict[Writer, list[int]]:
        """Return the numbers of the writes that do not count by who made them, newest first."""
        found: dict[Writer, list[int]] = defaultdict(list)
        for number in sorted(self._fallen.union(self._strange), reverse=True):
            found[self._writes[number].writer].append(number)
        return found


# --- as it is stored -----------------------------------------------------------------------------

_ID: Final = 6
_ORDINAL: Final = struct.Struct(">H")
_AT: Final = b"ledger"
LEDGER_KIND: Final = "l"


def ledger_set(tenant: str, store: str) -> LabelSet:
    """Return where the ledger of a store lies: a list, kept for good."""
    return LabelSet(LEDGER_KIND, (tenant, store))


def seal_writes(seal: Seal, area: LabelSet, call: str, writes: Iterable[Write]) -> list[bytes]:
    """Return the entries of one call's writes, which only a holder of the key can read or make.

    Args:
        seal: the deployment's key.
        area: the ledger.
        call: id of the call; an entry that is stored a second time is known by it.
        writes: at most 65,536.
    """
    mark = seal.fingerprint(call)[:_ID]
    return [
        seal.enciphered(area, _AT, mark + _ORDINAL.pack(ordinal) + pack(write))
        for ordinal, write in enumerate(writes)
    ]


class LedgerReader:
    """Opens entries in order, each once.

    Args:
        seal: the deployment's key.
        area: the ledger.
    """

    def __init__(self, seal: Seal, area: LabelSet) -> None:
        self._seal, self._area = seal, area
        self._seen: set[bytes] = set()
        self._known: dict[object, Any] = {}
        self.faults = 0
        """Entries that were altered, or stored twice: the ledger has a gap."""

    def read(self, entries: Iterable[object]) -> Iterator[Write]:
        """Yield the writes of the entries that are whole."""
        for raw in entries:
            body = None
            if isinstance(raw, bytes):
                body = self._seal.deciphered(self._area, _AT, raw)
            mark = body[: _ID + _ORDINAL.size] if body is not None else b""
            if body is None or mark in self._seen:
                self.faults += 1
                continue
            self._seen.add(mark)
            try:
                yield unpack(body[len(mark) :], self._known)
            except ValueError:
                self.faults += 1
