"""Interfaces to the outside, as protocols.  Pure: no I/O.

Stores, telemetry and others implement these; :mod:`guard.runtime.wiring` joins them.  Tests use
the real parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from guard.core.frozen import frozen
from guard.core.labels import NO_QUERY, LabelLookup, LabelQuery, LabelSet, LabelWrite

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from guard.core.calls import ActionAttestation, ClassifiedCall, ToolResult
    from guard.core.model import Finding, Identity, Json, Role, ToolCall
    from guard.core.policy import Verdict
    from guard.core.trajectory import Snapshot


@frozen
class Attempt:
    """A call that is asked for: appended as *attempted* before anything is decided."""

    call_id: str
    identity: Identity
    role: Role
    at: float
    unlabelled: int = 0
    """Results of this principal released unlabelled since its last attempt was written."""
    query: LabelQuery = NO_QUERY
    """Label records to read in the same round trip."""
    grant: str = ""
    """Digest of this very call; a grant for it is taken, once."""


@frozen
class Completion:
    """The end of an attempt: executed (its result came back) or refused."""

    call_id: str
    identity: Identity
    role: Role
    at: float
    executed: bool
    writes: tuple[LabelWrite, ...] = ()
    """Label records to store in the same round trip; of very many, the first are stored before."""
    source: str = ""
    """Source that they count against, for the bound per source."""
    overflow: bool = False
    """True if a bound cut values of the result off: the principal is marked full."""


class SessionStore(Protocol):
    """The trajectories.  One network round trip per method, however many items are in flight."""

    async def attempt(self, attempt: Attempt) -> Snapshot:
        """Append the call as attempted and return the state before it, atomically.

        Raises:
            StateError: the store did not answer in time, or is not fit to be used.
        """
        ...

    def together(self) -> AbstractContextManager[None]:
        """Let what several tasks ask for in here travel in one write."""
        ...

    async def note(self, identity: Identity, writes: Sequence[LabelWrite]) -> None:
        """Store label records that belong to no call: a prompt, an import, a grant.

        Raises:
            StateError: as above.
        """
        ...

    async def look_up(self, identity: Identity, lookup: LabelLookup) -> tuple[object, ...]:
        """Return label records that belong to no call, None for each that is not there.

        Raises:
            StateError: as above.
        """
        ...

    async def fields(self, identity: Identity, area: LabelSet) -> dict[bytes, bytes]:
        """Return all of one set of records, page by page; not on the path of most calls.

        Raises:
            StateError: as above.
        """
        ...

    async def complete(self, completion: Completion) -> None:
        """Mark the call executed or refused.

        Raises:
            StateError: as above; the caller must remember that the result is unlabelled.
        """
        ...

    async def aclose(self) -> None: ...


class LedgerStore(Protocol):
    """Store of the structural ledgers of graph memories: append-only lists."""

    async def append(self, tenant: str, area: LabelSet, entries: Sequence[bytes]) -> int:
        """Append entries and return how many there are.

        Raises:
            StateError: the store did not answer in time.
        """
        ...

    def read(self, tenant: str, area: LabelSet, start: int) -> AsyncGenerator[list[object], None]:
        """Yield the entries from an index on, in order, in chunks.

        Raises:
            StateError: as above.
        """
        ...


Fate: TypeAlias = Literal["open", "denied", "gone"]


class SharedTexts(Protocol):
    """Small texts that guards with one store share for a while, each under a name of its own."""

    async def put(self, tenant: str, name: bytes, text: bytes, seconds: int) -> None:
        """Keep a text for so long.

        Raises:
            StateError: the store did not answer in time.
        """
        ...

    async def take(self, tenant: str, name: bytes) -> bytes | None:
        """Return a text and remove it, in one step: of two that ask for it one gets it.

        Raises:
            StateError: as above.
        """
        ...

    async def drop(self, tenant: str, name: bytes) -> None:
        """Remove a text.

        Raises:
            StateError: as above.
        """
        ...

    async def known(self, tenant: str, names: Sequence[bytes]) -> list[bool]:
        """Return for each name whether there is a text under it.

        Raises:
            StateError: as above.
        """
        ...


class AnswerFeed(Protocol):
    """Tells which requests for approval people have answered.

    It wakes who waits, and is not an authority: a call is released on its grant alone.
    """

    async def fate(self, tenant: str, decision: str) -> Fate:
        """Return whether a request waits, was denied, or is gone: granted, or out of time.

        It waits until the grant is there: a call that is judged before that is asked about again.

        Raises:
            StateError: the store did not answer in time.
        """
        ...

    async def since(self, tenant: str, mark: str) -> tuple[str, list[tuple[str, bool]]]:
        """Return a mark of the newest answer, and the answers since an earlier mark.

        Args:
            tenant: whose requests.
            mark: empty for the mark alone.

        Returns:
            the mark to ask with next, and of each answer the decision id and whether it is a yes.

        Raises:
            StateError: as above.
        """
        ...


class AsksStore(Protocol):
    """Calls a recall tool of the memory server that a call went to."""

    def __call__(self, call: ToolCall, path: str, arguments: Mapping[str, Json]) -> Awaitable[Json]:
        """Return the tool's result.

        Args:
            call: to the server, by the tool that is to be asked again.
            path: of the server's MCP endpoint, where it has one.
            arguments: of the tool.

        Raises:
            OSError: no server is known to be there, or it gave no usable answer.
        """
        ...


class ModelRunner(Protocol):
    """Scores feature rows with a verified model artefact."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def features(self) -> tuple[str, ...]: ...

    def score(self, row: Sequence[float]) -> float:
        """Return the probability of the positive class, in [0, 1].

        Raises:
            ModelError: the row does not have the model's number of features.
        """
        ...


