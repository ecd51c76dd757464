"""Sources of values: rungs, label records and attestations.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final

from guard.core.frozen import frozen

if TYPE_CHECKING:
    from guard.core.model import Destination, Integrity


class Rung(IntEnum):
    """The attestation ladder, strongest first (docs/explanation/trust-model.md)."""

    LISTED = 1
    """Internal, or on the policy's allowlist."""
    GRANTED = 2
    """A human's grant for exactly this call."""
    PROMPTED = 3
    """Named by the user on the authenticated prompt channel, in this session."""
    ESTABLISHED = 4
    """This principal has sent to exactly this receiver with this tool before, where the user named
    it or a person approved it with *remember*."""
    REPLY = 5
    """The sender of a message that the user named."""
    REMEMBERED = 6
    """In memory, or in a result field, of at least authenticated integrity."""
    CLAIMED = 7
    """Claimed by the agent to be the user's words."""
    UNKNOWN = 8
    TAINTED = 9
    """Derived from untrusted text, or from memory tainted by it."""
    DENIED = 10

    label: str
    """The name used in policies, verdicts and metrics."""

    def __init__(self, _: int) -> None:
        self.label = self.name.lower()


class ActionRung(IntEnum):
    """The ladder of actions, strongest first: the attestation of what a call changes."""

    LISTED = 1
    """The policy lists the action for this tool."""
    GRANTED = 2
    """A person's grant for exactly this call."""
    REQUESTED = 3
    """A prompt of this session requests it, on this object if it names one of that kind."""
    ESTABLISHED = 4
    """A person approved it with *remember* for this principal and tool."""
    UNREQUESTED = 5
    TAINTED = 6
    """Likewise, and only untrusted text names its object."""

    label: str
    """Name used in policies and verdicts."""

    def __init__(self, _: int) -> None:
        self.label = self.name.lower()


RUNGS = tuple(rung.name.lower() for rung in Rung)
"""Names of the rungs, strongest first."""


class Channel(StrEnum):
    """Through which channel a value was first seen."""

    RESULT = "result"
    FIELD = "field"
    PROMPT = "prompt"
    SAVED = "saved"
    IMPORTED = "imported"
    MEMORY = "memory"
    """A memory's answer for which there is no record."""
    READ = "read"
    """Marks the first untrusted text that a session read."""
    CLAIM = "claim"
    """Role ``user`` of a conversation with a model."""
    DIRECTORY = "directory"
    """A result field that only its owner writes: contacts, a company's directory."""
    OWN_RECORD = "own_record"
    """A service's record of what this account itself has sent or paid."""
    COUNTERPARTY = "counterparty"
    """A result field that an outsider has set: says who, never that he may receive."""
    APPROVAL = "approval"
    """A person's approval that is to be remembered."""
    SESSION_APPROVAL = "session_approval"
    """Likewise, in its session only."""
    SELECTION = "selection"
    """In a recalled item that structure of somebody unauthenticated has brought forward."""
    UNREPLAYED = "unreplayed"
    """In an answer of a graph memory whose selection could not be replayed."""


CHANNELS = tuple(Channel)
"""In the order in which sealed records number them: a new channel goes last."""
VOUCHING = frozenset({Channel.DIRECTORY, Channel.OWN_RECORD})
"""Result fields that may say who receives: nobody but their owner writes them."""


@frozen
class LabelRecord:
    """Label and source of one value in one location."""

    label: Integrity
    channel: Channel
    call: int
    """Index of the call in its session or recorded run, -1 where there was none."""
    at: float
    """Seconds since the epoch."""
    session: bytes
    """Digest of the session."""
    source: str
    """The tool, shortened; the store's name for imports."""
    sealed: bool = True
    """False where the record's MAC does not fit: it then counts as untrusted."""
    origin: bytes = b""
    """Mark of the one sender or URL host that the text came from; empty where none is known."""
    principal: bytes = b""
    """Digest of the one principal that it holds for; empty for every principal of the tenant."""
    until: float = 0.0
    """End of the record, in seconds since the epoch; 0 if it ends with its label set."""
    services: tuple[bytes, ...] = ()
    """Marks of the services whose calls it vouches in; empty for a value that services share."""


