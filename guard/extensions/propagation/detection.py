"""Detection of poisoned committed saves: equations 1 and 4 of the paper over the log.  Pure.

Saves are judged after they were committed, in the order of the log, so no write waits.  A finding
asks: a person is asked before anything that follows from the item is sent.  The terms of equation 1
are read as what the log has of them: how an item is structured, how its principal's work went, and
whether it contradicts the version before it.  Without a model, an untrusted item that names
somebody outside is what is recognised: on real text that rule was better than the encoder.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.model import Integrity
from guard.extensions.propagation.containment import FOUND, contained_set
from guard.extensions.propagation.events import NODE, Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.provenance.seal import Seal

CALIBRATION: Final = b"q"
CLEAN: Final = 10_000
"""Own writes, taken as clean, on which a detector must have been tried before it may withhold."""
FALSE_ALARMS: Final = 0.001
"""Share of them on which it may fire."""
BY_RULE: Final = "untrusted item that names somebody outside"
DOUBT: Final = 0.6
"""Weight in equation 4 of a lack of credibility; the rest is that of what is recognised."""
RECENT: Final = 200
"""Items of an agent that its next is compared with."""
TASKS: Final = 100
"""Tasks of an agent whose outcomes make its stability."""
_SAVED: Final = frozenset({EventKind.SAVE, EventKind.DRAFT})
_SURE: Final = frozenset({1, 2, 3})
"""Kinds of edges that are confirmed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding that a save looks poisoned, with its reason."""

    node: bytes
    probability: float
    """Equation 4, in the reading in which a lack of credibility counts (docs/adr)."""
    credibility: float
    """Equation 1, its terms weighing alike."""
    recognised: float
    follows: bytes = b""
    """The node whose finding it follows from, where that is why."""

    def document(self) -> dict[str, str | float]:
        """Return it as JSON values."""
        return {
            "node": self.node.hex(),
            "p": round(self.probability, 4),
            "credibility": round(self.credibility, 4),
            "recognised": round(self.recognised, 4),
            "follows": self.follows.hex(),
        }


@dataclass(slots=True)
class _Agent:
    """Last items and tasks of one principal in the log."""

    shapes: deque[frozenset[str]] = field(default_factory=lambda: deque(maxlen=RECENT))
    counts: Counter[str] = field(default_factory=Counter)
    tasks: deque[bool] = field(default_factory=lambda: deque(maxlen=TASKS))

    def similarity(self, shape: frozenset[str]) -> float:
        """Return the mean likeness of an item's structure with the agent's last 200."""
        if not self.shapes:
            return 0.5
        shared = sum(self.counts[name] for name in shape)
        return shared / (len(shape) * len(self.shapes))

    def stability(self) -> float:
        """Return the share of the last 100 tasks that nobody had to be asked about."""
        return sum(self.tasks) / len(self.tasks) if self.tasks else 0.5

    def take(self, shape: frozenset[str]) -> None:
        if len(self.shapes) == RECENT:
            self.counts.subtract(self.shapes[0])
        self.shapes.append(shape)
        self.counts.update(shape)


class PoisoningDetector:
    """Judges the saves of one tenant, one event of the log after the other.

    Args:
        threshold: probability from which on there is a finding.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.judged = 0
        """Saves so far."""
        self.found: dict[bytes, Finding] = {}
        self._agents: dict[bytes, _Agent] = {}
        self._versions: dict[bytes, Event] = {}

    def judge(self, event: Event, recognised: float | None = None) -> Finding | None:
        """Learn from an event, and return the finding where it is a save that looks poisoned.

        Args:
            event: the next of the log.
            recognised: a model's probability for its text; left out, the rule.
        """
        agent = self._agents.setdefault(event.principal, _Agent())
        if event.what is EventKind.RECALL:
            return None
        if event.what not in _SAVED:
            agent.tasks.append(event.what is not EventKind.ASKED)
            return None
        self.judged += 1
        shape = _shape(event)
        before = self._versions.get(event.place)
        worse = before is not None and before.label > event.label
        agreement = 1.0 - event.conflict(before if worse else None)
        credible = (agent.similarity(shape) + agent.stability() + agreement) / 3
        by_rule = float(event.label is Integrity.UNTRUSTED and bool(event.values))
        known = by_rule if recognised is None else recognised
        score = DOUBT * (1.0 - credible) + (1.0 - DOUBT) * known
        source = next(
            (e.parent for e in event.edges if e.kind in _SURE and e.parent in self.found), b""
        )
        agent.take(shape)
        agent.tasks.append(score < self.threshold)
        if event.label > Integrity.UNTRUSTED or event.place not in self._versions:
            self._versions[event.place] = event
        if score < self.threshold and not source:
            return None
        finding = Finding(event.node, score, credible, known, source)
        self.found[event.node] = finding
        return finding

    def clear(self, node: bytes) -> None:
        """Forget a finding, so that nothing follows from it."""
        self.found.pop(node, None)


def _shape(event: Event) -> frozenset[str]:
    """Return how an item is structured, without what it says."""
    return frozenset(
        {
            f"tool {event.tool}",
            f"store {event.store}",
            f"label {event.label.name}",
            f"values {min(len(event.values), 3)}",
            f"length {min(len(event.runs), 63).bit_length()}",
            f"source {event.root_tool}",
        }
    )


# --- as it is kept beside what is contained ------------------------------------------------------


def pack_finding(seal: Seal, tenant: str, finding: Finding) -> tuple[bytes, bytes]:
    """Return the field and the sealed bytes of a finding."""
    name = FOUND + finding.node
    body = json.dumps(
        [finding.probability, finding.credibility, finding.recognised, finding.follows.hex()]
    )
    return name, seal.sealed(contained_set(tenant), name, body.encode())


def read_findings(seal: Seal, tenant: str, fields: dict[bytes, bytes]) -> Iterator[Finding]:
    """Yield the findings in the fields of a contained set; altered ones count as certain."""
    area = contained_set(tenant)
    for name, raw in fields.items():
        if not name.startswith(FOUND) or len(name) != len(FOUND) + NODE:
            continue
        body = seal.opened(area, name, raw)
        if body is None:
            yield Finding(name[len(FOUND) :], 1.0, 0.0, 1.0)
            continue
        probability, credible, recognised, follows = json.loads(body)
        yield Finding(name[len(FOUND) :], probability, credible, recognised, bytes.fromhex(follows))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Share of own writes, taken as clean, on which a detector fired."""

    saves: int
    fired: int
    threshold: float
    model: str
    """SHA-256 of the model; ``BY_RULE`` without one."""

    def allows(self, threshold: float, model: str) -> bool:
        """Return whether a detector may withhold by itself."""
        fits = self.threshold <= threshold and self.model == model
        return fits and self.saves >= CLEAN and self.fired <= FALSE_ALARMS * self.saves

    def sealed(self, seal: Seal, tenant: str) -> bytes:
        """Return it as it is kept."""
        body = json.dumps(asdict(self)).encode()
        return seal.sealed(contained_set(tenant), CALIBRATION, body)

    @classmethod
    def read(cls, seal: Seal, tenant: str, raw: bytes | None) -> Calibration | None:
        """Return what is kept; None where there is none, or it was altered."""
        body = seal.opened(contained_set(tenant), CALIBRATION, raw) if raw is not None else None
        return None if body is None else cls(**json.loads(body))
