"""The ``memory:`` section of a policy file: its pydantic models, and how it is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

import re2
from pydantic import AfterValidator, BaseModel, Field, model_validator

from guard.core.mappings import (
    DriftSettings,
    MemoryLimits,
    MemoryPolicy,
    NamespaceMember,
    Namespaces,
    PartitionMapping,
    ProposalMapping,
    RankedMapping,
    ReadBack,
    ReadMapping,
    SelectionPolicy,
    StructureMapping,
    WriteMapping,
)
from guard.core.memory import DEFAULT_STORE, MemoryClass, Permission, SecondLook, SourceType
from guard.core.model import Integrity
from guard.core.tool_patterns import any_pattern
from guard.policy.field_types import Duration, Label, PathText, made
from guard.policy.rules.base import OF_A_POLICY, Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Place: TypeAlias = tuple[str | int, ...]

ClassName = Literal["L1", "L2", "L3", "L4"]
PermissionName = Literal["commit", "elevated", "token", "refuse"]
SECTION: Final = "memory"
_MAPPINGS: Final = {"writes", "proposals", "reads"}
STORES: Final = "stores"
StoreName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _expression(text: str) -> str:
    try:
        re2.compile(text)
    except re2.error as error:
        raise ValueError(f"`{text}` is not an RE2 expression: {error}") from error
    return text


Expression = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_expression)]


class _Strict(BaseModel):
    model_config = OF_A_POLICY


Classes = Annotated[dict[ClassName, PermissionName], Field(min_length=4)]
Sources = Annotated[dict[SourceType, Classes], Field(min_length=4)]
"""The matrix of source types and memory classes.  Every pair must be written."""
DEFAULT_SOURCES: Final[dict[SourceType, dict[ClassName, PermissionName]]] = {
    SourceType.USER_INPUT: {"L1": "token", "L2": "commit", "L3": "commit", "L4": "commit"},
    SourceType.MODEL_INFERENCE: {"L1": "token", "L2": "elevated", "L3": "commit", "L4": "commit"},
    # Text of others stays in the lowest class; with a destination, or over an item of a higher
    # class, it waits for a person.
    SourceType.TOOL_RESULT: {"L1": "refuse", "L2": "refuse", "L3": "token", "L4": "elevated"},
    SourceType.SELF_EDIT: {"L1": "token", "L2": "token", "L3": "elevated", "L4": "commit"},
}


class SecondLookEntry(_Strict):
    """Second look at writes of a class: by a person, the content checker, or not at all."""

    L1: SecondLook = SecondLook.HUMAN
    L2: SecondLook = SecondLook.NONE
    L3: SecondLook = SecondLook.NONE
    L4: SecondLook = SecondLook.NONE


class ReadBackEntry(_Strict):
    """The recall that tells whether a write arrived; arguments are JSONPaths into the write."""

    tool: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: dict[str, str] = Field(default_factory=dict)
    path: Annotated[str, Field(pattern=r"^/[!-~]{0,199}$")] = "/mcp"


class ClaimEntry(_Strict):
    """Tools of an entry."""

    match: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    """Globs, or ``{re2: ...}``, over the whole name of a tool."""


class _Write(ClaimEntry):
    methods: tuple[str, ...] = ()
    """HTTP methods of the plain requests that write."""
    path: Pattern | None = None
    """URL paths of the plain requests that write."""
    target: ClassName = "L1"
    """The class that is written."""
    fallback: ClassName | None = None
    """A lower class that a refused write may take instead, marked as tainted."""
    content: tuple[PathText, ...] = ()
    """Location of the remembered text; left out, in all arguments."""
    key: PathText | None = None
    """Argument that names the item; a later write of the same key writes over it."""
    partition: PathText | None = None
    """Argument that names the part of the store, which an operator can close."""
    class_from: PathText | None = None
    """Location of the class that the caller asks for."""
    nonce: PathText | None = None
    """Location of a number used once that the caller gives."""
    token: PathText | None = None
    """Location of a promotion token that the caller presents."""
    read_back: ReadBackEntry | None = None
    """The recall that tells whether a write arrived whose answer was lost."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """For people who read the policy."""

    @model_validator(mode="after")
    def _fallback_is_lower(self) -> Self:
        if self.fallback is not None and self.fallback <= self.target:
            raise ValueError(f"`fallback` must be a class below `{self.target}`")
        return self


class WriteEntry(_Write):
    """Tools (or plain requests) that write memory, and of which class."""

    target: ClassName
    """The class that is written."""
    store: StoreName = DEFAULT_STORE
    """The memory; left out, the one that the tool's mapping names.  `stores` says it once."""


