"""Tool mappings of a policy, and its ``memory:`` section.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args

from guard.core.labels import VOUCHING, Channel
from guard.core.memory import MemoryClass, Permission, SecondLook, SourceType
from guard.core.model import Integrity, Json, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from guard.core.tool_patterns import ToolPattern


class PathQuery(Protocol):
    """A compiled JSONPath (RFC 9535): the values it selects, with their normalised paths."""

    text: str
    parts: tuple[PathQuery, ...]
    """The paths that it joins to one name; empty where it is one path."""

    @property
    def name(self) -> str | None:
        """The member of the document without which it selects nothing, where there is one."""
        ...

    @property
    def member(self) -> str | None:
        """The member of the document that it selects whole, where it is of that form."""
        ...

    @property
    def path(self) -> str:
        """The normalised path of ``name``, the document's where there is none."""
        ...

    def find(self, document: Json) -> Iterable[tuple[str, Json]]:
        """Yield the values it selects in a document."""
        ...


@dataclass(frozen=True, slots=True)
class ResultField:
    """A part of a result that is declared: who can write it, and so what it may vouch for."""

    path: PathQuery
    label: Integrity
    channel: Channel = Channel.RESULT
    """A directory, an own record or a counterparty; ``RESULT`` where only the label is declared."""
    names: PathQuery | None = None
    """Location of the name that people call an entry of a directory by."""
    kinds: frozenset[str] = frozenset()
    """Kinds of destination that it vouches for; empty for every kind."""
    serves: tuple[str, ...] = ()
    """Further services that its accounts, channels and other handles are valid in."""
    complete: bool = False
    """Every handle of its service is in it."""
    ends: float = 0.0
    """End of the declaration, in seconds since the epoch; 0 for never."""


@dataclass(frozen=True, slots=True)
class MessageFields:
    """Paths of messages in a result, and of their ids and senders."""

    each: PathQuery
    id: PathQuery
    sender: PathQuery


@dataclass(frozen=True, slots=True)
class ItemFields:
    """Paths of the items in a memory's result, and of their names."""

    each: PathQuery
    id: PathQuery


@dataclass(frozen=True, slots=True)
class LinkFields:
    """Paths of messages with links in a result, and of the names of their locations."""

    each: PathQuery
    text: PathQuery
    sender: PathQuery
    place: PathQuery | None = None
    """In the arguments: the channel or the person whose messages are read."""


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server that has tool mappings of its own."""

    name: str
    listener: str = ""
    """``HOST:PORT`` of the guard's listener in front of it; empty for any."""
    upstream: str = ""
    """Its host, ``host:port``, or either with a path; empty for any."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Digests of its tools' definitions that the policy declares."""

    @property
    def is_placed(self) -> bool:
        """True for one server; an entry without listener and upstream is about all."""
        return bool(self.listener or self.upstream)

    def is_at(self, listener: str, upstream: str) -> bool:
        """Return whether a call by that listener to that upstream is one to this server."""
        if self.listener and self.listener != listener:
            return False
        if not self.upstream:
            return True
        host = upstream.partition("/")[0]
        return self.upstream in {upstream, host, host.rpartition(":")[0]}


ActionName: TypeAlias = Literal[
    "send",
    "pay",
    "buy",
    "share",
    "invite",
    "publish",
    "delete",
    "overwrite",
    "change_access",
    "change_credential",
    "change_setting",
    "execute",
    "schedule",
    "react",
]
"""Action that a mapping can declare: a change that a call makes in the world."""
ACTIONS: Final = frozenset(get_args(ActionName))


@dataclass(frozen=True, slots=True)
class ActionMapping:
    """The action of a tool, and the arguments that name its object."""

    name: ActionName
    objects: tuple[PathQuery, ...] = ()
    amount: PathQuery | None = None
    currency: PathQuery | None = None
    """Arguments of a payment: a remembered payee is good up to the approved amount."""


