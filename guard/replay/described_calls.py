"""A call described in a file, judged by the guard that judges live traffic.

``guard policy test`` and ``explain`` build a :class:`Guard` whose stores answer from it
and call its ``judge``: the memory gate, redaction and batches are those of live traffic.  A
rung in the description becomes the sealed record that would have put the value there.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from guard.core.labels import (
    Channel,
    LabelLookup,
    LabelQuery,
    LabelRecord,
    LabelReply,
    LabelSet,
    LabelWrite,
    LabelWriteMode,
    Rung,
)
from guard.core.mappings import DriftSettings, MemoryLimits
from guard.core.memory import (
    Candidate,
    Fate,
    GateDecision,
    MemoryClass,
    StagedFacts,
    TokenState,
    Trust,
)
from guard.core.model import (
    ROLES,
    Destination,
    DestinationStatus,
    Finding,
    Identity,
    Integrity,
    Json,
    PrincipalRung,
    Role,
    SessionRung,
    ToolCall,
    UserPrompt,
)
from guard.core.ports import Attempt, Completion, Detector
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.detectors import declared_facts
from guard.pipeline.classification import classify
from guard.pipeline.detection import Detection
from guard.provenance import label_sets
from guard.provenance.approvals import GRANT_FIELD, Scope
from guard.provenance.label_sets import (
    ATTESTED,
    CLAIM,
    ESTABLISHED,
    ITEM,
    PROMPT,
    READ,
    REPLY,
    established_mark,
)
from guard.provenance.ladder import values_asked
from guard.provenance.prompts import MENTIONED, prompt_writes, sentences_said, words_value
from guard.provenance.seal import ANY_SERVICE, FINGERPRINT, KEY_BYTES, Seal
from guard.replay.run import ErrorCounter, judge_alone, offline_guard
from guard.values.canonical import read_destinations
from guard.values.finding import keys_of, leaf_value, number_value

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from guard.core.calls import ClassifiedCall, TracedCall
    from guard.core.policy import Policy, Verdict

PROTOCOL: Final = "described"
SessionRungName = Literal[
    "connection", "traceparent", "meta", "mcp_session", "guard_header", "recorded"
]
PrincipalRungName = Literal["anonymous", "credential", "recorded"]
ProvenanceName = Literal[
    "listed",
    "granted",
    "prompted",
    "established",
    "reply",
    "remembered",
    "claimed",
    "unknown",
    "tainted",
    "denied",
]


Names = Annotated[tuple[str, ...], Field(strict=False)]
"""A list; not strict, because the short form of a trajectory has left JSON when it is read."""


class DescribedEntry(BaseModel):
    """Base of the entries: strict, and nothing but what is named."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class IdentityEntry(DescribedEntry):
    """Rung of the caller's identity; unproven if left out."""

    principal_rung: PrincipalRungName = "anonymous"
    session_rung: SessionRungName = "connection"


class CallEntry(DescribedEntry):
    """The call itself."""

    tool: Annotated[str, Field(min_length=1)]
    arguments: dict[str, Any] = {}
    session: str = "session"
    principal: str = "principal"
    identity: IdentityEntry = IdentityEntry()
    protocol: str = PROTOCOL
    redefined: bool = False
    """True if the tool's definition has changed since it was pinned."""
    server: str = ""
    """The listener by which it is called."""
    upstream: str = ""
    """The server it is called at, as `servers` of a policy name it."""


class TrajectoryEntry(DescribedEntry):
    """Earlier calls.  Each item is a role, or the name of a tool that the policy maps."""

    session: Names = ()
    """Executed before in this session."""
    principal: Names = ()
    """Executed by this principal in earlier sessions."""
    refused: Annotated[int, Field(ge=0)] = 0
    """Calls like this one that were refused in a row just before it."""


