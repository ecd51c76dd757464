"""The words of the memory gate: classes, source types, trust, candidates, reasons.  Pure: no I/O.

After Baek, "Structural Write-Path Control for Non-Formation in Agent Persistent Memory": a write
is a candidate until the gate has committed it, and a refused candidate never becomes state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final

from guard.core.model import Identity, Integrity, Json

if TYPE_CHECKING:
    from collections.abc import Mapping


DEFAULT_STORE: Final = "default"
"""The memory of whatever names none."""


class MemoryClass(IntEnum):
    """Security classes of memory; L1 (what the agent obeys) is the highest, L4 the lowest."""

    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4


class SourceType(StrEnum):
    """Sources of a candidate's text, as seen on the wire and never as the agent claims."""

    USER_INPUT = "user_input"
    MODEL_INFERENCE = "model_inference"
    TOOL_RESULT = "tool_result"
    SELF_EDIT = "self_edit"


class Permission(IntEnum):
    """Treatment of a source type in a class.  Over several source types the greatest wins."""

    COMMIT = 0
    ELEVATED = 1
    """Commit unless the content is suspicious."""
    TOKEN = 2
    """Commit only with a human's promotion token."""
    REFUSE = 3


class Trust(IntEnum):
    """Trust in a source or principal.  Refusals lower it; time or an operator raises it."""

    TRUSTED = 0
    DEGRADED = 1
    UNTRUSTED = 2


class SecondLook(StrEnum):
    """Reviewer of a write of a high class."""

    NONE = "none"
    CHECKER = "checker"
    """The suspicious-content check, whatever the source."""
    HUMAN = "human"
    """A promotion token for exactly this content."""


class Fate(StrEnum):
    """State of a candidate."""

    STAGED = "staged"
    REFUSED = "refused"
    COMMITTED = "committed"
    """Released towards the store; no answer yet."""
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """The store said that it did not take it."""
    UNKNOWN = "unknown"
    """The answer was lost.  Never sent again; resolved by reading back, or reported."""
    ABANDONED = "abandoned"
    """Never sent."""


BAD_INPUT: Final = frozenset({"candidate_oversize", "candidate_not_text", "class_unknown"})
AGENT_FAULTS: Final = frozenset(
    {
        "content_hash_mismatch",
        "nonce_replayed",
        "promotion_token_expired",
        "promotion_token_other",
        "promotion_token_replayed",
        "class_unknown",
    }
)
"""Reasons that the caller itself is to blame for, and not what it had read."""
SOURCE_FAULTS: Final = frozenset(
    {"source_class_refused", "suspicious_content", "promotion_token_missing", "source_untrusted"}
)
GATE_REASONS: Final = (
    *sorted(BAD_INPUT),
    "source_class_refused",
    "suspicious_content",
    "source_untrusted",
    "content_hash_mismatch",
    "nonce_replayed",
    "promotion_token_missing",
    "promotion_token_expired",
    "promotion_token_replayed",
    "promotion_token_other",
    "promotion_token_forged",
    "audit_mismatch",
    "second_look_required",
    "second_look_failed",
    "partition_quarantined",
    "write_conflict",
    "stage_lost",
    "proposal_refused",
    "gate_error",
)
"""Every reason the gate refuses for: the closed set of metric labels and audit codes."""


@dataclass(frozen=True, slots=True)
class SourceEvidence:
    """Sources of a save's text, as far as the wire shows them."""

    types: frozenset[SourceType]
    integrity: Integrity
    sources: tuple[bytes, ...] = ()
    """Marks of senders and URL hosts that the text came from; empty where none is known."""
    certain: bool = False
    """True if it came from these and from nothing else that the session has read."""
    attested: frozenset[str] = frozenset()
    """Values in it that an attestation of this session vouches for."""


NO_EVIDENCE: Final = SourceEvidence(frozenset({SourceType.TOOL_RESULT}), Integrity.UNTRUSTED)
"""Evidence on a text of unknown origin: anybody may have written it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A write that was asked for, before the gate has spoken."""

    id: str
    identity: Identity
    tool: str
    store: str
    partition: str
    keys: tuple[str, ...]
    """Keys of the items that it writes, each once."""
    target: MemoryClass
    fallback: MemoryClass | None
    texts: tuple[str, ...]
    """Text to be remembered, as the mapping selects it."""
    content: str
    """The arguments as canonical JSON, without nonce and token; what a reviewer sees."""
    digest: str
    """sha256 (hex) of tool and ``content``."""
    text_digest: str
    """sha256 (hex) of the remembered texts alone: a proposal and the write of it share it."""
    nonce: str
    token: str
    """The promotion token that the caller presented, empty where none."""
    evidence: SourceEvidence
    server: str = ""
    further: tuple[str, ...] = ()
    """Rest of the request: names of members, metadata, other arguments.  Judged alike."""
    problems: tuple[str, ...] = ()
    """Reasons of ``BAD_INPUT``."""


class TokenState(StrEnum):
    """State of a promotion token in the staging store."""

    NONE = "none"
    VALID = "valid"
    EXPIRED = "expired"
    USED = "used"
    OTHER = "other"
    """Presented, and issued for other content, another class or another principal, or never."""
    FORGED = "forged"
    """In the store, and not issued by an operator: its MAC does not fit."""


@dataclass(frozen=True, slots=True)
class StagedFacts:
    """Facts that the staging script read in the step that staged the candidate."""

    nonce_used: bool = False
    nonce_digest: str = ""
    """Content that the nonce was staged for before, empty where it is new."""
    item_classes: frozenset[MemoryClass] = frozenset()
    """Classes of the committed items of the same keys."""
    item_version: int = 0
    """Sum of the versions of these items."""
    tokens: Mapping[MemoryClass, TokenState] = field(default_factory=dict)
    """State of a token for this content and principal, for the target and the fallback class."""
    token_macs: Mapping[MemoryClass, str] = field(default_factory=dict)
    """MAC of each such token, so that this process knows which it has seen used."""
    trust: Trust = Trust.TRUSTED
    """The worst of the principal's and the sources'."""
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Decision of the gate on a candidate."""

    commits: bool
    target: MemoryClass
    """The class it is committed to, or was refused for."""
    tainted: bool
    reasons: tuple[str, ...] = ()
    """Reasons of the refusal, in the order of the checks; empty where it commits."""
    allowed: tuple[MemoryClass, ...] = ()
    """Classes that the same sources could write without a human."""
    uses_token: bool = False
    evidence: Mapping[str, Json] = field(default_factory=dict)
