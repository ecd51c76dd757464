"""Port of a staging store, as the write path needs it.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from guard.core.mappings import DriftSettings, MemoryLimits
    from guard.core.memory import Candidate, Fate, GateDecision, MemoryClass, StagedFacts, Trust
    from guard.core.model import Identity

    Checker: TypeAlias = Callable[[Candidate, MemoryClass], Awaitable[bool]]
    """The operator's second look: whether a candidate may enter a class.  Never raises."""


class Staging(Protocol):
    """The staging store, isolated from every memory store."""

    limits: MemoryLimits

    async def stage(self, candidate: Candidate, receipt: str) -> StagedFacts:
        """Stage a candidate and return what is known of it, atomically."""
        ...

    async def commit(
        self, candidate: Candidate, decision: GateDecision, facts: StagedFacts, receipt: str
    ) -> str:
        """Commit it, or return the reason why another writer or time has overtaken it."""
        ...

    async def refuse(self, candidate: Candidate, reasons: tuple[str, ...]) -> Trust:
        """Refuse it and lower the trust in who is to blame."""
        ...

    async def settle(
        self,
        candidate: Candidate,
        fate: Fate,
        subjects: frozenset[str] = frozenset(),
        drift: DriftSettings | None = None,
    ) -> tuple[str, ...]:
        """Record its fate; return the subjects found to drift with it."""
        ...

    async def settle_by_id(self, tenant: str, identifier: str, fate: Fate) -> None:
        """Record the fate of one that another process has committed."""
        ...

    async def read(self, identity: Identity, sources: frozenset[bytes]) -> None:
        """Remember that a session has read from sources, given by their marks."""
        ...

    async def is_closed(self, identity: Identity, store: str, partitions: frozenset[str]) -> bool:
        """Return whether the operator has closed any of the partitions of a store."""
        ...

    async def reserve(self, candidate: Candidate) -> bool:
        """Bind its nonce to its text."""
        ...


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A candidate that the gate lets through, until it is settled."""

    candidate: Candidate
    facts: StagedFacts
    decision: GateDecision
    receipt: str
