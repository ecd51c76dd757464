"""Builders of candidates and gates; the matrix is that of the shipped fact store profile."""

import pytest

from guard.core.memory import MemoryClass, SourceEvidence, SourceType
from guard.core.model import Identity, Integrity
from guard.memory.candidate import text_digest
from guard.memory.gate import CommitGate
from tests.staged_writes import staged_write


@pytest.fixture
def gate(fact_policy):
    """Return its gate."""
    return CommitGate(fact_policy.memory, fact_policy.status_of)


@pytest.fixture
def candidate():
    """Return a builder of candidates."""

    def build(
        text="Ada prefers tea",
        target="L3",
        types=("model_inference",),
        integrity=Integrity.ADVISORY,
        **fields,
    ):
        sources = SourceEvidence(
            frozenset(SourceType(name) for name in types),
            integrity,
            tuple(fields.pop("sources", ())),
        )
        usual = {
            "id": "call-1",
            "identity": Identity(fields.pop("principal", "p"), "s"),
            "tool": "save_fact",
            "keys": ("drink",),
            "target": MemoryClass[target],
            "texts": (text,),
            "content": text,
            "digest": text_digest((text, "x")),
            "text_digest": text_digest((text,)),
            "nonce": "n-1",
            "evidence": sources,
        }
        return staged_write(**(usual | fields))

    return build
