"""Detector that judges saves after they were committed, and keeps its findings.

It reads the log from its last position, so a late detector catches up; scopes report events that it
has not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in_order
from guard.core.model import Identity
from guard.extensions.propagation.containment import CURSOR, EPOCH, FOUND, contained_set
from guard.extensions.propagation.detection import (
    BY_RULE,
    CALIBRATION,
    Calibration,
    Finding,
    PoisoningDetector,
    pack_finding,
    read_findings,
)
from guard.extensions.propagation.events import Event, unpack_event
from guard.operations.incidents import Given, IncidentOperator
from guard.store.incident_records import number_of, read_log, read_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.mappings import DetectionSettings
    from guard.extensions.propagation.incident import Incident
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore

FINDINGS: Final = 10_000
"""Maximum number of findings of a tenant; further ones are counted only."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of texts."""

    digest: str
    probabilities: Callable[[Sequence[str]], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Round:
    """Result of one pass over the log."""

    saves: int
    """Number of judged saves."""
    findings: tuple[Finding, ...]
    contained: tuple[Incident, ...]
    left_out: int = 0
    """Number of findings above the limit."""
    why_asked: str = ""
    """Reason why findings were not withheld although the policy says so."""


class Watch:
    """Detector of one tenant.

    Args:
        store: connected; its namespace is the guard's.
        seal: the deployment's key.
        settings: of the policy.
        tenant: whose saves.
        model: of texts that are kept; None judges by the rule.
    """

    def __init__(
        self,
        store: RedisSessionStore,
        seal: Seal,
        settings: DetectionSettings,
        tenant: str = "default",
        model: Model | None = None,
    ) -> None:
        self._store = store
        self._seal = seal
        self._settings = settings
        self._tenant = tenant
        self._identity = Identity("", "", tenant=tenant)
        self._model = model
        self._detector = PoisoningDetector(settings.threshold)
        self._last = b""
        self._key = store.key_of(tenant, contained_set(tenant))

    async def round(self, at: float) -> Round:
        """Judge what was saved since the last look; what was judged in an earlier run is learnt.

        Raises:
            StateError: the store did not answer.
        """
        raw = await self._store.client.execute("HGET", self._key, CURSOR)
        judged = self._opened(raw)
        known = await self.findings()
        for gone in self._detector.found.keys() - {one.node for one in known}:
            self._detector.clear(gone)
        log = await read_log(self._store, self._seal, self._tenant, self._last)
        events = [unpack_event(body) for body in log.bodies]
        probabilities = await self._recognised(events)
        new: list[Finding] = []
        # An event's place in the log is not in the event: those up to the cursor come first.
        fresh = number_of(log.last) - number_of(max(judged, self._last, key=number_of))
        begin = len(events) - min(max(fresh, 0), len(events))
        before = self._detector.judged
        held = {one.node for one in known}
        for place, event in enumerate(events):
            finding = self._detector.judge(event, probabilities.get(event.node))
            if place < begin:
                before = self._detector.judged
                if finding is not None and finding.node not in held:
                    # Somebody has cleared it since.
                    self._detector.clear(finding.node)
            elif finding is not None:
                new.append(finding)
        kept = new[: max(0, FINDINGS - len(known))]
        await self._keep(kept, log.last)
        self._last = log.last
        contained, why = await self._withheld(kept, at)
        return Round(
            self._detector.judged - before, tuple(kept), contained, len(new) - len(kept), why
        )

    async def findings(self) -> list[Finding]:
        """Return the findings that nobody has cleared."""
        fields = await self._store.fields(self._identity, contained_set(self._tenant))
        return list(read_findings(self._seal, self._tenant, fields))

    async def clear(self, nodes: Sequence[bytes]) -> int:
        """Take findings back: what follows from these items is no longer asked about."""
        removed = await self._store.client.execute(
            "HDEL", self._key, *(FOUND + node for node in nodes)
        )
        await self._store.client.execute("HINCRBY", self._key, EPOCH, 1)
        return removed if isinstance(removed, int) else 0

    async def calibrate(self) -> Calibration:
        """Count how often the detector fires on the saves on record, taken as clean."""
        log = await read_log(self._store, self._seal, self._tenant)
        events = [unpack_event(body) for body in log.bodies]
        probabilities = await self._recognised(events)
        detector = PoisoningDetector(self._settings.threshold)
        fired = sum(
            detector.judge(event, probabilities.get(event.node)) is not None for event in events
        )
        found = Calibration(detector.judged, fired, self._settings.threshold, self._name)
        raw = found.sealed(self._seal, self._tenant)
        await self._store.client.execute("HSET", self._key, CALIBRATION, raw)
        return found

    @property
    def _name(self) -> str:
        return BY_RULE if self._model is None else self._model.digest

    async def _recognised(self, events: list[Event]) -> dict[bytes, float]:
        """Return a model's probability for the events whose text is kept."""
        if self._model is None or not events:
            return {}
        nodes = {event.node for event in events}
        texts = await read_texts(self._store, self._seal, self._tenant, nodes)
        plain = ["\n".join(strings_in_order(arguments)) for _, arguments in texts.values()]
        return dict(zip(texts, self._model.probabilities(plain), strict=True)) if plain else {}

    async def _keep(self, findings: list[Finding], last: bytes) -> None:
        fields: list[bytes] = []
        for finding in findings:
            fields += pack_finding(self._seal, self._tenant, finding)
        sealed = self._seal.sealed(contained_set(self._tenant), CURSOR, last)
        await self._store.client.execute("HSET", self._key, *fields, CURSOR, sealed)
        if findings:
            await self._store.client.execute("HINCRBY", self._key, EPOCH, 1)

    async def _withheld(
        self, findings: list[Finding], at: float
    ) -> tuple[tuple[Incident, ...], str]:
        """Contain what was found, where the policy says so and the detector was tried."""
        if not findings or not self._settings.withholds:
            return (), ""
        raw = await self._store.client.execute("HGET", self._key, CALIBRATION)
        tried = Calibration.read(self._seal, self._tenant, raw if isinstance(raw, bytes) else None)
        if tried is None or not tried.allows(self._settings.threshold, self._name):
            return (), "it was not tried on enough clean writes; see --calibrate"
        operator = IncidentOperator(self._store, self._seal, self._tenant)
        contained: list[Incident] = []
        for finding in findings:
            if not finding.follows:
                given = Given(node=finding.node.hex())
                incident = await operator.open(given, at, DETECTOR, "found by the detector")
                contained.append(await operator.contain(incident.id, at, DETECTOR))
        return tuple(contained), ""

    def _opened(self, raw: object) -> bytes:
        body = None
        if isinstance(raw, bytes):
            body = self._seal.opened(contained_set(self._tenant), CURSOR, raw)
        return body or b""


DETECTOR: Final = "detector"
"""Name that opens incidents of findings."""