class MemoryEntry(DescribedEntry):
    """Facts in the staging store about a call that writes memory."""

    trust: Literal["trusted", "degraded", "untrusted"] = "trusted"
    """In the caller, and in whom its session has read."""
    closed: bool = False
    """True if the operator has closed the partition."""
    item: Literal["L1", "L2", "L3", "L4"] | None = None
    """Class of the item that is there already."""
    promotion: Literal["none", "valid", "expired", "used", "other", "forged"] = "none"
    """The promotion token for this text."""
    nonce_used: bool = False


class DescribedCall(DescribedEntry):
    """A call, what was called before it, and what is known of the values in it."""

    trajectory: TrajectoryEntry = TrajectoryEntry()
    prompts: Names = ()
    """Prompts of the user in this session, oldest first; without one no prompt channel is known."""
    provenance: dict[str, ProvenanceName] = {}
    """Rung of the attestation ladder by destination, guarded value or saved sentence; the others
    are listed or unknown."""
    saturated: bool = False
    """True if a bound of labels was reached, so that an unknown value may be tainted."""
    read_untrusted: bool = False
    """True if the session has read untrusted text besides the text in its trajectory."""
    facts: dict[str, Any] = {}
    """Facts by name, instead of what their detectors would say."""
    private: bool = False
    """True if the body repeats text that a private source returned."""
    item: Literal["untrusted", "advisory", "authenticated", "trusted"] | None = None
    """Label of the memory item that the call names."""
    memory: MemoryEntry = MemoryEntry()
    call: CallEntry

    @field_validator("trajectory", mode="before")
    @classmethod
    def _session_only(cls, value: Json) -> Json:
        # A list is the usual case: what this session did.
        return {"session": value} if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on a described call, with everything that led to it."""

    sent: ToolCall
    call: TracedCall
    """The call as it would go out."""
    snapshot: Snapshot
    """State before the call."""
    detectors: tuple[Detector, ...]
    verdict: Verdict

    def findings(self, policy: Policy) -> list[Finding]:
        """Return what the detectors find in the call as it was sent."""
        sent = classify(policy, self.sent)
        return Detection(self.detectors, ErrorCounter()).findings(policy, sent, self.snapshot, [])


def judge(policy: Policy, detectors: Sequence[Detector], described: DescribedCall) -> Judgement:
    """Judge a described call as live traffic is judged.

    Raises:
        ValueError: the trajectory names what is neither a role nor a mapped tool, or a value is
            described as what only the policy can say of it.
    """
    store = DescribedStore(policy, described)
    unknown = described.facts.keys() - declared_facts().keys()
    if unknown:
        raise ValueError(f"no detector declares the fact `{min(unknown)}`")
    # Stated last, so that what is described stands above what a detector says.
    every = (*detectors, _DescribedFacts(described.facts))
    staging = DescribedStaging(described.memory)
    guard = offline_guard(
        policy,
        store,
        every,
        staging=staging,
        seal=SEAL,
        metrics=ErrorCounter(),
        ledger=DescribedLedger(),
    )
    sent = tool_call(described.call)
    traced, verdict = asyncio.run(judge_alone(guard, sent))
    return Judgement(sent, traced, store.snapshot, every, verdict)


SEAL: Final = Seal(bytes(KEY_BYTES))
"""Seal of records that never leave the process."""
SESSION: Final = bytes(8)
"""Names no session: described records are neither this session's nor another's."""
GRANT_ENDS: Final = 1.0
"""Expiry of a described grant; a described call is made at 0."""
_STATUS_RUNGS: Final = {
    Rung.LISTED: frozenset({DestinationStatus.INTERNAL, DestinationStatus.ALLOWED}),
    Rung.DENIED: frozenset({DestinationStatus.DENIED}),
}
"""Rungs that the policy's lists alone decide."""


class DescribedLedger:
    """An empty ledger: each described call is judged once, and its results are not read."""

    async def append(self, tenant: str, area: LabelSet, entries: Sequence[bytes]) -> int:
        """Return the number of entries; none is kept."""
        return len(entries)

    async def read(
        self, tenant: str, area: LabelSet, start: int
    ) -> AsyncGenerator[list[object], None]:
        """Yield nothing."""
        for chunk in list[list[object]]():
            yield chunk


