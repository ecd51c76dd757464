"""The status of a principal as a whole: a pause of its asks, an open break-glass.  Pure: no I/O.

Both are enciphered records of the tenant, each with its end, and both are about calls that would be
*asked* about, never about one that is blocked: a pause turns the ask into a block, so that nobody
is asked; a break-glass turns it into an allow, because two people have said so beforehand.  They
are read with the attempt of a call, and only where the policy has them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from guard.core.labels import LabelLookup, LabelQuery, LabelSet, LabelWrite, LabelWriteMode
from guard.core.policy import Action, ApprovalRules, Policy, Reason, Verdict
from guard.provenance.approvals import Approvals
from guard.provenance.label_sets import BUCKET_LIMIT, BUCKETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import ToolCall
    from guard.core.ports import SessionStore
    from guard.core.trajectory import Snapshot
    from guard.provenance.seal import Seal

STANDING_KIND: Final = "a"
PAUSE: Final = b"P"
GLASS: Final = b"G"
KEPT_MILLISECONDS: Final = 48 * 3600 * 1000
"""Time for which the records are kept; each ends by itself within a day."""
ASKED_PART: Final = "asked"
"""Part of the set that holds break-glasses which one person has asked for."""
ACTS_PART: Final = "acts"
"""Likewise, acts on incidents."""
ASKED_SECONDS: Final = 900.0
"""Time that a second person may take."""
COUNTED: Final = b"counted"
"""In the place of an ask: until when asks have led to a pause, and count no more."""
RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True)
class Pause:
    """A principal that asked too often."""

    principal: str
    asks: int
    """Different calls that it asked for."""
    at: float
    until: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class BreakGlass:
    """A break-glass: what a principal may do for a while that would be asked about."""

    id: str
    principal: str
    tool: str
    """The one tool that it is about; empty for every tool."""
    why: str
    seconds: int
    at: float
    """Time of the request, then time of the opening."""
    until: float
    """0 while it is only asked for."""
    first: str
    realm: str
    subject: str
    """Subject of the person who asked for it, as an ``Approver``."""
    second: str = ""
    """Subject of the person who opened it."""

    def concerns(self, call: ToolCall) -> bool:
        """Return whether it is about a call."""
        return self.tool in {"", call.tool} and self.at <= call.at < self.until


class PrincipalStatus:
    """Records about the principal of one call.

    Args:
        seal: the deployment's key.
        call: that is judged.
        rules: of the policy in force.
    """

    __slots__ = ("_area", "_call", "_fields", "_found", "_rules", "_seal")

    def __init__(self, seal: Seal, call: ToolCall, rules: ApprovalRules) -> None:
        self._seal, self._call, self._rules = seal, call, rules
        mark = mark_of(seal, call.identity.principal)
        self._area = principal_status_set(call.identity.tenant, mark)
        self._fields = mark + PAUSE, mark + GLASS
        self._found: tuple[object, ...] = ()

    def extended(self, query: LabelQuery) -> LabelQuery:
        """Return the query with what is on record of the principal."""
        values = (*query.values, LabelLookup(self._area, self._fields))
        return replace(query, values=values, repeats=False)

    def taken(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without it."""
        values = snapshot.labels.values
        self._found = values[-len(self._fields) :]
        labels = replace(snapshot.labels, values=values[: -len(self._fields)])
        return replace(snapshot, labels=labels)

    def judged(self, verdict: Verdict) -> Verdict:
        """Return the verdict of a call that would be asked about, after a pause or break-glass."""
        if len(self._found) != len(self._fields):
            return verdict
        call, (paused, opened) = self._call, self._found
        glass = read(self._seal, self._area, self._fields[1], opened, BreakGlass)
        # A shorter limit that has come into force since counts.
        longest = self._rules.break_glass
        if glass is not None and glass.concerns(call) and glass.until <= glass.at + longest:
            return released(verdict, glass)
        pause = read(self._seal, self._area, self._fields[0], paused, Pause)
        if self._rules.asks and pause is not None and call.at < pause.until:
            return verdict.blocked(
                Reason(
                    "asks_paused",
                    "",
                    Action.BLOCK,
                    "this principal has asked too often, so nobody is asked for now",
                    remedy="do something else; an operator can end the pause",
                )
            )
        return verdict