class _Read(ClaimEntry):
    partition: PathText | None = None
    """Argument that names the part of the store that is read; a closed one is not read."""


class ReadEntry(_Read):
    """Tools that read a store; a partition that the operator has closed is not read."""

    store: StoreName = DEFAULT_STORE
    """The memory; left out, the one that the tool's mapping names.  `stores` says it once."""


class StructureEntry(_Strict):
    """Change that a call makes in the structure of a graph memory."""

    change: Literal["node", "edge", "merge", "delete_node", "delete_edge"]
    """Kind of change: `merge` makes the second node the first; an invalidation is `delete_edge`."""
    each: PathText
    """Location of one change each in the arguments: an object, or the name of the one node."""
    one: str = ""
    """Member with the (first) node; left out, what `each` selects is its name."""
    two: str = ""
    """Member with the second node."""
    relation: str = ""
    """Member with the kind of the relation."""
    weight: str = ""
    """Member with the edge's weight; left out, every edge weighs 1."""
    parents: str = ""
    """Member with the nodes that it is derived from: it counts only if they do."""
    item: bool = False
    """For `node`: a recall can return it."""

    @model_validator(mode="after")
    def _ends_are_named(self) -> Self:
        joins = self.change in {"edge", "merge", "delete_edge"}
        if joins and not (self.one and self.two):
            raise ValueError(f"`{self.change}` needs `one` and `two`, the members with its ends")
        return self


class SeedsEntry(_Strict):
    """Start of a recall's search."""

    path: PathText
    """Location of the nodes, or of the text that names them."""
    source: Literal["arguments", "result"] = "arguments"
    """`result` where the server tells what it began with."""
    match: Literal["names", "text"] = "names"
    """`names`: the values are nodes; `text`: every node that they name, word for word."""


class RankedEntry(_Strict):
    """Location of the items in an answer, best first."""

    items: PathText
    """Into the result."""
    id: PathText
    """Into an item: the name of its node."""
    seeds: SeedsEntry | None = None
    """Start of the search, if it differs from the store's `selection`; left out in both if it is
    unknown outside the store."""
    unless: PathText | None = None
    """Into the arguments: what makes the store rank in a way that is not replayed."""