class DescribedStore:
    """A session store whose answers come from the description of one call.

    Args:
        policy: says which role a tool of the trajectory has.
        described: what the store is to know.

    Raises:
        ValueError: the description contradicts the policy.
    """

    def __init__(self, policy: Policy, described: DescribedCall) -> None:
        self._described = described
        self._session = tuple(_role(policy, name) for name in described.trajectory.session)
        self._earlier = tuple(_role(policy, name) for name in described.trajectory.principal)
        self._fields = dict(_records(policy, described))
        self._prompts = _prompt_records(policy, described)
        self._granted = _is_granted(described.provenance)
        self.snapshot = Snapshot()

    async def attempt(self, attempt: Attempt) -> Snapshot:
        """Return the described state before the call."""
        described = self._described
        refused = described.trajectory.refused
        grant = None
        if self._granted and attempt.grant:
            area = label_sets.grant(attempt.grant, 1)
            body = {"expires": GRANT_ENDS, "definition": "", "scope": Scope.CALL, "until": 0.0}
            grant = SEAL.sealed(area, GRANT_FIELD, json.dumps(body).encode())
        self.snapshot = Snapshot(
            _window(self._session, refused, attempt.role),
            _window(self._earlier + self._session, refused, attempt.role),
            self._reply(attempt.query),
            grant,
            full=described.saturated,
        )
        return self.snapshot

    def _reply(self, query: LabelQuery) -> LabelReply:
        named: tuple[object, ...] = ()
        if query.named is not None:
            area = query.named.area
            # The message's name, which the user gave on the prompt channel.
            prompt = SEAL.write(area, NAME + PROMPT, _record(Integrity.TRUSTED, Channel.PROMPT))[1]
            found = self._answers(query.named)
            named = tuple(None if record is None else [record, [prompt, None]] for record in found)
        return LabelReply(
            tuple(record for lookup in query.values for record in self._answers(lookup)),
            named,
            None if query.recalls is None else self._answers(query.recalls)[0],
            None if query.definition is None else self._answers(query.definition)[0],
            # Nothing was added before what the call itself adds: field and amount in turn.
            ()
            if query.counters is None
            else tuple(x for amount in query.counters.fields[1::2] for x in (int(amount), None)),
        )

    def _answers(self, lookup: LabelLookup) -> tuple[bytes | None, ...]:
        return tuple(self._record(lookup.area, name) for name in lookup.fields)

    def _record(self, area: LabelSet, name: bytes) -> bytes | None:
        described = self._described
        prompted = self._prompts.get((area.kind, area.owner, name))
        if prompted is not None:
            return prompted
        if area.kind == label_sets.PIN_KIND:
            return b"changed" if described.call.redefined else None
        if area.kind == label_sets.PRIVATE_KIND and described.private:
            record = _record(Integrity.AUTHENTICATED, Channel.FIELD)
        elif name[FINGERPRINT:] == ITEM and described.item is not None:
            record = _record(Integrity[described.item.upper()], Channel.SAVED)
        else:
            kinds, found = self._fields.get(name, (frozenset(), None))
            if found is None or area.kind not in kinds:
                return None
            record = found
        names = (NAME,) if name[FINGERPRINT:] == REPLY else ()
        return SEAL.write(area, name, record, names)[1]

    def together(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: there is no round trip to share."""
        return nullcontext()

    async def note(self, identity: Identity, writes: Sequence[LabelWrite]) -> None:
        """Drop records: a described call is the only one."""

    async def look_up(self, identity: Identity, lookup: LabelLookup) -> tuple[object, ...]:
        """Return the described records."""
        return self._answers(lookup)

    async def fields(self, identity: Identity, area: LabelSet) -> dict[bytes, bytes]:
        """Return nothing: no incident is described."""
        return {}

    async def complete(self, completion: Completion) -> None:
        """Drop the end of the call."""

    async def aclose(self) -> None:
        """Close nothing."""


class DescribedStaging:
    """A staging store in memory, for one candidate whose circumstances are described."""

    def __init__(self, described: MemoryEntry) -> None:
        self.limits = MemoryLimits()
        self._described = described

    async def stage(self, candidate: Candidate, receipt: str) -> StagedFacts:
        """Return the described circumstances."""
        described = self._described
        return StagedFacts(
            nonce_used=described.nonce_used,
            item_classes=frozenset({MemoryClass[described.item]} if described.item else ()),
            tokens=dict.fromkeys(MemoryClass, TokenState(described.promotion)),
            trust=Trust[described.trust.upper()],
            quarantined=described.closed,
        )

    async def commit(
        self, candidate: Candidate, decision: GateDecision, facts: StagedFacts, receipt: str
    ) -> str:
        """Return no reason: no other writer overtakes it."""
        return ""

    async def refuse(self, candidate: Candidate, reasons: tuple[str, ...]) -> Trust:
        """Return the described trust."""
        return Trust[self._described.trust.upper()]

    async def settle(
        self,
        candidate: Candidate,
        fate: Fate,
        subjects: frozenset[str] = frozenset(),
        drift: DriftSettings | None = None,
    ) -> tuple[str, ...]:
        """Return no drift."""
        return ()

    async def settle_by_id(self, tenant: str, identifier: str, fate: Fate) -> None:
        """Drop it: no other process commits anything."""

    async def read(self, identity: Identity, sources: frozenset[bytes]) -> None:
        """Drop what is read."""

    async def is_closed(self, identity: Identity, store: str, partitions: frozenset[str]) -> bool:
        """Return whether the partition is described as closed."""
        return self._described.closed

    async def reserve(self, candidate: Candidate) -> bool:
        """Return whether the nonce is free."""
        return not self._described.nonce_used


@dataclass(frozen=True, slots=True)
class _DescribedFacts:
    """A detector that says what is described."""

    facts: dict[str, Any]
    name: str = PROTOCOL

    def inspect(self, call: ClassifiedCall, snapshot: Snapshot) -> Sequence[Finding]:
        return (Finding(self.name, PROTOCOL, facts=self.facts),) if self.facts else ()


def _is_granted(rungs: Mapping[str, str]) -> bool:
    granted = [name == Rung.GRANTED.label for name in rungs.values()]
    if any(granted) and not all(granted):
        raise ValueError("a grant is for the whole call: describe every value of it as `granted`")
    return any(granted)


def _prompt_records(
    policy: Policy, described: DescribedCall
) -> dict[tuple[str, tuple[str, ...], bytes], bytes]:
    """Return what the described prompts leave in the store, by kind, owner and field."""
    identity = tool_call(described.call).identity
    seal, sets = SEAL.folding(policy.fold), label_sets.label_sets(policy.limits)
    kept: dict[tuple[str, tuple[str, ...], bytes], bytes] = {}
    for text in described.prompts:
        for write in prompt_writes(seal, sets, identity, UserPrompt(text), 0.0, policy.needs):
            for name, record in write.entries:
                at = write.area.kind, write.area.owner, name
                before = seal.read(write.area, name, kept.get(at))
                new = seal.read(write.area, name, record)
                if write.mode is LabelWriteMode.LIFT:
                    kept.pop(at, None)
                elif (
                    write.mode is not LabelWriteMode.RAISE
                    or before is None
                    or (new is not None and new.label > before.label)
                ):
                    kept[at] = record
    return kept


def _records(
    policy: Policy, described: DescribedCall
) -> Iterator[tuple[bytes, tuple[frozenset[str], LabelRecord]]]:
    """Yield field, kinds of label sets and record of everything that is described.

    Raises:
        ValueError: a value is described as what only the policy can say of it.
    """
    if described.read_untrusted:
        yield READ, (_SESSION_SET, _record(Integrity.UNTRUSTED, Channel.READ))
    for text, name in described.provenance.items():
        rung = Rung[name.upper()]
        destinations = read_destinations(text)
        stated = _STATUS_RUNGS.get(rung)
        if stated is not None:
            found = {policy.status_of(destination) for destination in destinations}
            if not found or not found <= stated:
                raise ValueError(f"`{text}` is not `{name}` under this policy; its lists say that")
        elif rung is Rung.ESTABLISHED:
            call = tool_call(described.call)
            record = _record(Integrity.AUTHENTICATED, Channel.PROMPT)
            for destination in destinations:
                tool = call.server, call.upstream, call.tool
                mark, _ = established_mark(SEAL, call.identity.principal, tool, destination)
                yield mark + ESTABLISHED, (frozenset({label_sets.ESTABLISHED_KIND}), record)
        elif rung in _RECORDS:
            suffix, kinds, label, channel = _RECORDS[rung]
            for value in _values(text, destinations, said=rung is Rung.PROMPTED):
                mark = SEAL.fingerprint(value)
                yield mark + suffix, (kinds, _record(label, channel))


def _values(text: str, destinations: Sequence[Destination], *, said: bool) -> set[str]:
    """Return the values under which a call would ask for a described text."""
    found = {key for d in destinations for key in keys_of(d)[:1]}
    found.update(keys_of(Destination("reply", text)))
    found.update(value for value in (number_value(text), leaf_value(text)) if value)
    if not said:
        return found
    read = {value for d in destinations for value in values_asked(d, reads=True)}
    found.update(value for value in read if value.startswith(MENTIONED))
    whole = leaf_value(text)
    return found.union(sentences_said(text), [words_value(whole)] if whole else ())


def _record(label: Integrity, channel: Channel) -> LabelRecord:
    """Return the record of what is described; whichever service it is about is the one called."""
    services = (ANY_SERVICE,) if label >= Integrity.AUTHENTICATED else ()
    return LabelRecord(label, channel, -1, 0.0, SESSION, "described", services=services)


NAME: Final = SEAL.fingerprint("the name of a described message")
_SESSION_SET: Final = frozenset({label_sets.SESSION_KIND})
_RECORDS: Final = {
    Rung.PROMPTED: (PROMPT, _SESSION_SET, Integrity.TRUSTED, Channel.PROMPT),
    Rung.REPLY: (REPLY, _SESSION_SET, Integrity.AUTHENTICATED, Channel.FIELD),
    Rung.REMEMBERED: (
        ATTESTED,
        frozenset({label_sets.MEMORY_KIND}),
        Integrity.AUTHENTICATED,
        Channel.IMPORTED,
    ),
    Rung.CLAIMED: (CLAIM, _SESSION_SET, Integrity.ADVISORY, Channel.CLAIM),
    Rung.TAINTED: (
        b"",
        frozenset({label_sets.TAINT_KIND}),
        Integrity.UNTRUSTED,
        Channel.RESULT,
    ),
}
"""By rung: suffix of the field, kinds of label sets, label and channel of its record."""


def tool_call(entry: CallEntry) -> ToolCall:
    """Return the call that an entry describes."""
    identity = Identity(
        entry.principal,
        entry.session,
        principal_rung=PrincipalRung[entry.identity.principal_rung.upper()],
        session_rung=SessionRung[entry.identity.session_rung.upper()],
    )
    return ToolCall(
        "described",
        identity,
        entry.tool,
        entry.arguments,
        entry.protocol,
        at=0.0,
        # Only the definitions of a known upstream are pinned.
        upstream=entry.upstream or ("described" if entry.redefined else ""),
        server=entry.server,
    )


def _role(policy: Policy, name: str) -> Role:
    if name in set(Role):
        return Role(name)
    mapping = policy.mapping(name)
    if mapping is None:
        raise ValueError(
            f"`{name}` in `trajectory` is neither a role nor a tool that the policy maps"
        )
    return mapping.role


def _window(roles: tuple[Role, ...], refused: int, role: Role) -> Window:
    trajectory = Trajectory.of(roles)
    refusals = tuple(refused if one is role else 0 for one in ROLES)
    return Window(
        trajectory=trajectory,
        attempted=tuple(map(sum, zip(trajectory.executed, refusals, strict=True))),
        refused=refusals,
        refused_in_a_row=refused,
    )
