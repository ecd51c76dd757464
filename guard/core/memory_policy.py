"""The ``memory:`` section of a policy as the gate sees it.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guard.core.memory import MemoryClass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guard.core.memory import Permission, SecondLook, SourceType
    from guard.core.tool_mapping import PathQuery


@dataclass(frozen=True, slots=True)
class ReadBack:
    """How to ask the store whether a write of unknown fate arrived."""

    tool: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Argument name to a JSONPath into the write's arguments, or a constant."""
    path: str = "/mcp"
    """Where the memory server speaks MCP, behind the listener that the write came through."""


@dataclass(frozen=True, slots=True)
class WriteMapping:
    """What the policy says of the writes that one pattern claims."""

    pattern: str
    matches: Callable[[str], bool]
    store: str
    """Empty where it is left to the tool's mapping to name it."""
    target: MemoryClass
    fallback: MemoryClass | None = None
    """A lower class that a refused candidate may take instead, marked as tainted."""
    content: tuple[PathQuery, ...] = ()
    """Where the remembered text is; nothing means all arguments."""
    key: PathQuery | None = None
    partition: PathQuery | None = None
    target_path: PathQuery | None = None
    """Where the caller names the class it wants; it can only ask, never grant."""
    nonce: PathQuery | None = None
    token: PathQuery | None = None
    methods: frozenset[str] = frozenset()
    """For plain HTTP: only requests with one of these methods."""
    path: Callable[[str], bool] | None = None
    """For plain HTTP: only requests whose path this claims."""
    read_back: ReadBack | None = None


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
    token_ttl: int = 900
    unknown_after: int = 60
    degrade_after: int = 1
    untrust_after: int = 3


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """The sequential test on what a principal's committed items say."""

    alarm: float = 8.0
    """Evidence (natural log of the likelihood ratio) at which a subject is reported."""
    base_rate: float = 0.05
    pushed_rate: float = 0.5
    lower_trust: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """The ``memory:`` section of a policy, compiled."""

    matrix: Mapping[tuple[SourceType, MemoryClass], Permission]
    second_look: Mapping[MemoryClass, SecondLook]
    writes: tuple[WriteMapping, ...]
    proposals: tuple[ProposalMapping, ...] = ()
    reads: tuple[ReadMapping, ...] = ()
    suspicious: Callable[[str], bool] = lambda _: False
    suspicious_destinations: bool = True
    """Whether a destination that is not known counts as suspicious content."""
    coupling: bool = True
    """Whether a result that proposes a refused update is withheld."""
    limits: MemoryLimits = MemoryLimits()
    drift: DriftSettings | None = None

    def write(self, tool: str, method: str = "", path: str = "") -> WriteMapping | None:
        """Return the first mapping that claims a tool, or a plain request, as a memory write."""
        for mapping in self.writes:
            if (
                mapping.matches(tool)
                and (not mapping.methods or method in mapping.methods)
                and (mapping.path is None or mapping.path(path))
            ):
                return mapping
        return None

    def read(self, tool: str) -> ReadMapping | None:
        """Return the first mapping that claims a tool as a read of a store."""
        for mapping in self.reads:
            if mapping.matches(tool):
                return mapping
        return None

    def proposal(self, tool: str) -> ProposalMapping | None:
        """Return the first mapping that claims a tool's results."""
        return next((m for m in self.proposals if m.matches(tool)), None)