class AuthenticatedByEntry(_Strict):
    """Sources whose structure counts: those that meet every written condition."""

    principals: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Authenticated principals; left out, everybody."""
    sources: tuple[SourceType, ...] = ()
    """Sources of their writes."""
    label: Label = Integrity.AUTHENTICATED
    """The least label of a write; what an agent concludes by itself is at best `advisory`."""

    @property
    def counts_everybody(self) -> bool:
        """True if the conclusions of every agent count, and not the words of users alone."""
        of_users = set(self.sources) == {SourceType.USER_INPUT}
        return not (self.principals or self.label > Integrity.ADVISORY or of_users)


class NamespacesEntry(_Strict):
    """Keeps what does not count in namespaces of its own, so that a store can be asked without it.

    The `partition` of each write and read is the argument that names one (`$.name`), or lists
    several (`$.names[*]`).
    """

    default: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,48}$")]
    """The namespace of a call that names none."""
    suffix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,16}$")] = "-untrusted"
    """Ending of the names of untrusted namespaces."""
    servers: tuple[Annotated[str, Field(pattern=r"^[^\s/]{1,255}:[0-9]{1,5}$")], ...] = ()
    """Listeners (`HOST:PORT`) of a server of the same store that writes into an untrusted namespace
    by itself, for stores whose writes name none."""
    path: Annotated[str, Field(pattern=r"^/[!-~]{0,199}$")] = "/mcp"
    """Path at which the store speaks MCP, behind the listener of the recall."""
    deadline_ms: Annotated[int, Field(ge=1, le=60_000)] = 10_000
    """Time that asking it may take."""


Divergence: TypeAlias = Literal["unknown", "ask", "annotate", "substitute"]


class SelectorParameters(_Strict):
    """Parameters that a store's selector is made with; each is of some selectors only."""

    damping: Annotated[float, Field(gt=0, le=0.99)] | None = None
    """Parameter of `pagerank`: the probability that the walk goes on; left out, 0.5."""
    directed: bool | None = None
    """Parameter of `pagerank`: it follows edges in their direction alone."""
    weights: bool | None = None
    """Parameter of `pagerank` and communities: `false` where the store ignores weights of edges."""
    personalization: Literal["seeds", "inverse_degree", "uniform"] | None = None
    """Parameter of `pagerank`: where the walk restarts."""
    tolerance: Annotated[float, Field(ge=0, le=1e-2)] | None = None
    """Parameter of `pagerank`: change per node at which the store stops; 0 for exact scores."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Parameter of `leiden`: of its random choices."""
    resolution: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Parameter of `leiden`."""
    objective: Literal["modularity", "cpm"] | None = None
    """Parameter of `leiden`: what it makes great; `cpm`: the constant Potts model."""
    iterations: Annotated[int, Field(ge=-1, le=1000)] | None = None
    """Parameter of `leiden`; -1 until nothing changes."""
    threshold: Annotated[float, Field(ge=0, le=1000)] | None = None
    """Parameter of `label_propagation`: the count that a community of neighbours must exceed."""
    rank_constant: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Parameter of fusions: what is added to each place, counted from 0."""
    depth: Annotated[int, Field(ge=1, le=10)] | None = None
    """Parameter of `rrf_bfs`: the edges that its search follows."""
    candidates: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Parameter of `rrf_bfs`: the items that its search finds at most."""
    descending: bool | None = None
    """Parameter of `episode_mentions`: more mentions first."""


SELECTOR_PARAMETERS: Final = tuple(SelectorParameters.model_fields)


class SelectionEntry(SelectorParameters):
    """Selection of recalled items by a store, and the sources whose structure counts."""

    selector: str | None = None
    """Name of a selector (docs/explanation/graph-memory.md); left out if none ranks alike."""
    top_k: Annotated[int, Field(ge=1, le=100)] = 5
    """Items of an answer that may vouch for anything."""
    seeds: SeedsEntry | None = None
    """Start of the search of every read whose `ranked` does not give another."""
    authenticated_by: AuthenticatedByEntry = AuthenticatedByEntry()
    """Sources whose structure counts."""
    on_divergence: Divergence | tuple[Divergence, ...] = "unknown"
    """`unknown`: items that rose vouch for nothing; `ask`: no item of such an answer does.  For
    what is read, besides: `annotate` gives the answer a note, `substitute` releases it in the
    authenticated order, with the note.  One, or several in a list."""
    unreplayable: Literal["untrusted", "dual_query"] = "untrusted"
    """Worth of an answer that cannot be replayed: nothing, or the store's own answer to a request
    without what does not count."""
    namespaces: NamespacesEntry | None = None
    """For `dual_query`: who writes where."""
    duplicates: Literal["add", "skip"] = "add"
    """Treatment by the store of an edge that it has."""
    fidelity: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Share of recent answers that the replica must have made alike."""
    deadline_ms: Annotated[int, Field(ge=1, le=60_000)] = 1000
    """Time that a replay may take; an answer that is not replayed by then is untrusted."""

    @model_validator(mode="after")
    def _selector_is_known(self) -> Self:
        # Selectors bring NumPy along: only a policy that has one waits for that.
        from guard.extensions.graph_memory.selectors import selector_from

        if self.selector is not None:
            selector_from(self.selector, self.parameters)
        elif self.parameters:
            raise ValueError(f"`{next(iter(self.parameters))}` needs a `selector`")
        return self

    @property
    def parameters(self) -> dict[str, object]:
        """Parameters of the selector that were given."""
        given = {name: getattr(self, name) for name in SELECTOR_PARAMETERS}
        return {name: value for name, value in given.items() if value is not None}


class StoreWriteEntry(_Write):
    """Calls that write a store: tools that save, or plain requests by `methods` and `path`."""

    item: PathText | None = None
    """Location of the name of one item in the arguments; a recall of it then answers to its
    label."""
    structure: tuple[StructureEntry, ...] = ()
    """Changes to the structure of a graph memory, in this order."""
    derives: bool = False
    """The store derives structure from it by itself (it invalidates facts, merges entities, writes
    summaries or communities): answers after such a write by somebody who does not count are
    untrusted."""