@dataclass(frozen=True, slots=True)
class ArgumentRules:
    """Arguments of a tool besides destinations and body."""

    ignore: tuple[PathQuery, ...] = ()
    """Arguments that are neither; only a mailbox or URL in one is a destination."""
    inert: tuple[PathQuery, ...] = ()
    """Arguments in which an address is not a recipient.  Undeclared arguments are searched."""
    guarded: tuple[PathQuery, ...] = ()
    """Arguments whose values are traced like destinations."""
    unfurls: tuple[PathQuery, ...] = ()
    """Texts for whose links the service loads a preview: each link is a send to its host."""
    sql: tuple[PathQuery, ...] = ()
    """Arguments that are statements of SQL."""
    whole: frozenset[str] = frozenset()
    """Arguments that are declared as a whole, with destinations and body; the rest of a send is
    searched."""


@dataclass(frozen=True, slots=True)
class MessageReading:
    """Messages and pages that a tool reads or answers."""

    reply: PathQuery | None = None
    """Argument that names the answered message."""
    messages: MessageFields | None = None
    """Messages in the results."""
    links: LinkFields | None = None
    """Messages whose links may be read, word for word, if their sender or location was named."""
    named_by: PathQuery | None = None
    """Argument that names the page of a read; a page that the user typed, exactly, may be read."""
    delegates: frozenset[str] = frozenset()
    """Actions whose recipient a result may supply, if the prompt names its document."""
    supplies: tuple[PathQuery, ...] = ()
    """Parts of a result that supply all recipients in them; none: the only one in the text."""


@dataclass(frozen=True, slots=True)
class MappingSource:
    """Entry of a policy file that became a mapping."""

    line: int = 0
    patterns: tuple[ToolPattern, ...] = ()
    """Single patterns that ``pattern`` and ``matches`` join."""


@dataclass(frozen=True)
class ToolMapping:
    """Declarations of the policy for the tools that one pattern claims.

    It has no slots: a call of a server that is not listed needs a reduced copy, made once.
    """

    pattern: str
    """Globs or expressions as written, for messages."""
    matches: Callable[[str], bool]
    role: Role
    destinations: tuple[PathQuery, ...] = ()
    body: tuple[PathQuery, ...] = ()
    arguments: ArgumentRules = ArgumentRules()
    action: ActionMapping | None = None
    source: Integrity = Integrity.UNTRUSTED
    """Label of its results."""
    fields: tuple[ResultField, ...] = ()
    """Declared parts of its results."""
    store: str = ""
    """Name of the memory that it reads or writes; empty for other tools."""
    item: PathQuery | None = None
    """Argument that names the item of that memory."""
    items: ItemFields | None = None
    """Names of items in its results: those that a search shows, or the saved one."""
    reading: MessageReading = MessageReading()
    private: bool = False
    """True if its results must not go to a recipient without an attestation."""
    may_lack_receivers: bool = False
    """True if a send without a destination sends nothing (a calendar entry without guests)."""
    server: str = ""
    """Name of the one server whose tools it maps; empty for every server."""
    service: str = ""
    """Name of the service whose tools it maps; empty if the policy names none."""
    attests: bool = True
    """False for the results of a server that only uses the name: they vouch for nothing."""
    declared: MappingSource = MappingSource()
    body_members: frozenset[str] | None = field(init=False, compare=False)
    """Arguments that are body as a whole; None if that depends on the call."""

    def __post_init__(self) -> None:
        """Compute the sets that every call needs."""
        body, rules = _members(self.body), self.arguments
        object.__setattr__(self, "body_members", body if len(body) == len(self.body) else None)
        paths = chain(self.destinations, self.body, rules.guarded, rules.ignore, rules.inert)
        object.__setattr__(self, "arguments", replace(rules, whole=_members(paths)))

    def paths(self, write: WriteMapping | None) -> list[PathQuery]:
        """Return the paths of all declared arguments; those of a memory's write as well."""
        rules, reading = self.arguments, self.reading
        queries: list[PathQuery | None] = [*self.destinations, *self.body, *rules.guarded]
        queries += (*rules.ignore, *rules.inert, self.item, reading.reply, reading.named_by)
        if write is not None:
            queries += (*write.content, write.key, write.partition, write.target_path)
            queries += (write.nonce, write.token)
        return [part for query in queries if query is not None for part in query.parts or (query,)]

    def declared_at(self, at: float) -> ToolMapping:
        """Return the mapping without the fields that are declared no longer."""
        if not any(one.ends for one in self.fields):
            return self
        return replace(self, fields=tuple(f for f in self.fields if not f.ends or at < f.ends))

    @cached_property
    def unattested(self) -> ToolMapping:
        """Copy without all by which a result could vouch for anything."""
        return replace(
            self,
            attests=False,
            source=Integrity.UNTRUSTED,
            fields=tuple(one for one in self.fields if one.channel not in VOUCHING),
            reading=replace(self.reading, messages=None, links=None, delegates=frozenset()),
        )

    @cached_property
    def restricting(self) -> ToolMapping:
        """Unattested copy, also without all that a call is allowed because of the mapping."""
        bare = self.unattested
        return replace(
            bare,
            arguments=replace(bare.arguments, ignore=(), inert=()),
            reading=replace(bare.reading, named_by=None),
            may_lack_receivers=False,
        )

    @cached_property
    def answered(self) -> ToolMapping:
        """Copy for an answer that may be another server's: not a memory's, nor a named page's."""
        return replace(self, store="", reading=replace(self.reading, named_by=None))


