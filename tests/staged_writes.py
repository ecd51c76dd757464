"""Writes of memory, as the gate stages them."""

from dataclasses import replace

from guard.core.memory import Candidate, GateDecision, MemoryClass, SourceEvidence, SourceType
from guard.core.model import Identity, Integrity
from guard.memory.candidate import content_digest

FROM_A_TOOL = SourceEvidence(frozenset({SourceType.TOOL_RESULT}), Integrity.UNTRUSTED)
FROM_THE_MODEL = SourceEvidence(frozenset({SourceType.MODEL_INFERENCE}), Integrity.ADVISORY)


def staged_write(ident="c1", **fields):
    """Return a candidate that an untrusted result stands behind, with some fields changed."""
    made = Candidate(
        id=ident,
        identity=Identity("p", "s"),
        tool="save",
        store="facts",
        partition="default",
        keys=("k",),
        target=MemoryClass.L2,
        fallback=None,
        texts=("v",),
        content="v",
        digest=content_digest("save", "v"),
        text_digest="t" * 64,
        nonce=ident,
        token="",
        evidence=FROM_A_TOOL,
    )
    return replace(made, **fields)


async def leave_in_flight(staging, made):
    """Commit a write whose answer never comes."""
    facts = await staging.stage(made, "r")
    decision = GateDecision(commits=True, target=made.target, tainted=True)
    assert await staging.commit(made, decision, facts, "r") == ""
