"""A worker's part in the trial of a policy: follows the record, counts, and steps back by itself.

While the record cannot be read the candidate goes on for a few seconds only: a policy on trial is
never in force without somebody who could stop it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError, PolicyError, StateError
from guard.core.metrics import (
    ERRORS,
    TRIAL_CALLS,
    TRIAL_SHARE,
    TRIALS_ENDED,
    Metrics,
)
from guard.core.policy import Action, Policy
from guard.environment import say
from guard.pipeline.trial import FAILED, Trial, VerdictPair, jumped, worsened
from guard.policy import load_policies
from guard.settings import BUILTIN
from guard.store.trials import DONE, RUNNING, STEPPED_BACK, STOPPED, TrialRecord, TrialStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.ports import AuditLog
    from guard.pipeline.guard import Guard
    from guard.provenance.seal import Seal


EVENT: Final = "guard.policy_trial"
WORKER: Final = "guard"
"""Actor on record for a trial that the guard itself ends."""
LOST_SECONDS: Final = 10.0
"""Seconds for which a candidate goes on deciding while the record cannot be read."""
_STRENGTH: Final = {action.label: action for action in Action}


def candidate_of(files: Sequence[tuple[str, str]]) -> Policy:
    """Return the policy of a record: shipped files by name, others by their text.

    Raises:
        PolicyError: it is none.
    """
    paths: list[Path] = []
    texts: dict[str, str] = {}
    for number, (name, text) in enumerate(files):
        if name.startswith(BUILTIN):
            paths.append(Path(name))
        else:
            # Two files of one name may lie in two folders.
            paths.append(Path(f"{number:04d}.yaml"))
            texts[str(paths[-1])] = text
    return load_policies(paths, texts)


@dataclass(slots=True)
class _Known:
    """The record that this worker acts on."""

    record: TrialRecord
    candidate: Policy | None
    """None where it cannot be used here."""


class TrialWatch:
    """Follows the trial for one guard.

    Args:
        guard: whose policy is in force.
        store: where the record lies.
        seal: the deployment's key.
        audit: a trial that cannot be recorded does not begin here.
        metrics: told of what the two policies decide.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        *,
        guard: Guard,
        store: TrialStore,
        seal: Seal,
        audit: AuditLog,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._guard = guard
        self._store = store
        self._seal = seal
        self._audit = audit
        self._metrics = metrics
        self._now = now
        self._known: _Known | None = None
        self._seen = now()

    async def watch(self, seconds: float) -> None:
        """Look again and again.  Does not return."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001  (a watcher that died would never be missed)
                self._metrics.count(ERRORS, "policy")
                say(f"the trial could not be looked at: {type(error).__name__}: {error}")

    async def look(self) -> None:
        """Do what the record says; end the trial where it is over, or where asks or blocks jump."""
        try:
            record, raw = await self._store.read()
        except GuardError:
            if self._guard.trial is not None and self._now() - self._seen > LOST_SECONDS:
                self._end("lost", "its record cannot be read")
            raise
        self._seen = self._now()
        base = self._guard.policy
        if record is None or record.state != RUNNING or base is None:
            if self._guard.trial is not None:
                state = STOPPED if record is None else record.state
                self._end(state, "" if record is None else record.why)
            return
        await self._count(record)
        ended = self._over(record, base) or await self._jumped(record)
        if ended is not None:
            await self._close(record, raw, *ended)
        elif self._guard.trial is None or self._known is None or self._known.record != record:
            await self._begin(record, base)

    def _over(self, record: TrialRecord, base: Policy) -> tuple[str, str] | None:
        """Return state and reason of a trial that is over."""
        if base.digest == record.candidate:
            return DONE, "the candidate is in force"
        if base.digest != record.base:
            return STOPPED, "another policy was put in force"
        if self._now() >= record.until:
            return STOPPED, "its time is over"
        return None

    async def _begin(self, record: TrialRecord, base: Policy) -> None:
        """Let the candidate judge, for whom the record says."""
        known = self._known
        if known is None or (known.record.id, known.record.files) != (record.id, record.files):
            known = _Known(record, await self._compiled(record, base))
        elif known.record == record and known.candidate is None:
            return
        if known.candidate is not None:
            fields = {"act": "begun", "trial": record.id, "candidate": record.candidate}
            share = {"share": record.share, "principals": list(record.principals), "by": record.by}
            self._audit.event(EVENT, {**fields, **share})
            before = self._guard.trial
            principals = frozenset(record.principals)
            trial = Trial(record.id, known.candidate, record.share, principals, self._seal)
            if before is not None and before.id == record.id:
                trial.counts = before.counts
            self._guard.try_policy(trial)
            self._metrics.set(TRIAL_SHARE, record.share)
            say(f"policy {known.candidate.name} is on trial, share {record.share:g}")
        self._known = _Known(record, known.candidate)

    async def _compiled(self, record: TrialRecord, base: Policy) -> Policy | None:
        """Return the candidate, None where this guard cannot use it; then the trial is refused."""
        why = ""
        try:
            candidate = await asyncio.to_thread(candidate_of, record.files)
        except (PolicyError, OSError) as error:
            why = f"{type(error).__name__}: {error}"
        else:
            if candidate.digest != record.candidate:
                why = "this version of the guard reads it as another policy"
            elif candidate.source.frame != base.source.frame:
                why = "it changes what holds for everybody at once"
            else:
                return candidate
        self._audit.event(EVENT, {"act": "refused", "trial": record.id, "why": why[:500]})
        say(f"the trial is refused here: {why}")
        return None

    async def _count(self, record: TrialRecord) -> None:
        """Tell the store what was counted here."""
        trial = self._guard.trial
        if trial is None or trial.id != record.id:
            return
        counted, trial.counts = trial.counts, Counter()
        try:
            if counted:
                await self._store.add(record.id, counted)
        except StateError:
            trial.counts.update(counted)
            raise
        for pair, count in counted.items():
            for _ in range(count):
                self._metrics.count(TRIAL_CALLS, pair.decided_by, _outcome(pair))

    async def _jumped(self, record: TrialRecord) -> tuple[str, str] | None:
        """Return state and reason where the counts of all workers say to step back."""
        if not record.share and not record.principals:
            return None  # Shadow mode: nothing is carried out that could be stepped back from.
        totals = await self._store.totals(record.id)
        if not jumped(totals, record.jump):
            return None
        decided, worse = worsened(totals)
        return STEPPED_BACK, f"asks or blocks jumped: {worse} of {decided} calls"

    async def _close(self, record: TrialRecord, raw: bytes, state: str, why: str) -> None:
        """End the trial here and, first of all workers to do so, for everybody."""
        if self._guard.trial is not None:
            self._end(state, why)
        # Another worker may have been first; whatever the record is now, the next look sees it.
        with suppress(GuardError):
            await self._store.write(record.ended(self._now(), WORKER, state, why), raw)

    def _end(self, state: str, why: str) -> None:
        # First the policy in force, whatever becomes of the record of it.
        trial = self._guard.trial
        self._guard.try_policy(None)
        self._known = None
        self._metrics.set(TRIAL_SHARE, 0)
        self._metrics.count(TRIALS_ENDED, state)
        identifier = trial.id if trial is not None else ""
        self._audit.event(EVENT, {"act": state, "trial": identifier, "why": why})
        say(f"the trial of a policy has ended: {state} {why}")


def _outcome(pair: VerdictPair) -> str:
    """Return how a candidate's verdict stands to the other."""
    if FAILED in pair:
        return FAILED
    before, after = _STRENGTH[pair.base], _STRENGTH[pair.candidate]
    return "same" if before is after else "stricter" if after > before else "looser"