@frozen
class Attestation:
    """Rung of one value of a call, with its evidence."""

    rung: Rung
    why: str
    """From a closed set, e.g. ``prompt``, ``authenticated_memory``, ``untrusted_result``."""
    record: LabelRecord | None = None
    """The record that decided, if one did."""
    vector: str = ""
    """For what is not attested: ``memory``, ``in_session``, ``earlier_session`` or ``unknown``."""
    same_session: bool = False
    saturated: bool = False
    """For an unknown value: a bound was reached, so it may be tainted."""


@frozen
class SavedText:
    """The label of a text that is about to be saved: of its values and what its session read."""

    label: Integrity
    """The minimum over the values in it and what its session has read."""
    origins: frozenset[bytes] = frozenset()
    """Marks of the sources that the untrusted values in it came from."""
    prompted: bool = False
    """True if all of it is a prompt of the user in this session, word for word."""
    attested: frozenset[str] = frozenset()
    """Values in it on an attesting rung for this session: the user typed them, for example."""


@frozen
class PrivateText:
    """Amount and source of private text in a send."""

    passages: int = 0
    record: LabelRecord | None = None
    """Record of the passage that was read first; None without a whole passage."""
    told: float = 0.0
    """Share of one private sentence or code of which it has something that its receiver has been
    told by now, over calls."""
    complete: bool = True
    """False where it has more than is looked up of one call."""


@frozen
class Evidence:
    """Records of one value in the store: at most one per location."""

    prompt: LabelRecord | None = None
    """Named by the user in this session."""
    reply: LabelRecord | None = None
    """Sender of a message that the user named in this session."""
    answered: LabelRecord | None = None
    """The message that the value names, as its service told this session of it; the origin marks
    who wrote it."""
    field: LabelRecord | None = None
    """In a directory or an own record that this session has read."""
    joined: LabelRecord | None = None
    """Likewise, in the one entry that has a name which the user gave in this session."""
    written: LabelRecord | None = None
    """An agent of this tenant wrote it into some record, and nobody had vouched for it."""
    own: LabelRecord | None = None
    """Saved by this principal, with the scope and the end of what attested it then."""
    memory: LabelRecord | None = None
    """Label of the value in a memory of this tenant."""
    memory_taint: LabelRecord | None = None
    denied: LabelRecord | None = None
    """The user said no to it, in whatever session of this principal."""
    claim: LabelRecord | None = None
    """In this session, the agent says that the user named it."""
    taint: LabelRecord | None = None
    """From untrusted text that this principal read, in whatever session."""
    selected: LabelRecord | None = None
    """In an item whose place in a recall of this principal unauthenticated structure decided."""


@frozen
class Context:
    """Evidence on a call that counts for all of its values."""

    session: bytes
    principal: bytes = b""
    """Digest of the principal."""
    at: float = 0.0
    """Time of the query, in seconds since the epoch."""
    granted: bool = False
    saturated: bool = False
    """A bound of the principal was reached, or a result was released unlabelled."""
    read_untrusted: LabelRecord | None = None
    """The first untrusted text that the session read."""
    established: dict[Destination, LabelRecord] = field(default_factory=dict)
    """Receivers that this principal has sent to with this tool before."""
    selects: bool = False
    """True if the selection of some store is replayed, so that a value may be marked by one."""
    remembers: bool = False
    """True if the session, or lately the principal, has read memory; a reply must then not carry it
    outside."""
    values: dict[str, Evidence] = field(default_factory=dict)
    """By value."""
    services: frozenset[bytes] | None = None
    """Marks of the service that is called; None where it does not matter which."""
    delegates: str = ""
    """Action of the call, if a document that the prompt names may supply its recipient."""
    closed: bool = False
    """True if only the owner of the called service can create a handle in it."""