class AskCounter:
    """Counts the different calls for which a principal asked lately, whichever process judged them.

    A call that is repeated is asked for once: people answer it once.  Each ask is a sealed record
    of its time, in one set per principal and period, so a count reads two small sets; only calls
    that are asked about pay for it.

    Args:
        seal: the deployment's key.
        store: where the asks are.
    """

    def __init__(self, seal: Seal, store: SessionStore) -> None:
        self._seal = seal
        self._store = store

    async def noted(self, policy: Policy, call: ToolCall) -> tuple[LabelWrite, ...]:
        """Return what counts an ask, or the record of the pause where it was one too many.

        Args:
            policy: in force; it has a pause.
            call: that is asked about.

        Raises:
            StateError: the asks before it could not be read.
        """
        rules, identity, at = policy.approvals, call.identity, call.at
        mark, period = mark_of(self._seal, identity.principal), int(at // rules.within)
        areas = [_asks(identity.tenant, mark, one, rules.within) for one in (period, period - 1)]
        times: dict[bytes, float] = {}
        for area in areas:
            for field, raw in (await self._store.fields(identity, area)).items():
                body = self._seal.deciphered(area, field, raw)
                if body is not None:
                    times[field] = max(times.get(field, 0.0), float(body))
        since = max(times.pop(COUNTED, 0.0), at - rules.within)
        asked = {field for field, time in times.items() if since < time}
        digest = self._seal.fingerprint(f"asked:{Approvals.digest(policy, call)}")
        if digest in asked:
            return ()
        if len(asked) + 1 < rules.asks:
            return (self._at(areas[0], digest, at),)
        pause = Pause(identity.principal, len(asked) + 1, at, at + rules.lasts)
        return (
            write(self._seal, identity.tenant, PAUSE, pause),
            self._at(areas[0], COUNTED, at),
        )

    def _at(self, area: LabelSet, field: bytes, at: float) -> LabelWrite:
        sealed_at = self._seal.enciphered(area, field, str(at).encode())
        return LabelWrite(area, LabelWriteMode.REPLACE, ((field, sealed_at),))


def _asks(tenant: str, mark: bytes, period: int, within: int) -> LabelSet:
    """Return where the asks of a principal within one period lie."""
    part = f"asks:{mark.hex()}:{period}"
    return LabelSet(STANDING_KIND, (tenant,), part, 2000 * within, BUCKET_LIMIT)


def released(verdict: Verdict, glass: BreakGlass) -> Verdict:
    """Return the verdict of a call that would be asked about, without its asks."""
    others = [one.action for one in verdict.reasons if one.action is not Action.ASK]
    action = max((Action.ALLOW, *others))
    detail = f"break-glass {glass.id} of {glass.first} and {glass.second}"
    return replace(
        verdict,
        action=action,
        reasons=(Reason("break_glass", "", Action.ALLOW, detail), *verdict.reasons),
        decided_by=tuple(one.rule for one in verdict.reasons if one.action is action and one.rule),
    )


def mark_of(seal: Seal, principal: str) -> bytes:
    """Return the mark of a principal in the fields of its records."""
    return seal.fingerprint(f"standing:{principal}")


def principal_status_set(tenant: str, mark: bytes) -> LabelSet:
    """Return where the records of a principal lie."""
    return _set(tenant, f"{mark[0] % BUCKETS:x}")


def asked_set(tenant: str, part: str = ASKED_PART) -> LabelSet:
    """Return where lies, by its id, what waits for a second person: break-glasses, or acts."""
    return _set(tenant, part)


def _set(tenant: str, part: str) -> LabelSet:
    return LabelSet(STANDING_KIND, (tenant,), part, KEPT_MILLISECONDS, BUCKET_LIMIT)


def write(seal: Seal, tenant: str, kind: bytes, record: Pause | BreakGlass) -> LabelWrite:
    """Return what puts a record in force."""
    mark = mark_of(seal, record.principal)
    area, field = principal_status_set(tenant, mark), mark + kind
    return LabelWrite(area, LabelWriteMode.REPLACE, ((field, sealed(seal, area, field, record)),))


def sealed(seal: Seal, area: LabelSet, field: bytes, record: Any) -> bytes:
    """Return a record as it is stored at its place."""
    return seal.enciphered(area, field, json.dumps(asdict(record)).encode())


def read(
    seal: Seal, area: LabelSet, field: bytes, raw: object, kind: Callable[..., RecordT]
) -> RecordT | None:
    """Return a record, None where there is none, or it was altered or lay elsewhere."""
    body = seal.deciphered(area, field, raw) if isinstance(raw, bytes) else None
    if body is None:
        return None
    fields: dict[str, Any] = json.loads(body)
    try:
        return kind(**fields)
    except TypeError:
        return None  # Of another version of the guard.