def bare_mapping(mapping: ToolMapping) -> ToolMapping:
    """Return a mapping without the patterns of its tools, to be pickled."""
    return replace(mapping, matches=bool, declared=replace(mapping.declared, patterns=()))


def _members(queries: Iterable[PathQuery]) -> frozenset[str]:
    """Return the arguments that some queries select as a whole."""
    return frozenset([name for query in queries if (name := query.member) is not None])


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Query that finds out if a write of unknown fate arrived."""

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Argument name to a JSONPath into the write's arguments, or a constant."""
    path: str = "/mcp"
    """Path at which the memory server speaks MCP, behind the listener of the write."""


@dataclass(frozen=True, slots=True)
class WriteMapping:
    """Declarations of the policy for the writes that one pattern claims."""

    pattern: str
    matches: Callable[[str], bool]
    store: str
    """Empty where it is left to the tool's mapping to name it."""
    target: MemoryClass
    fallback: MemoryClass | None = None
    """A lower class that a refused candidate may take instead, marked as tainted."""
    content: tuple[PathQuery, ...] = ()
    """Locations of the remembered text; none means all arguments."""
    key: PathQuery | None = None
    partition: PathQuery | None = None
    target_path: PathQuery | None = None
    """Location of the class that the caller asks for; it can only ask, never grant."""
    nonce: PathQuery | None = None
    token: PathQuery | None = None
    methods: frozenset[str] = frozenset()
    """For plain HTTP: only requests with one of these methods."""
    path: Callable[[str], bool] | None = None
    """For plain HTTP: only requests whose path this claims."""
    read_back: ReadBack | None = None

    def claims(self, tool: str, method: str, path: str) -> bool:
        """Return whether it claims a call; of a plain request, by its method and path as well."""
        return (
            self.matches(tool)
            and (not self.methods or method in self.methods)
            and (self.path is None or self.path(path))
        )


@dataclass(frozen=True, slots=True)
class ReadMapping:
    """Tools that read a store, and which of its partitions: a closed one is not read."""

    matches: Callable[[str], bool]
    store: str
    """Empty where it is left to the tool's mapping to name it."""
    partition: PathQuery | None = None