@frozen
class LabelSet:
    """One bounded set of label records in the store.

    Records lie in areas by field; an area is one key, so it expires as a whole.
    """

    kind: str
    """Kind of its records, one word: a part of the key's name."""
    owner: tuple[str, ...]
    """Owner of the set; texts of any length, digested into the key's name."""
    part: str = ""
    """Part of a set that is spread over several keys."""
    ttl: int = 0
    """Milliseconds it outlives its last write; 0 keeps it."""
    limit: int = 0
    """Fields it may have; beyond it nothing is added and the principal is marked full."""


@frozen
class LabelLookup:
    """Fields of one label set to read."""

    area: LabelSet
    fields: tuple[bytes, ...]


@frozen
class LabelQuery:
    """Label records to read with an attempt, by what they are read for."""

    values: tuple[LabelLookup, ...] = ()
    """Evidence on the values in the call."""
    named: LabelLookup | None = None
    """Messages, links and places, whose records end in names: a name that the user has said in
    this session vouches for the value.  The names are looked up in the same set."""
    recalls: LabelLookup | None = None
    """Recalls of the session; one field."""
    definition: LabelLookup | None = None
    """The mark of a tool whose definition has changed; one field."""
    counters: LabelLookup | None = None
    """Counters that the attempt adds to: field and amount in turn."""
    pieces: LabelLookup | None = None
    """Pieces of private text, of which the attempt tells the receivers in ``told``."""
    told: tuple[LabelSet, ...] = ()
    """Private text that each receiver has been told, one set per receiver; with ``pieces``."""
    repeats: bool = False
    """True if ``values`` is one object for equal queries: the store may then keep what it has made
    of it."""
    seldom: tuple[int, int] = (0, 0)
    """Index in ``values`` of the first of the look-ups in sets that seldom exist, and the number of
    them in a row; one question tells if none of these sets exists."""


@frozen
class LabelReply:
    """The answer to a :class:`LabelQuery`, part by part; None where there is no record."""

    values: tuple[object, ...] = ()
    """One record per field, in the order of the look-ups and of their fields."""
    named: tuple[object, ...] = ()
    """Per field the record and the records of the names in it, as a pair."""
    recalls: object = None
    definition: object = None
    counters: tuple[object, ...] = ()
    """Value of each counter with the attempt, and None for its amount, in turn."""
    told: int = 0
    """The most that a receiver has been told of one unit of private text that a piece is of, with
    the attempt, in thousandths."""


NO_QUERY: Final = LabelQuery()
NO_REPLY: Final = LabelReply()
"""Reply to an empty query."""


class LabelWriteMode(StrEnum):
    """Effect of a write on an existing field."""

    KEEP = "keep"
    """The first record stays."""
    TAINT = "taint"
    """The first record stays, but one of a counterparty gives way to one of anybody else."""
    RAISE = "raise"
    """A record of a higher label replaces it."""
    REPLACE = "replace"
    LIFT = "lift"
    """The field is removed; nothing is written."""
    APPEND = "append"
    """It is one more entry of a bounded list; where there is no room it is left out, silently."""
    NUMBER = "number"
    """The field counts how many there were; the first and the last of them lie behind it, each in
    a field of its own (:func:`guard.provenance.lineage.numbered`).  What no longer fits is left
    out as with ``append``."""
    GATHER = "gather"
    """It is put behind what the field has, once, as long as there is room; without a seal."""
    INDEX = "index"
    """The field is one more member of a sorted set, by its end in seconds since the epoch.  Members
    that have ended leave the set; beyond the area's limit so do those that end first."""
    LOG = "log"
    """It is one more entry of a numbered stream, whose oldest go beyond the area's limit."""


@frozen
class LabelWrite:
    """Records to add to one area with a completion."""

    area: LabelSet
    mode: LabelWriteMode
    entries: tuple[tuple[bytes, bytes], ...]
    unless: LabelSet | None = None
    """Skip an entry whose field, with ``A`` behind it, is in this area."""