class Detector(Protocol):
    """Produces findings.  A detector is one file in ``guard/detectors``."""

    @property
    def name(self) -> str: ...

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        """Return the evidence found.  May raise: an error blocks the call."""
        ...


@runtime_checkable
class TextDetector(Protocol):
    """A detector that looks at texts that come in as well."""

    def inspect_text(self, text: str, *, deep: bool) -> Sequence[Finding]:
        """Return the evidence in a text.

        Args:
            text: of a result, of a definition, or of a server's request.
            deep: whether to decode it in every way, which takes milliseconds for each kilobyte.
        """
        ...


@runtime_checkable
class DetectorOnDemand(Detector, Protocol):
    """An expensive detector: asked only where a rule of the policy needs its findings."""

    def prepare(self) -> None:
        """Get ready, before the first call of a policy that needs it."""
        ...


@runtime_checkable
class ResultDetector(DetectorOnDemand, Protocol):
    """A detector of instructions in results, asked only where a ``result`` rule names it."""

    def inspect_result(self, content: Json) -> Finding | None:
        """Return the evidence in a result.  May raise: the result is withheld."""
        ...


@frozen
class DecisionRecord:
    """Everything the audit log and the metrics say about one decision."""

    call: ClassifiedCall
    verdict: Verdict
    seconds: float
    """Time from the parsed call to the verdict, the state store included."""
    models: Mapping[str, str]
    """Digest of each model by name."""
    action: ActionAttestation | None = None
    """Rung of the call's action, if a rule asked."""


class AuditLog(Protocol):
    """One line per decision.  Called before the call is forwarded."""

    def decision(self, record: DecisionRecord) -> None:
        """Write the line of a decision.

        Raises:
            AuditError: it could not be written; the call must be blocked.
        """
        ...

    def event(self, name: str, fields: Mapping[str, Json]) -> None:
        """Write a line about something other than a decision (a refusal of unreadable input,
        a reload, a worker that was killed).

        Raises:
            AuditError: it could not be written.
        """
        ...


class Recorder(Protocol):
    """Receives every prompt, call and result: a recording, or an exporter of spans."""

    keeps: bool
    """True if what it is given can be read again later, as a policy may require."""

    def prompt(self, identity: Identity, text: str, at: float) -> None:
        """Record what a person typed."""
        ...

    def call(self, call: ToolCall, verdict: Verdict, *, required: bool) -> None:
        """Record a call and its verdict.

        Raises:
            AuditError: it is required to be in the recording now, and is not.
        """
        ...

    def result(self, result: ToolResult) -> None:
        """Record what came back."""
        ...


class Clock(Protocol):
    """Source of time; replay uses the times of the trace."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...