@dataclass(frozen=True, slots=True)
class ProposalMapping:
    """Tools whose results can propose memory updates, and where in the result these are."""

    matches: Callable[[str], bool]
    updates: PathQuery
    content: PathQuery
    target_path: PathQuery | None = None
    nonce: PathQuery | None = None
    key: PathQuery | None = None
    store: str = "default"
    target: MemoryClass = MemoryClass.L1


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Bounds of the gate; times in seconds."""

    max_chars: int = 64 * 1024
    stage_ttl: int = 3600
    nonce_ttl: int = 30 * 86400
    keep_refused: int = 7 * 86400
    unknown_after: int = 60
    degrade_after: int = 1
    untrust_after: int = 3
    recover_after: int = 86400


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """The sequential test on what a principal's committed items say."""

    alarm: float = 8.0
    """Evidence (natural log of the likelihood ratio) at which a subject is reported."""
    base_rate: float = 0.05
    pushed_rate: float = 0.5
    lower_trust: bool = False


@dataclass(frozen=True, slots=True)
class StructureMapping:
    """Changes of a save to the structure of a graph memory; paths are into its arguments."""

    matches: Callable[[str], bool]
    change: str
    """``node``, ``edge``, ``merge``, ``delete_node`` or ``delete_edge``."""
    each: PathQuery
    """One change each: an object, or a string that is the name of the one node."""
    one: str = ""
    """Member of it with the first node; a member with a list of nodes means one change each."""
    two: str = ""
    relation: str = ""
    weight: str = ""
    parents: str = ""
    """Member with the nodes that it is derived from."""
    item: bool = False
    """For ``node``: whether a recall can return it."""


@dataclass(frozen=True, slots=True)
class RankedMapping:
    """Paths of the items of a recall, best first, and of its question."""

    matches: Callable[[str], bool]
    items: PathQuery
    """Into the result: the items in the order of the answer."""
    id: PathQuery
    """Into an item: the name of its node."""
    seeds: PathQuery | None
    """Start of the search: a path into the arguments, or into the result with ``seeds_in_result``;
    None if it is unknown."""
    seeds_in_result: bool = False
    unless: PathQuery | None = None
    """Into the arguments: what makes the store rank in a way that is not replayed."""
    names_in_text: bool = False
    """True if the seeds are the nodes whose names stand in a text, and not names themselves."""


@dataclass(frozen=True, slots=True)
class PartitionMapping:
    """Tools that write or read a part of a store, and the path of its name."""

    matches: Callable[[str], bool]
    partition: PathQuery | None
    """Into the arguments; None where the whole store is meant."""


@dataclass(frozen=True, slots=True)
class NamespaceMember:
    """Argument of some tools that names the namespace of a store, or lists several."""

    matches: Callable[[str], bool]
    member: str
    """Empty where none does."""
    many: bool = False
    """True for a list of namespaces."""


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Namespaces that keep apart the items that do not count, and recalls without them."""

    default: str
    """Namespace of a call that names none."""
    suffix: str
    """Ending of the names of untrusted namespaces: writers that do not count write into these."""
    writes: tuple[NamespaceMember, ...]
    reads: tuple[NamespaceMember, ...]
    servers: frozenset[str] = frozenset()
    """Listeners whose upstream writes into an untrusted namespace, whatever a call names."""
    path: str = "/mcp"
    """Path at which the store speaks MCP, behind the listener of the recall."""
    deadline: float = 10.0
    """Seconds that asking it may take."""


@dataclass(frozen=True, slots=True)
class SelectionPolicy:
    """Writers whose structure counts in a store's answers, and the effect of other structure."""

    store: str
    selector: str
    """Empty where its ranking cannot be replayed."""
    top_k: int
    ranked: tuple[RankedMapping, ...]
    structure: tuple[StructureMapping, ...]
    duplicates_add: bool = True
    """True if an edge that is written again weighs more; false if it is left as it was."""
    principals: frozenset[str] = frozenset()
    """Principals whose writes count; empty for everybody's."""
    sources: frozenset[SourceType] = frozenset()
    """Sources of the writes that count; empty for all that the label allows."""
    label: Integrity = Integrity.AUTHENTICATED
    """The least label of a write that counts."""
    asks_always: bool = False
    """True if the items of an answer vouch for nothing when any of them rose."""
    annotates: bool = False
    """True if an answer in which an item rose, or which cannot be replayed, is given a note."""
    substitutes: bool = False
    """True if its items are released in the authenticated order instead, where that is possible."""
    fidelity: float = 0.95
    """Share of recent answers that the replica must have made alike."""
    deadline: float = 1.0
    """Seconds that a replay may take."""
    namespaces: Namespaces | None = None
    """For an answer that cannot be replayed: how the store is asked without what does not count."""
    derives: tuple[PartitionMapping, ...] = ()
    """Writes from whose content the store derives structure by itself."""
    parameters: tuple[tuple[str, object], ...] = ()
    """Names and values that the selector is made with."""
    reads: tuple[PartitionMapping, ...] = ()
    """Reads of a store that derives structure, ranked or not."""

    def ranks(self, tool: str) -> RankedMapping | None:
        """Return where the answer of a tool has its items, None for a tool that ranks nothing."""
        return next((one for one in self.ranked if one.matches(tool)), None)


