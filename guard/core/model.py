"""The words of the guard as values: roles, identity, calls, results, findings.  Pure: no I/O."""

from __future__ import annotations

import re
from dataclasses import field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from guard.core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping
Json: TypeAlias = Any
"""A parsed JSON value: None, bool, int, float, str, list of Json, dict of str to Json."""


DEFAULT_TENANT: Final = "default"
"""Tenant of principals without another one."""
TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
"""A ``traceparent`` (W3C Trace Context, 3.2.2), with the trace id as its group."""
UNKNOWN_TASK: Final = "tasks/result"
"""Name of the tool of a result whose call this process has not seen."""


class Role(StrEnum):
    """Operation of a tool, in the terms of the recall-before-send paper."""

    RECALL = "recall"
    LIST = "list"
    SAVE = "save"
    DRAFT = "draft"
    SEND = "send"
    RETRIEVE = "retrieve"
    OTHER = "other"


ROLES: Final = tuple(Role)
"""The roles in the order in which every fixed-size counter stores them."""


READING: Final = frozenset({Role.RECALL, Role.LIST, Role.RETRIEVE})
"""Roles of tools that only read."""


class Integrity(IntEnum):
    """The integrity lattice.  A value's label is the minimum over what it was derived from."""

    UNTRUSTED = 0
    ADVISORY = 1
    AUTHENTICATED = 2
    TRUSTED = 3


class SessionRung(IntEnum):
    """Source of the session key, weakest first.  Ids a client chooses never widen trust."""

    CONNECTION = 0
    TRACEPARENT = 1
    META = 2
    MCP_SESSION = 3
    GUARD_HEADER = 4
    RECORDED = 5
    """From a recorded trace, not from the wire."""


class PrincipalRung(IntEnum):
    """Evidence for the principal, weakest first."""

    ANONYMOUS = 0
    """All unauthenticated traffic of one listener is one principal."""
    CREDENTIAL = 1
    """A proxy credential that the guard checked."""
    RECORDED = 2
    """From a recorded trace, not from the wire."""


@frozen
class Identity:
    """Caller of a tool, with the evidence for it."""

    principal: str
    session: str
    tenant: str = DEFAULT_TENANT
    """Principals that share any store; one Redis hash slot."""
    principal_rung: PrincipalRung = PrincipalRung.ANONYMOUS
    session_rung: SessionRung = SessionRung.CONNECTION


@frozen
class ToolCall:
    """One request of an agent to one tool, as a protocol module read it (hop 2)."""

    id: str
    """The decision id: unique, made by the PEP, named in refusals, audit lines and grants."""
    identity: Identity
    tool: str
    arguments: Mapping[str, Json]
    protocol: str
    """Name of the protocol module that read it."""
    at: float
    """Seconds since the epoch; a trace's ``ts`` in replay."""
    server: str = ""
    """The listener (and so the upstream) the call is on its way to."""
    upstream: str = ""
    """The server whose tool it is, as its definitions are pinned; empty where none are."""
    nonce: str = ""
    """Nonce that makes this memory write unique, as the caller gives it; empty without one."""
    token: str = ""
    """A promotion token that the caller presents for a memory write."""
    context: str = ""
    """Digest of what else makes it this very request: endpoint, headers and ``_meta`` that mean
    something.  Not what differs in every retry."""
    unbound: frozenset[str] = frozenset()
    """Names of arguments that a grant does not bind: the context has what lasts of them, or they
    repeat what was sent before."""
    trace: str = ""
    """The ``traceparent`` that came with it, as :data:`TRACEPARENT` has it, or empty.  It means
    nothing for its verdict."""
    index: int | None = None
    """Its place in a recorded run; live calls are counted by the store."""


class DestinationStatus(StrEnum):
    """Status of a destination before any rule is evaluated."""

    DENIED = "denied"
    MALFORMED = "malformed"
    """It could not be read as a destination one way only."""
    MISSING = "missing"
    """The call sends, and names no destination where the policy says destinations are."""
    EXTERNAL = "external"
    """Neither internal nor on a list; the unknown of the attestation ladder."""
    ALLOWED = "allowed"
    INTERNAL = "internal"


LISTED: Final = frozenset({DestinationStatus.INTERNAL, DestinationStatus.ALLOWED})
"""Statuses of destinations that the policy lists as its own, or as allowed."""


@frozen
class Destination:
    """One canonical destination (see :mod:`guard.values.canonical`)."""

    kind: str
    """``mail``, ``url``, ``host``, ``ip``, ``handle`` (an opaque account, channel or id),
    ``reply`` (the id of a message that is answered), ``text`` (a guarded argument), ``malformed``
    or ``missing``."""
    canonical: str
    """The canonical form; idempotent under canonicalisation."""
    host: str = ""
    """The canonical host that receives the data, empty where there is none."""


@frozen
class UserPrompt:
    """Text that a person typed, with what a form beside it states as structure."""

    text: str
    recipients: tuple[str, ...] = ()
    """Destinations of the person's own choice, each in one text."""
    hosts: tuple[str, ...] = ()
    """Hosts whose pages the person wants to be read."""
    attachments: tuple[str, ...] = ()
    """Files, messages and pages of the person's own choice."""


@frozen
class Span:
    """A part of one text of the arguments."""

    path: tuple[str | int, ...]
    start: int
    end: int
    kind: str
    """Kind of the text, from a closed set; it stands in the replacement."""


@frozen
class Finding:
    """A detector's evidence.  Never a decision."""

    detector: str
    code: str
    """From a closed set per detector; it becomes a reason code and a metric label."""
    score: float | None = None
    """In [0, 1] where the detector gives a probability."""
    detail: str = ""
    """For a human; no argument text, no list contents."""
    data: Mapping[str, Json] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    """Its places in the arguments, in clear text: a redaction replaces them."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Facts that rules may read, by the names that its detector declares; without argument text."""
