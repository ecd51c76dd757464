"""An incident: its selector, the steps taken, and the journal that undoes them.  Pure.

A step is a list of changes to hash fields, each with what was there before.  The journal is written
before the first change is made, so a step that was cut short is finished or undone later: a change
is made only where the field is as it was, and making it twice changes nothing.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.labels import LabelSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.model import Json
    from guard.provenance.seal import Seal

INCIDENT_KIND: Final = "i"
INCIDENTS: Final = 10_000
"""Incidents of one tenant."""
CHUNK: Final = 100
"""Changes that one script makes."""
OPEN: Final = "open"
CLOSED: Final = "closed"
PLANNED: Final = "planned"
DONE: Final = "done"
UNDOING: Final = "undoing"
UNDONE: Final = "undone"


class Change(NamedTuple):
    """One hash field to be changed."""

    part: str
    """Subject: item, label, established, grant, request, token or trust."""
    key: bytes
    name: bytes
    before: bytes | None
    after: bytes | None
    ttl: int = 0
    """Milliseconds that the key had left; 0 where it stays."""

    def undone(self) -> Change:
        """Return the change that takes it back."""
        return self._replace(before=self.after, after=self.before)


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was taken."""

    number: int
    kind: str
    """Kind of the step: `contain`, `repair` or `release`."""
    state: str
    at: float
    by: str
    changes: dict[str, int]
    """Number of changes by subject."""
    nodes: tuple[str, ...]
    """Nodes (hex) that it is about."""
    conflicts: int = 0
    """Fields that somebody else had changed; they were left as they are."""
    undone_at: float = 0.0
    undone_by: str = ""
    nonce: str = ""
    """Tells its journal from those of operators who planned a step of the same number at once."""

    @property
    def journal(self) -> str:
        """Prefixes of the field names of a journal."""
        return f"{self.number}:{self.nonce}:" if self.nonce else f"{self.number}:"


@dataclass(frozen=True, slots=True)
class Incident:
    """State of an incident."""

    id: str
    opened_at: float
    opened_by: str
    selectors: dict[str, str]
    """By what it was opened."""
    roots: tuple[str, ...]
    """Nodes (hex) that it was opened from."""
    note: str = ""
    two_people: bool = False
    """True if steps that give something back or write need two people, by the policy that was in
    force when it was opened."""
    state: str = OPEN
    steps: tuple[Step, ...] = ()
    log: tuple[tuple[float, str, str], ...] = ()
    """Times, actors and actions."""
    version: int = 0
    """Goes up with every change of the record."""

    @property
    def unfinished(self) -> Step | None:
        """The step that was cut short, if there is one."""
        return next((one for one in self.steps if one.state in {PLANNED, UNDOING}), None)

    def holds(self, nodes: Sequence[str]) -> bool:
        """Return whether steps that are in force contain all of some nodes."""
        held = {
            node
            for step in self.steps
            if step.kind == "contain" and step.state == DONE
            for node in step.nodes
        }
        return held.issuperset(nodes)

    @property
    def released(self) -> frozenset[str]:
        """Nodes (hex) that a person has cleared."""
        steps = (one for one in self.steps if one.kind == "release" and one.state == DONE)
        return frozenset(node for step in steps for node in step.nodes)

    @property
    def repaired(self) -> frozenset[str]:
        """Nodes (hex) of contained versions in whose place something better was written."""
        steps = (one for one in self.steps if one.kind == "repair" and one.state == DONE)
        return frozenset(node for step in steps for node in step.nodes)

    def dilutes(self) -> Iterator[tuple[str, float]]:
        """Yield the nodes whose edges count less, and from when on: repaired or cleared ones."""
        for step in self.steps:
            if step.state == DONE and step.kind in {"repair", "release"}:
                for node in step.nodes:
                    yield node, step.at if step.kind == "repair" else 0.0

    def with_step(self, step: Step, at: float, by: str, what: str) -> Incident:
        """Return it with a step added or changed."""
        others = tuple(one for one in self.steps if one.number != step.number)
        return replace(self, steps=(*others, step)).logged(at, by, what)

    def logged(self, at: float, by: str, what: str) -> Incident:
        """Return it with one more line in its timeline."""
        return replace(self, log=(*self.log, (at, by, what)))


def incidents_of(tenant: str) -> LabelSet:
    """Return where the incidents of a tenant lie."""
    return LabelSet(INCIDENT_KIND, (tenant,), "", 0, INCIDENTS)


def journal_of(tenant: str, incident: str) -> LabelSet:
    """Return where the changes of an incident's steps lie."""
    return LabelSet(INCIDENT_KIND, (tenant,), incident, 0, INCIDENTS)


def pack_incident(seal: Seal, tenant: str, incident: Incident) -> bytes:
    """Return an incident enciphered: it names whom and what it was opened from."""
    body = json.dumps(asdict(incident)).encode()
    return seal.enciphered(incidents_of(tenant), incident.id.encode(), zlib.compress(body))


def read_incident(seal: Seal, tenant: str, identifier: str, raw: bytes) -> Incident | None:
    """Return an incident, None where its record was altered."""
    body = seal.deciphered(incidents_of(tenant), identifier.encode(), raw)
    if body is None:
        return None
    fields: dict[str, Any] = json.loads(zlib.decompress(body))
    steps = tuple(Step(**{**one, "nodes": tuple(one["nodes"])}) for one in fields.pop("steps"))
    log = tuple((float(at), str(by), str(what)) for at, by, what in fields.pop("log"))
    return Incident(**{**fields, "roots": tuple(fields["roots"])}, steps=steps, log=log)


def pack_journal(
    seal: Seal, tenant: str, incident: str, step: Step, changes: Sequence[Change]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields of a step's journal, each the changes that one script makes."""
    area = journal_of(tenant, incident)
    for number, start in enumerate(range(0, len(changes), CHUNK)):
        name = f"{step.journal}{number:06}".encode()
        rows = [
            [
                one.part,
                one.key.hex(),
                one.name.hex(),
                None if one.before is None else one.before.hex(),
                None if one.after is None else one.after.hex(),
                one.ttl,
            ]
            for one in changes[start : start + CHUNK]
        ]
        yield name, seal.enciphered(area, name, zlib.compress(json.dumps(rows).encode()))


def read_journal(
    seal: Seal, tenant: str, incident: str, name: bytes, raw: bytes
) -> list[Change] | None:
    """Return the changes in one field of a journal, None where it was altered."""
    body = seal.deciphered(journal_of(tenant, incident), name, raw)
    if body is None:
        return None
    rows: Json = json.loads(zlib.decompress(body))
    return [
        Change(
            part,
            bytes.fromhex(key),
            bytes.fromhex(field_name),
            None if before is None else bytes.fromhex(before),
            None if after is None else bytes.fromhex(after),
            ttl,
        )
        for part, key, field_name, before, after, ttl in rows
    ]


@dataclass(frozen=True, slots=True)
class Selector:
    """Selection from which an incident is opened; a save must match every given part."""

    nodes: frozenset[bytes] = frozenset()
    places: frozenset[bytes] = frozenset()
    """Marks of items."""
    values: frozenset[bytes] = frozenset()
    """Fingerprints of values."""
    origins: frozenset[bytes] = frozenset()
    """Marks of senders and URL hosts."""
    servers: frozenset[bytes] = frozenset()
    principals: frozenset[bytes] = frozenset()
    sessions: frozenset[bytes] = frozenset()
    since: float = 0.0
    until: float = float("inf")
    shown: dict[str, str] = field(default_factory=dict)
    """Selection in the form in which an operator gave it."""