class StoreReadEntry(_Read):
    """Tools that read a store."""

    role: Literal["recall", "list"] = "recall"
    """Role of the tools: look something up, or list what there is."""
    item: PathText | None = None
    """Location of the name of one item of the store in the arguments."""
    source: Label = Integrity.UNTRUSTED
    """The label of what was saved around the guard; what was saved through it has its own."""
    private: bool = False
    """True if its results are private: rules of type `private_body` know them again in a send."""
    ranked: RankedEntry | None = None
    """Location of items in its answer, in an order that the store's selector has made."""


class StoreEntry(_Strict):
    """One memory store, declared once: its tools, for the labels and for the memory gate.

    Each of its entries stands for one of `tools` and one of `memory.writes` or `memory.reads`.
    """

    name: StoreName
    """Name of the store for operators and in audit lines."""
    writes: tuple[StoreWriteEntry, ...] = ()
    """Tools that save into it, or delete from it."""
    reads: tuple[StoreReadEntry, ...] = ()
    """Tools that recall from it."""
    selection: SelectionEntry | None = None
    """Writers whose structure may decide what a graph memory recalls first."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """For people who read the policy."""

    @model_validator(mode="after")
    def _namespaces_are_named(self) -> Self:
        selection = self.selection
        if selection is None or selection.unreplayable != "dual_query":
            return self
        if selection.namespaces is None:
            raise ValueError("`unreplayable: dual_query` needs `namespaces`")
        partitions = [write.partition for write in self.writes]
        for path in (*partitions, *(read.partition for read in self.reads)):
            if path is not None and path.name is None:
                raise ValueError(
                    "with `dual_query` a `partition` is one argument: `$.name`, or `$.names[*]` "
                    f"for a list; not `{path.text}`"
                )
        for read in self.reads:
            if read.ranked is not None and read.partition is None:
                raise ValueError(
                    "with `dual_query` a read that has `ranked` needs `partition`: the argument "
                    "that names the namespaces"
                )
        return self


class ProposalEntry(_Strict):
    """Tools whose results can propose memory updates."""

    match: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    updates: PathText
    content: PathText
    class_from: PathText | None = None
    nonce: PathText | None = None
    key: PathText | None = None
    store: StoreName = DEFAULT_STORE
    target: ClassName = "L1"


class LimitsEntry(_Strict):
    """Bounds of the gate."""

    max_chars: Annotated[
        int, Field(ge=1, le=16 * 1024 * 1024, description="Characters of the longest write.")
    ] = 64 * 1024
    stage_ttl: Annotated[
        Duration, Field(description="How long a staged write may wait to be committed.")
    ] = 3600
    nonce_ttl: Annotated[
        Duration, Field(description="How long nonces and committed items are remembered.")
    ] = 30 * 86400
    keep_refused: Annotated[
        Duration, Field(description="How long records of writes are kept for review.")
    ] = 7 * 86400
    token_ttl: Annotated[
        Duration,
        Field(description="Has no effect: `guard memory promote --expires` says it per token."),
    ] = 900
    unknown_after: Annotated[
        Duration,
        Field(description="How long a write without an answer may take to be in its store."),
    ] = 60
    degrade_after: Annotated[
        int, Field(ge=1, description="Refused writes after which trust in their source is lowered.")
    ] = 1
    untrust_after: Annotated[
        int, Field(ge=1, description="Refused writes after which their source is untrusted.")
    ] = 3
    recover_after: Annotated[
        Duration, Field(description="Time without a refused write that raises trust by one level.")
    ] = 86400


class DriftEntry(_Strict):
    """The sequential test on what committed items say."""

    alarm: Annotated[float, Field(gt=0, le=100)] = 8.0
    base_rate: Annotated[float, Field(gt=0, lt=1)] = 0.05
    pushed_rate: Annotated[float, Field(gt=0, lt=1)] = 0.5
    lower_trust: bool = False

    @model_validator(mode="after")
    def _pushed_is_more(self) -> DriftEntry:
        if self.pushed_rate <= self.base_rate:
            raise ValueError("`pushed_rate` must be greater than `base_rate`")
        return self


class MemoryEntry(_Strict):
    """The memory gate: absent, no write is staged and rules alone decide.

    `{}` is a safe default: each save of `tools` that names a `store` is a write of L3, and of L4 as
    tainted where its session has read untrusted text.
    """

    sources: Sources = DEFAULT_SOURCES
    """Sources that may write each class; left out, the default matrix."""
    second_look: SecondLookEntry = SecondLookEntry()
    suspicious: tuple[Expression, ...] = ()
    suspicious_destinations: bool = True
    coupling: bool = True
    limits: LimitsEntry = LimitsEntry()
    writes: tuple[WriteEntry, ...] = ()
    proposals: tuple[ProposalEntry, ...] = ()
    reads: tuple[ReadEntry, ...] = ()
    drift: DriftEntry | None = None


NESTED_MEMORY: Final[dict[tuple[str | int, ...], type[BaseModel]]] = {
    (SECTION,): MemoryEntry,
    (SECTION, "second_look"): SecondLookEntry,
    (SECTION, "limits"): LimitsEntry,
    (SECTION, "writes"): WriteEntry,
    (SECTION, "proposals"): ProposalEntry,
    (SECTION, "reads"): ReadEntry,
    (SECTION, "drift"): DriftEntry,
    (STORES,): StoreEntry,
    (STORES, "writes"): StoreWriteEntry,
    (STORES, "reads"): StoreReadEntry,
    (STORES, "writes", "structure"): StructureEntry,
    (STORES, "reads", "ranked"): RankedEntry,
    (STORES, "reads", "ranked", "seeds"): SeedsEntry,
    (STORES, "selection"): SelectionEntry,
    (STORES, "selection", "authenticated_by"): AuthenticatedByEntry,
}


def declared_writes(
    memory: MemoryEntry | None, stores: Sequence[StoreEntry]
) -> Iterator[tuple[Place, _Write, str]]:
    """Yield where each write of a file is declared, the entry, and its store; empty for none."""
    return _declared("writes", memory, stores)


def declared_reads(
    memory: MemoryEntry | None, stores: Sequence[StoreEntry]
) -> Iterator[tuple[Place, _Read, str]]:
    """Yield where each read of a file is declared, the entry, and its store; empty for none."""
    return _declared("reads", memory, stores)


def _declared(
    kind: Literal["writes", "reads"], memory: MemoryEntry | None, stores: Sequence[StoreEntry]
) -> Iterator[tuple[Place, Any, str]]:
    for index, entry in enumerate(getattr(memory, kind, ())):
        said = "store" in entry.model_fields_set
        yield (SECTION, kind, index), entry, entry.store if said else ""
    for number, store in enumerate(stores):
        for index, entry in enumerate(getattr(store, kind)):
            yield (STORES, number, kind, index), entry, store.name


def compile_memory(
    sections: Sequence[tuple[MemoryEntry | None, Sequence[StoreEntry]]],
) -> MemoryPolicy | None:
    """Return the gate's policy: settings of the first file that has one, mappings of all.

    The linter has refused files whose settings differ.

    Args:
        sections: ``memory`` and ``stores`` of each file.
    """
    entries = [memory for memory, _ in sections if memory is not None]
    if not entries:
        return None
    first = next(filter(states_settings, entries), entries[0])
    return made(
        MemoryPolicy,
        first,
        matrix={
            (kind, MemoryClass[name]): Permission[permission.upper()]
            for kind, row in first.sources.items()
            for name, permission in row.items()
        },
        second_look={
            target: SecondLook(getattr(first.second_look, target.name)) for target in MemoryClass
        },
        writes=tuple(
            _write(entry, store)
            for section in sections
            for _, entry, store in declared_writes(*section)
        ),
        proposals=tuple(_proposal(item) for entry in entries for item in entry.proposals),
        reads=tuple(
            ReadMapping(any_pattern(entry.match), store, entry.partition)
            for section in sections
            for _, entry, store in declared_reads(*section)
        ),
        suspicious=_suspicious(first.suspicious),
        limits=made(MemoryLimits, first.limits),
        drift=made(DriftSettings, first.drift) if first.drift else None,
        is_default=has_default_matrix(first),
    )


def compile_selections(stores: Iterable[StoreEntry]) -> dict[str, SelectionPolicy]:
    """Return by store whose structure may decide what it recalls."""
    return {
        store.name: _selection(store, store.selection)
        for store in stores
        # Structure without a selection is on record, and nothing is replayed.
        if store.selection is not None
        or any(write.structure or write.derives for write in store.writes)
    }


def _namespaces(store: StoreEntry, entry: SelectionEntry) -> Namespaces | None:
    declared = entry.namespaces
    if declared is None or entry.unreplayable != "dual_query":
        return None

    def members(entries: Iterable[StoreWriteEntry | StoreReadEntry]) -> tuple[NamespaceMember, ...]:
        return tuple(
            NamespaceMember(any_pattern(one.match), "")
            if one.partition is None
            else NamespaceMember(
                any_pattern(one.match),
                one.partition.name or "",
                many=one.partition.text.endswith("[*]"),
            )
            for one in entries
        )

    return made(
        Namespaces,
        declared,
        writes=members(store.writes),
        reads=members(store.reads),
        servers=frozenset(declared.servers),
        deadline=declared.deadline_ms / 1000,
    )


def _selection(store: StoreEntry, declared: SelectionEntry | None) -> SelectionPolicy:
    entry = declared or SelectionEntry(selector="vector")
    by, follows = entry.authenticated_by, entry.on_divergence
    follows = (follows,) if isinstance(follows, str) else follows
    return made(
        SelectionPolicy,
        entry,
        store=store.name,
        selector=entry.selector or "",
        ranked=tuple(
            RankedMapping(
                any_pattern(read.match),
                read.ranked.items,
                read.ranked.id,
                seeds.path if seeds is not None else None,
                seeds is not None and seeds.source == "result",
                read.ranked.unless,
                seeds is not None and seeds.match == "text",
            )
            for read in store.reads
            if read.ranked is not None and declared is not None
            for seeds in (read.ranked.seeds or entry.seeds,)
        ),
        structure=tuple(
            made(StructureMapping, one, matches=any_pattern(write.match))
            for write in store.writes
            for one in write.structure
        ),
        duplicates_add=entry.duplicates == "add",
        principals=frozenset(by.principals),
        sources=frozenset(by.sources),
        label=by.label,
        asks_always="ask" in follows,
        annotates="annotate" in follows,
        substitutes="substitute" in follows,
        deadline=entry.deadline_ms / 1000,
        namespaces=_namespaces(store, entry),
        parameters=tuple(entry.parameters.items()),
        derives=_partitions(write for write in store.writes if write.derives),
        reads=_partitions(store.reads) if any(write.derives for write in store.writes) else (),
    )


def _partitions(entries: Iterable[_Write | _Read]) -> tuple[PartitionMapping, ...]:
    return tuple(PartitionMapping(any_pattern(e.match), e.partition) for e in entries)


def settings_of(entry: MemoryEntry) -> object:
    """Return what must be equal in every file that has the section."""
    return entry.model_dump(exclude=_MAPPINGS)


def has_default_matrix(entry: MemoryEntry | None) -> bool:
    """Return whether a section leaves the matrix of sources and classes to the default."""
    return entry is not None and "sources" not in entry.model_fields_set


def states_settings(entry: MemoryEntry) -> bool:
    """Return whether a section has settings of its own; others take those of another file."""
    return bool(entry.model_fields_set - _MAPPINGS)


def _write(entry: _Write, store: str) -> WriteMapping:
    return made(
        WriteMapping,
        entry,
        pattern=", ".join(pattern.text for pattern in entry.match),
        matches=any_pattern(entry.match),
        store=store,
        target=MemoryClass[entry.target],
        fallback=MemoryClass[entry.fallback] if entry.fallback else None,
        target_path=entry.class_from,
        methods=frozenset(entry.methods),
        path=_path_test(entry.path),
        read_back=made(ReadBack, entry.read_back) if entry.read_back else None,
    )


def _proposal(entry: ProposalEntry) -> ProposalMapping:
    return made(
        ProposalMapping,
        entry,
        matches=any_pattern(entry.match),
        target_path=entry.class_from,
        target=MemoryClass[entry.target],
    )


def _path_test(pattern: Pattern | None) -> Callable[[str], bool] | None:
    if pattern is None:
        return None
    test = pattern.matches
    return lambda url: test(urlsplit(url).path) is True


def _suspicious(expressions: Sequence[str]) -> Callable[[str], bool]:
    compiled = tuple(re2.compile(text) for text in expressions)
    return lambda text: any(found.search(text) is not None for found in compiled)
