"""A worker's part in the trial of a policy: follows the record, counts, and steps back by itself.

While the record cannot be read the candidate goes on for a few seconds only: a policy on trial is
never in force without somebody who could stop it.

Hot reload: watches the policy files and puts a changed policy in force, whole or not at all.

The files are read, validated and compiled in full beside the running policy; then one reference
is exchanged, so no call is ever judged by half a policy or by none.  A policy with a problem, or a
change that cannot be recorded, leaves the old one in force.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError, GuardError, PolicyError, PolicyProblem, StateError
from guard.core.metrics import (
    ERRORS,
    POLICY_RELOADS,
    POLICY_STALE,
    TRIAL_CALLS,
    TRIAL_SHARE,
    TRIALS_ENDED,
    Metrics,
)
from guard.core.policy import Action, Policy
from guard.pipeline.trial import FAILED, Trial, VerdictPair, jumped, worsened
from guard.policy import load_policies
from guard.settings import BUILTIN, policy_file
from guard.store.incident_records import (
    DONE,
    RUNNING,
    STEPPED_BACK,
    STOPPED,
    TrialRecord,
    TrialStore,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.core.ports import AuditLog
    from guard.pipeline.guard import Guard
    from guard.provenance.seal import Seal


RELOAD_EVENT: Final = "guard.policy_reload"
"""Name of the audit line; its fields are ``outcome``, ``policy``, ``previous``, ``problems``."""
SWAPPED: Final = "swapped"
KEPT: Final = "kept"
PROBLEMS: Final = 20
"""Problems written into one audit line."""
LAST_GOOD: Final = "last-good-policy"
_CAUSE_CHARS: Final = 500


class PolicyFiles:
    """The policy files of a running guard.

    Args:
        paths: the files; together they make one policy.
        keep: directory of a copy of the files in force, for a worker that is started while the
            files on disk have a problem; None keeps none.
    """

    def __init__(self, paths: Sequence[Path], keep: Path | None = None) -> None:
        self._paths = tuple(paths)
        self._copies = None if keep is None else keep / LAST_GOOD
        self._digest = ""
        self._seen = ""

    def first(self) -> Policy:
        """Return the policy to start with: that of the files, else of the copy that was in force.

        Raises:
            PolicyError: the files have a problem, and there is no copy.
        """
        try:
            policy, self._digest = self._load(self._paths)
        except PolicyError as error:
            kept = sorted(self._copies.iterdir()) if self._copies and self._copies.is_dir() else []
            if not kept:
                raise
            _say_reload(f"the policy files have a problem, the last good ones are used: {error}")
            policy, _ = self._load(kept)
            return policy
        self.keep()
        return policy

    def settled_change(self) -> bool:
        """Return whether the files differ from those last tried, and have come to rest.

        A file that is still being written looks different at every look, so a change counts at the
        second look that sees the same.
        """
        before, self._seen = self._seen, _bytes_digest(self._paths)
        return before == self._seen != self._digest

    def reload(self) -> Policy:
        """Read, validate and compile the files.

        Raises:
            PolicyError: they have a problem.
        """
        self._digest = _bytes_digest(self._paths)
        policy, self._digest = self._load(self._paths)
        # The YAML reader's parts refer to each other, and what is old is hardly ever collected.  A
        # whole collection also frees the tuples that Python keeps for later: each reload adds some.
        gc.collect()
        return policy

    def keep(self) -> None:
        """Remember the files just loaded as the last good ones."""
        if self._copies is None:
            return
        fresh = self._copies.with_name(LAST_GOOD + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        for index, path in enumerate(self._paths):
            (fresh / f"{index:04d}.yaml").write_bytes(policy_file(path).read_bytes())
        if _bytes_digest(sorted(fresh.iterdir())) != self._digest:
            return
        shutil.rmtree(self._copies, ignore_errors=True)
        fresh.rename(self._copies)

    def _load(self, paths: Sequence[Path]) -> tuple[Policy, str]:
        before = _bytes_digest(paths)
        policy = load_policies(paths)
        if _bytes_digest(paths) != before:
            # What was validated is not what is there now; the next look tries again.
            self._digest = ""
            raise PolicyError(
                (PolicyProblem(str(paths[0]), 0, "the files changed while they were read"),)
            )
        return policy, before


class PolicyReloader:
    """Puts changed policies in force.

    Args:
        files: what is watched.
        current: gives the policy in force.
        swap: puts another in force; must not fail.
        audit: a change that cannot be recorded is not made.
        metrics: told of every attempt.
    """

    def __init__(
        self,
        *,
        files: PolicyFiles,
        current: Callable[[], Policy | None],
        swap: Callable[[Policy], None],
        audit: AuditLog,
        metrics: Metrics,
    ) -> None:
        self._files = files
        self._current = current
        self._swap = swap
        self._audit = audit
        self._metrics = metrics
        self._busy = asyncio.Lock()

    async def watch(self, seconds: float) -> None:
        """Look at the files again and again; put every valid change in force.  Does not return."""
        while True:
            await asyncio.sleep(seconds)
            try:
                changed = await asyncio.to_thread(self._files.settled_change)
                if changed:
                    await self.reload()
            except Exception as error:  # noqa: BLE001  (a watcher that died would never be missed)
                self._metrics.count(ERRORS, "policy")
                _say_reload(f"the policy files could not be looked at: {type(error).__name__}")

    async def reload(self) -> str:
        """Try the files now; return ``swapped`` or ``kept``.  Never raises."""
        async with self._busy:
            try:
                # In a thread: validation takes longer than a call may wait.
                policy = await asyncio.to_thread(self._files.reload)
                self._record(SWAPPED, policy, ())
                self._swap(policy)
            except Exception as error:  # noqa: BLE001  (whatever it is, the policy in force stays)
                return self._kept(error)
            self._metrics.set(POLICY_STALE, 0)
            self._metrics.count(POLICY_RELOADS, SWAPPED)
            self._metrics.set_policy(policy)
            _say_reload(f"policy {policy.name} is in force, digest {policy.digest[:12]}")
            try:
                await asyncio.to_thread(self._files.keep)
            except OSError as error:
                _say_reload(f"no copy of the policy could be kept: {type(error).__name__}")
            return SWAPPED

    def _kept(self, error: Exception) -> str:
        policy = self._current()
        problems = (
            tuple(str(problem) for problem in error.problems)
            if isinstance(error, PolicyError)
            else (f"{type(error).__name__}: {error}",)
        )
        if not isinstance(error, AuditError):
            try:
                self._record(KEPT, policy, problems)
            except AuditError:
                self._metrics.count(ERRORS, "audit")
        if policy is not None:
            self._metrics.set(POLICY_STALE, 1)
            self._metrics.count(POLICY_RELOADS, KEPT)
        _say_reload("the policy in force is kept: " + "\n".join(problems))
        return KEPT

    def _record(self, outcome: str, policy: Policy | None, problems: tuple[str, ...]) -> None:
        previous = self._current()
        self._audit.event(
            RELOAD_EVENT,
            {
                "outcome": outcome,
                "policy": policy.digest if policy else "",
                "policy_name": policy.name if policy else "",
                "previous": previous.digest if previous else "",
                "problems": [text[:_CAUSE_CHARS] for text in problems[:PROBLEMS]],
            },
        )


def _bytes_digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            content = policy_file(path).read_bytes()
        except OSError as error:
            content = type(error).__name__.encode()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()


def _say_reload(text: str) -> None:
    print(f"guard: {text}", file=sys.stderr, flush=True)  # noqa: T201  (operators read stderr)


EVENT: Final = "guard.policy_trial"
WORKER: Final = "guard"
"""Actor on record for a trial that the guard itself ends."""
LOST_SECONDS: Final = 10.0
"""Seconds for which a candidate goes on deciding while the record cannot be read."""
_STRENGTH: Final = {action.label: action for action in Action}


def candidate_of(files: Sequence[tuple[str, str]], place: Path) -> Policy:
    """Return the policy that some texts make, written to a directory for that.

    Raises:
        PolicyError: they make none.
    """
    paths: list[Path] = []
    for number, (name, text) in enumerate(files):
        path = Path(name)
        if not name.startswith(BUILTIN):
            path = place / f"{number:04d}.yaml"
            path.write_text(text, encoding="utf-8", newline="")
        paths.append(path)
    return load_policies(paths)


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
        directory: private; where the candidate's texts are written.
        audit: a trial that cannot be recorded does not begin here.
        metrics: told of what the two policies decide.
        now: seconds since the epoch.
    """

    def __init__(  # noqa: PLR0913  (the composition root passes every part once, by name)
        self,
        *,
        guard: Guard,
        store: TrialStore,
        seal: Seal,
        directory: Path,
        audit: AuditLog,
        metrics: Metrics,
        now: Callable[[], float],
    ) -> None:
        self._guard = guard
        self._store = store
        self._seal = seal
        self._directory = directory
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
                _say(f"the trial could not be looked at: {type(error).__name__}: {error}")

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
            _say(f"policy {known.candidate.name} is on trial, share {record.share:g}")
        self._known = _Known(record, known.candidate)

    async def _compiled(self, record: TrialRecord, base: Policy) -> Policy | None:
        """Return the candidate, None where this guard cannot use it; then the trial is refused."""

        def compiled() -> Policy:
            with tempfile.TemporaryDirectory(prefix="trial-", dir=self._directory) as place:
                return candidate_of(record.files, Path(place))

        why = ""
        try:
            candidate = await asyncio.to_thread(compiled)
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
        _say(f"the trial is refused here: {why}")
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
        _say(f"the trial of a policy has ended: {state} {why}")


def _outcome(pair: VerdictPair) -> str:
    """Return how a candidate's verdict stands to the other."""
    if FAILED in pair:
        return FAILED
    before, after = _STRENGTH[pair.base], _STRENGTH[pair.candidate]
    return "same" if before is after else "stricter" if after > before else "looser"


def _say(text: str) -> None:
    print(f"guard: {text}", file=sys.stderr, flush=True)  # noqa: T201  (operators read stderr)