@dataclass(frozen=True, slots=True)
class DetectionSettings:
    """Treatment of committed saves that look poisoned."""

    withholds: bool = False
    """True if they are contained, where the detector was tried on clean writes; else people are
    asked before what follows from them is sent."""
    threshold: float = 0.5
    """Probability from which on a save looks poisoned."""


@dataclass(frozen=True, slots=True)
class PropagationSettings:
    """Records that make the spread of a memory item traceable and reversible."""

    events: int = 200_000
    """Saves, sends and recalls of a tenant that are on record; of more, the oldest go."""
    versions: int = 0
    """Versions of items whose text is kept, enciphered, to be restored; 0 keeps none."""
    detection: DetectionSettings | None = None
    """Treatment of findings about committed saves; None: no effect."""


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """The ``memory:`` section of a policy, compiled."""

    matrix: Mapping[tuple[SourceType, MemoryClass], Permission]
    second_look: Mapping[MemoryClass, SecondLook]
    writes: tuple[WriteMapping, ...]
    proposals: tuple[ProposalMapping, ...] = ()
    reads: tuple[ReadMapping, ...] = ()
    suspicious: Callable[[str], bool] = frozenset[str]().__contains__
    suspicious_destinations: bool = True
    """True if an unknown destination counts as suspicious content."""
    coupling: bool = True
    """True if a result that proposes a refused update is withheld."""
    limits: MemoryLimits = MemoryLimits()
    drift: DriftSettings | None = None
    is_default: bool = False
    """True for the default matrix: saves into a declared store are writes without an entry, and a
    destination that this session attests is not suspicious."""

    def about(self, tool: str, method: str, path: str) -> MemoryPolicy:
        """Return the mappings that claim one call as a write, and nothing else, to be pickled."""
        claiming = (
            replace(mapping, matches=bool, methods=frozenset(), path=None)
            for mapping in self.writes
            if mapping.claims(tool, method, path)
        )
        return MemoryPolicy({}, {}, tuple(claiming), is_default=self.is_default)

    def write(
        self, tool: str, method: str = "", path: str = "", store: str = ""
    ) -> WriteMapping | None:
        """Return the first mapping that claims a tool, or a plain request, as a memory write.

        Two servers may have a tool of one name: one of the store that the tool's own mapping names
        comes before the others.
        """
        found: WriteMapping | None = None
        for mapping in self.writes:
            if mapping.claims(tool, method, path):
                if not store or mapping.store in {"", store}:
                    return mapping
                found = found or mapping
        return found

    def read(self, tool: str, store: str = "") -> ReadMapping | None:
        """Return the first mapping that claims a tool as a read of a store; as for a write."""
        found: ReadMapping | None = None
        for mapping in self.reads:
            if mapping.matches(tool):
                if not store or mapping.store in {"", store}:
                    return mapping
                found = found or mapping
        return found

    def proposal(self, tool: str) -> ProposalMapping | None:
        """Return the first mapping that claims a tool's results."""
        return next((m for m in self.proposals if m.matches(tool)), None)
