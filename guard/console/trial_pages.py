"""What people do with a policy on trial: begin it, widen it, stop it, and see what it decides."""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import RedirectResponse, Response

from guard.adapters.redis.trials import JUMP, RUNNING, SECONDS, STEPS, STOPPED, TrialRecord
from guard.console.access import Role, check_second, person_key
from guard.console.routes import Page, field_of, person_of
from guard.core.errors import GuardError, InputError
from guard.core.policy import Action
from guard.decision.trial import FACT, worsened
from guard.settings import BUILTIN

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from starlette.requests import Request

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.adapters.redis.trials import TrialStore
    from guard.console.decisions import DecisionIndex, Row
    from guard.console.pages import Templates
    from guard.console.policy_drafts import Draft, PolicyDrafts
    from guard.decision.trial import VerdictPair

EVENT: Final = "guard.policy_change"
LOOKED_AT: Final = 1000
"""Last decisions among which those are looked for on which the two policies differ."""
SHOWN: Final = 30
_ACTIONS: Final = tuple(action.label for action in Action)
_NAMES: Final = re.compile(r"[,\s]+")


class TrialPages:
    """Pages over the trial of a policy.

    Args:
        drafts: whose drafts are tried.
        store: where the trial lies.
        index: of the audit log, for calls on which the two policies differ.
        templates: of the console.
        audit: takes a line per act.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        drafts: PolicyDrafts,
        store: TrialStore,
        index: DecisionIndex,
        templates: Templates,
        audit: AuditLogFile | NoAuditLog,
        now: Callable[[], float],
    ) -> None:
        self._drafts = drafts
        self._store = store
        self._index = index
        self._shown = templates.shown
        self._audit = audit
        self._now = now

    def table(self) -> list[Page]:
        """Return the routes."""
        return [
            Page("/policies/trial", self.trial, Role.VIEWER),
            Page("/policies/trial", self.step, Role.AUTHOR, "POST"),
            Page("/policies/drafts/{draft}/trial", self.begin, Role.AUTHOR, "POST"),
        ]

    async def trial(self, request: Request) -> Response:
        """The policy on trial beside the one in force: who decides what, and where they differ."""
        record, _ = await self._store.read()
        totals: Counter[VerdictPair] | None = None
        differ: list[Row] = []
        if record is not None:
            totals = await self._store.totals(record.id)
            differ = await asyncio.to_thread(self._differing)
        return self._shown(
            request,
            "policy_trial",
            record=record,
            runs=record is not None and record.state == RUNNING,
            sides=_sides(totals) if totals is not None else [],
            worse=worsened(totals) if totals is not None else (0, 0),
            differ=differ,
            actions=_ACTIONS,
            steps=STEPS,
        )

    def _differing(self) -> list[Row]:
        rows = self._index.page({}, limit=LOOKED_AT)
        return [row for row in rows if FACT in row.get("facts", {})][:SHOWN]

    async def begin(self, request: Request) -> Response:
        """Put a draft on trial: in shadow mode, or for a share of the principals."""
        draft = self._drafts.draft(request.path_params["draft"])
        person, form = person_of(request), request.state.form
        before, raw = await self._store.read()
        if before is not None and before.state == RUNNING:
            raise GuardError("another policy is on trial; stop that one first")
        record = await asyncio.to_thread(self._record, draft, person.name)
        share, principals = _share(form), _principals(form)
        if share or principals:
            await asyncio.to_thread(self._drafts.check_agreed, draft)
        record = replace(
            record,
            share=share,
            principals=principals,
            jump=_jump(field_of(form, "jump")),
            writers=tuple(sorted({*draft.writers, person_key(person)})),
            seconded=draft.seconded,
        ).logged(self._now(), person.name, "begun")
        self._note("trial", person.name, record)
        await self._store.write(record, raw)
        return RedirectResponse("/policies/trial", 303)

    def _record(self, draft: Draft, who: str) -> TrialRecord:
        """Return a draft as a trial.

        Raises:
            InputError: it cannot stand beside the policy in force.
        """
        drafts = self._drafts
        checked, base = drafts.check(draft.texts), drafts.in_force()
        candidate = checked.policy
        if candidate is None:
            raise InputError(f"the draft has a problem: {checked.problems[0][2]}")
        if candidate.digest == base.digest:
            raise InputError("the draft decides nothing otherwise than the policy in force")
        if candidate.source.frame != base.source.frame:
            msg = "state, identity, memory, stores, http_tools, propagation, egress, approvals"
            raise InputError(
                f"{msg}, recording and servers hold for everybody at once: a draft that changes "
                "them cannot be tried on some"
            )
        files = []
        for path in drafts.policy:
            own = not str(path).startswith(BUILTIN)
            text = draft.texts.get(str(path)) or drafts.text(path) if own else ""
            files.append((path.name if own else str(path), text))
        at = self._now()
        return TrialRecord(
            id=secrets.token_hex(8),
            files=tuple(files),
            candidate=candidate.digest,
            base=base.digest,
            by=who,
            at=at,
            until=at + SECONDS,
        )

    async def step(self, request: Request) -> Response:
        """Widen or narrow the share of a trial, or stop it."""
        person, form = person_of(request), request.state.form
        record, raw = await self._store.read()
        if record is None or record.state != RUNNING or record.id != field_of(form, "trial"):
            raise GuardError("this trial has ended; look at it again")
        at = self._now()
        if field_of(form, "act") == "stop":
            changed = record.ended(at, person.name, STOPPED, f"stopped by {person.name}")
        else:
            share = _share(form)
            if share > record.share and not record.seconded and self._drafts.needs_two:
                # Whoever lets it decide for more people has looked at it as the second one.
                check_second(record.writers, person)
                record = replace(record, seconded=person.name)
            changed = replace(record, share=share).logged(at, person.name, f"share {share:g}")
        self._note("stop" if changed.state == STOPPED else "step", person.name, changed)
        await self._store.write(changed, raw)
        return RedirectResponse("/policies/trial", 303)

    def _note(self, act: str, who: str, record: TrialRecord) -> None:
        fields: dict[str, Any] = {
            "act": act,
            "by": who,
            "trial": record.id,
            "policy": record.candidate,
            "share": record.share,
            "principals": list(record.principals),
            "seconded": record.seconded,
        }
        self._audit.event(EVENT, fields)


def _share(form: dict[str, list[str]]) -> float:
    try:
        share = float(field_of(form, "share") or "x")
    except ValueError:
        share = -1.0
    if share not in STEPS:
        raise InputError(f"a share is one of {', '.join(f'{one:g}' for one in STEPS)}")
    return share


def _principals(form: dict[str, list[str]]) -> tuple[str, ...]:
    return tuple(sorted(set(filter(None, _NAMES.split(field_of(form, "principals"))))))


def _jump(text: str) -> float:
    """Return a percentage as a share; the default where none is given."""
    try:
        share = float(text) / 100 if text else JUMP
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InputError("a jump is a percentage of the candidate's calls")
    return share


def _sides(totals: Counter[VerdictPair]) -> list[dict[str, Any]]:
    """Return, by who decides, how often which pair of verdicts came."""
    sides: list[dict[str, Any]] = []
    for decided_by in ("base", "candidate"):
        own = {(p.base, p.candidate): n for p, n in totals.items() if p.decided_by == decided_by}
        rows = [
            (base, [own.get((base, candidate), 0) for candidate in _ACTIONS]) for base in _ACTIONS
        ]
        failed = own.get(("failed", "failed"), 0)
        calls = sum(own.values())
        sides.append({"decided_by": decided_by, "rows": rows, "failed": failed, "calls": calls})
    return [one for one in sides if one["calls"]]
