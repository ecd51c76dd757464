"""The ``memory:`` section of a policy file: its pydantic models, and how it is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from guard.core.jsonpath import compile_path
from guard.core.memory import MemoryClass, Permission, SecondLook, SourceType
from guard.core.memory_policy import (
    DriftSettings,
    MemoryLimits,
    MemoryPolicy,
    ProposalMapping,
    ReadBack,
    ReadMapping,
    WriteMapping,
)
from guard.policy_files.field_types import Duration, PathText
from guard.rules.base import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.tool_mapping import PathQuery

ClassName = Literal["L1", "L2", "L3", "L4"]
PermissionName = Literal["commit", "elevated", "token", "refuse"]
SECTION: Final = "memory"


def _expression(text: str) -> str:
    try:
        re2.compile(text)
    except re2.error as error:
        raise ValueError(f"`{text}` is not an RE2 expression: {error}") from error
    return text


Expression = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_expression)]


class _Strict(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True
    )


class ClassesEntry(_Strict):
    """What one source type may do in each class.  Every pair must be written: none is implied."""

    L1: PermissionName
    L2: PermissionName
    L3: PermissionName
    L4: PermissionName


class SourcesEntry(_Strict):
    """The matrix of source types and memory classes."""

    user_input: ClassesEntry
    model_inference: ClassesEntry
    tool_result: ClassesEntry
    self_edit: ClassesEntry


class SecondLookEntry(_Strict):
    """Who looks again at writes of a class: a person, the content checker, or nobody."""

    L1: SecondLook = SecondLook.HUMAN
    L2: SecondLook = SecondLook.NONE
    L3: SecondLook = SecondLook.NONE
    L4: SecondLook = SecondLook.NONE


class ReadBackEntry(_Strict):
    """The recall that tells whether a write arrived; arguments are JSONPaths into the write."""

    tool: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: dict[str, str] = Field(default_factory=dict)
    path: Annotated[str, Field(pattern=r"^/[!-~]{0,199}$")] = "/mcp"


class WriteEntry(_Strict):
    """Tools (or plain requests) that write memory, and of which class."""

    match: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    methods: tuple[str, ...] = ()
    path: Pattern | None = None
    store: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "default"
    target: ClassName
    fallback: ClassName | None = None
    content: tuple[PathText, ...] = ()
    key: PathText | None = None
    partition: PathText | None = None
    class_from: PathText | None = None
    nonce: PathText | None = None
    token: PathText | None = None
    read_back: ReadBackEntry | None = None
    description: Annotated[str, Field(max_length=2000)] = ""

    @model_validator(mode="after")
    def _fallback_is_lower(self) -> WriteEntry:
        if self.fallback is not None and self.fallback <= self.target:
            raise ValueError(f"`fallback` must be a class below `{self.target}`")
        return self


class ReadEntry(_Strict):
    """Tools that read a store; a partition that the operator has closed is not read."""

    match: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    store: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "default"
    partition: PathText | None = None


class ProposalEntry(_Strict):
    """Tools whose results can propose memory updates."""

    match: Annotated[tuple[Pattern, ...], Field(min_length=1)]
    updates: PathText
    content: PathText
    class_from: PathText | None = None
    nonce: PathText | None = None
    key: PathText | None = None
    store: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "default"
    target: ClassName = "L1"


class LimitsEntry(_Strict):
    """Bounds of the gate."""

    max_chars: Annotated[int, Field(ge=1, le=16 * 1024 * 1024)] = 64 * 1024
    stage_ttl: Duration = 3600
    nonce_ttl: Duration = 30 * 86400
    keep_refused: Duration = 7 * 86400
    token_ttl: Duration = 900
    unknown_after: Duration = 60
    degrade_after: Annotated[int, Field(ge=1)] = 1
    untrust_after: Annotated[int, Field(ge=1)] = 3


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
    """The memory gate: absent, no write is staged and rules alone decide."""

    sources: SourcesEntry
    second_look: SecondLookEntry = SecondLookEntry()
    suspicious: tuple[Expression, ...] = ()
    suspicious_destinations: bool = True
    coupling: bool = True
    limits: LimitsEntry = LimitsEntry()
    writes: Annotated[tuple[WriteEntry, ...], Field(min_length=1)]
    proposals: tuple[ProposalEntry, ...] = ()
    reads: tuple[ReadEntry, ...] = ()
    drift: DriftEntry | None = None


NESTED_MEMORY: Final[dict[tuple[str | int, ...], type[BaseModel]]] = {
    (SECTION,): MemoryEntry,
    (SECTION, "sources"): SourcesEntry,
    **{(SECTION, "sources", kind.value): ClassesEntry for kind in SourceType},
    (SECTION, "second_look"): SecondLookEntry,
    (SECTION, "limits"): LimitsEntry,
    (SECTION, "writes"): WriteEntry,
    (SECTION, "proposals"): ProposalEntry,
    (SECTION, "reads"): ReadEntry,
    (SECTION, "drift"): DriftEntry,
}


def compile_memory(entries: Sequence[MemoryEntry]) -> MemoryPolicy | None:
    """Return the gate's policy: settings of the first file that has one, mappings of all.

    The linter has refused files whose settings differ.
    """
    if not entries:
        return None
    first = entries[0]
    sources = first.sources.model_dump()
    return MemoryPolicy(
        matrix={
            (kind, target): Permission[sources[kind.value][target.name].upper()]
            for kind in SourceType
            for target in MemoryClass
        },
        second_look={
            target: SecondLook(getattr(first.second_look, target.name)) for target in MemoryClass
        },
        writes=tuple(_write(item) for entry in entries for item in entry.writes),
        proposals=tuple(_proposal(item) for entry in entries for item in entry.proposals),
        reads=tuple(
            ReadMapping(_any(item.match), item.store, _query(item.partition))
            for entry in entries
            for item in entry.reads
        ),
        suspicious=_suspicious(first.suspicious),
        suspicious_destinations=first.suspicious_destinations,
        coupling=first.coupling,
        limits=MemoryLimits(**first.limits.model_dump()),
        drift=DriftSettings(**first.drift.model_dump()) if first.drift else None,
    )


def settings_of(entry: MemoryEntry) -> object:
    """Return what must be equal in every file that has the section."""
    return entry.model_dump(exclude={"writes", "proposals", "reads"})


def _write(entry: WriteEntry) -> WriteMapping:
    return WriteMapping(
        pattern=", ".join(pattern.text for pattern in entry.match),
        matches=_any(entry.match),
        store=entry.store,
        target=MemoryClass[entry.target],
        fallback=MemoryClass[entry.fallback] if entry.fallback else None,
        content=tuple(compile_path(path) for path in entry.content),
        key=_query(entry.key),
        partition=_query(entry.partition),
        target_path=_query(entry.class_from),
        nonce=_query(entry.nonce),
        token=_query(entry.token),
        methods=frozenset(entry.methods),
        path=_path_test(entry.path),
        read_back=ReadBack(entry.read_back.tool, entry.read_back.arguments, entry.read_back.path)
        if entry.read_back
        else None,
    )


def _proposal(entry: ProposalEntry) -> ProposalMapping:
    return ProposalMapping(
        matches=_any(entry.match),
        updates=compile_path(entry.updates),
        content=compile_path(entry.content),
        target_path=_query(entry.class_from),
        nonce=_query(entry.nonce),
        key=_query(entry.key),
        store=entry.store,
        target=MemoryClass[entry.target],
    )


def _query(text: str | None) -> PathQuery | None:
    return compile_path(text) if text is not None else None


def _any(patterns: Sequence[Pattern]) -> Callable[[str], bool]:
    tests = tuple(pattern.matches for pattern in patterns)
    return lambda name: any(test(name) is True for test in tests)


def _path_test(pattern: Pattern | None) -> Callable[[str], bool] | None:
    if pattern is None:
        return None
    test = pattern.matches
    return lambda url: test(urlsplit(url).path) is True


def _suspicious(expressions: Sequence[str]) -> Callable[[str], bool]:
    compiled = tuple(re2.compile(text) for text in expressions)
    return lambda text: any(found.search(text) is not None for found in compiled)
