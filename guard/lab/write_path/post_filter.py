"""The two systems that look after the write: a heuristic filter, and the gate's policy, late."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from guard.core.memory import (
    Candidate,
    MemoryClass,
    SourceEvidence,
    SourceType,
    StagedFacts,
)
from guard.core.model import Identity, Integrity
from guard.lab.write_path.rig import POLICY
from guard.memory_gate.candidate import text_digest
from guard.memory_gate.gate import CommitGate
from guard.policy_files import load_policies

if TYPE_CHECKING:
    from guard.lab.write_path.trials import Trial

KEYWORDS: Final = ("ignore previous", "system prompt", "always", "from now on", "override")
PATTERNS: Final = (re.compile(r"(?i)\b(must|never)\b.*\b(forward|send)"), re.compile(r"[<>{}]{2,}"))
LONGEST: Final = 2000


def heuristics(content: str) -> str:
    """Return why a three-layer filter (keywords, patterns, shape) rejects a text, or nothing."""
    lowered = content.lower()
    if any(word in lowered for word in KEYWORDS):
        return "keyword"
    if any(pattern.search(content) for pattern in PATTERNS):
        return "pattern"
    return "shape" if len(content) > LONGEST else ""


@lru_cache(maxsize=1)
def gate() -> CommitGate:
    """Return the gate of the benchmark's policy."""
    policy = load_policies([POLICY])
    if policy.memory is None:
        msg = "the benchmark's policy has no memory section"
        raise ValueError(msg)
    return CommitGate(policy.memory, policy.standing)


def candidate(
    content: str, wanted: MemoryClass, types: frozenset[SourceType], integrity: Integrity
) -> Candidate:
    """Return a candidate with the labels given."""
    digest = text_digest((content,))
    return Candidate(
        id="late",
        identity=Identity("bench", "bench"),
        tool="memory_write",
        store="measured",
        partition="default",
        key=digest,
        target=wanted,
        fallback=None,
        texts=(content,),
        content=content,
        digest=digest,
        text_digest=digest,
        nonce="n",
        token="",
        evidence=SourceEvidence(types, integrity),
    )


def facts_of(attack: str) -> StagedFacts:
    """Return what staging would have found for an attack."""
    if attack == "promotion":
        return StagedFacts(item_class=MemoryClass.L4)
    if attack == "replay":
        return StagedFacts(nonce_used=True)
    return StagedFacts(nonce_digest="0" * 64) if attack == "tamper" else StagedFacts()


def late_gate(attempt: Trial) -> str:
    """Return why the gate refuses what was written already, or nothing."""
    types = frozenset({SourceType.TOOL_RESULT, SourceType.MODEL_INFERENCE})
    made = candidate(attempt.content, MemoryClass[attempt.wanted], types, Integrity.UNTRUSTED)
    decision = gate().decide(made, facts_of(attempt.attack))
    return decision.reasons[0] if decision.reasons else ""
