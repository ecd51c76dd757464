"""Acts on policies: agree to a draft, commit it, put it on trial, widen or stop the trial."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError, InputError
from guard.policy.yaml_merge import merged_yaml
from guard.replay.policy_tests import SUFFIX
from guard.settings import BUILTIN
from guard.store.trials import RUNNING, SECONDS, STEPS, STOPPED, TrialRecord, TrialStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.operations.people import Person
    from guard.operations.policy_drafts import Draft, PolicyDrafts
    from guard.telemetry.audit_log import AuditLogFile, NoAuditLog

EVENT: Final = "guard.policy_change"


class PolicyActions:
    """Drafts and the trial of one policy, and what persons do with them.

    Args:
        drafts: the drafts.
        trials: store of the trial.
        audit: the audit log; one line per act.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        drafts: PolicyDrafts,
        trials: TrialStore,
        audit: AuditLogFile | NoAuditLog,
        now: Callable[[], float],
    ) -> None:
        self.drafts = drafts
        self.trials = trials
        self._audit = audit
        self._now = now

    def keep(self, person: Person, texts: dict[str, str], identifier: str = "") -> Draft:
        """Write texts into a draft, a new one if none is named."""
        return self.drafts.keep(person, self._now(), texts, identifier)

    def map_tools(self, person: Person, mapping: Sequence[tuple[str, str]]) -> Draft:
        """Begin a draft with lines that map tools and with their tests, and run the tests.

        Raises:
            InputError: there is nothing to map, or no file to write it into.
        """
        drafts = self.drafts
        if not mapping or not drafts.files:
            raise InputError("no tool of this request can be mapped in a file of this console")
        policy = drafts.files[0]
        tests = policy.with_name(policy.stem + SUFFIX)
        texts = {path: drafts.text(path) for path in {policy, tests} & {*drafts.files}}
        for lines, test in mapping:
            texts[policy] = merged_yaml(texts[policy], lines, ("servers",), extends=True)
            if tests in texts:
                texts[tests] = merged_yaml(texts[tests], test, ("tests",))
        draft = self.keep(person, {str(path): text for path, text in texts.items()})
        drafts.rehearse(draft)
        return draft

    def replay(self, draft: Draft, hours: int) -> None:
        """Begin the replay of the last hours under a draft."""
        at = self._now()
        self.drafts.rehearse(draft, since=at - hours * 3600, until=at)

    def agree(self, draft: Draft, person: Person) -> None:
        """Agree to a draft that others wrote.

        Raises:
            InputError: the person wrote in it, or is not known by name.
        """
        person.check_second(draft.writers)
        line = {"act": "second", "by": person.name, "of": draft.by, "files": _files(draft)}
        self._audit.event(EVENT, line)
        draft.seconded = person.name

    async def commit(self, draft: Draft, person: Person, message: str) -> None:
        """Commit a draft; a guard that watches the files puts it in force.

        Raises:
            GuardError: it cannot be committed; the files are unchanged.
        """
        # Its author may write on meanwhile: what is checked is what is committed.
        written, draft = draft, _snapshot(draft)
        await asyncio.to_thread(self.drafts.check_agreed, draft)
        if draft.seconded:
            message += f"\n\nReviewed-by: {''.join(filter(str.isprintable, draft.seconded))}"
        checked = await asyncio.to_thread(self.drafts.check, draft.texts)
        line: dict[str, Any] = {
            "act": "commit",
            "by": person.name,
            "files": _files(draft),
            "policy": checked.policy.digest if checked.policy else "",
            "seconded": draft.seconded,
        }
        self._audit.event(EVENT, line)
        try:
            made = await asyncio.to_thread(self.drafts.commit, draft, message, person.name)
        except Exception as error:
            self._audit.event(EVENT, {**line, "act": "failed", "error": str(error)[:200]})
            raise
        self._audit.event(EVENT, {**line, "act": "committed", "commit": made})
        self.drafts.discard(written)

    # --- trial -----------------------------------------------------------------------------------

    async def begin_trial(
        self,
        person: Person,
        draft: Draft,
        share: float,
        principals: tuple[str, ...],
        jump: float,
    ) -> None:
        """Put a draft on trial.

        Args:
            person: the person who begins it.
            draft: the candidate.
            share: share of the principals; 0 is shadow mode.
            principals: further principals by name.
            jump: share of newly asked or blocked calls that ends the trial.

        Raises:
            GuardError: another trial runs, or the draft cannot be tried.
        """
        before, raw = await self.trials.read()
        if before is not None and before.state == RUNNING:
            raise GuardError("another policy is on trial; stop that one first")
        draft = _snapshot(draft)
        record = await asyncio.to_thread(self._record, draft, person.name)
        if _known(share) or principals:
            await asyncio.to_thread(self.drafts.check_agreed, draft)
        record = replace(
            record,
            share=share,
            principals=principals,
            jump=jump,
            writers=tuple(sorted({*draft.writers, person.key})),
            seconded=draft.seconded,
        ).logged(self._now(), person.name, "begun")
        self._note("trial", person.name, record)
        await self.trials.write(record, raw)

    def _record(self, draft: Draft, who: str) -> TrialRecord:
        """Return the trial of a draft.

        Raises:
            InputError: the draft cannot be judged beside the policy in force.
        """
        drafts = self.drafts
        candidate, base = drafts.valid(draft), drafts.in_force()
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

    async def step(self, person: Person, trial: str, share: float | None) -> None:
        """Change the share of a trial, or stop it.

        Args:
            person: the person who acts.
            trial: id of the trial that the person has seen.
            share: the new share; None stops the trial.

        Raises:
            GuardError: the trial has ended, or a second person has to widen it.
        """
        record, raw = await self.trials.read()
        if record is None or record.state != RUNNING or record.id != trial:
            raise GuardError("this trial has ended; look at it again")
        at = self._now()
        if share is None:
            changed = record.ended(at, person.name, STOPPED, f"stopped by {person.name}")
        else:
            if _known(share) > record.share and not record.seconded and self.drafts.needs_two:
                # The person who widens the trial has looked at it as the second one.
                person.check_second(record.writers)
                record = replace(record, seconded=person.name)
            changed = replace(record, share=share).logged(at, person.name, f"share {share:g}")
        self._note("stop" if share is None else "step", person.name, changed)
        await self.trials.write(changed, raw)

    def _note(self, act: str, who: str, record: TrialRecord) -> None:
        line: dict[str, Any] = {
            "act": act,
            "by": who,
            "trial": record.id,
            "policy": record.candidate,
            "share": record.share,
            "principals": list(record.principals),
            "seconded": record.seconded,
        }
        self._audit.event(EVENT, line)


def _known(share: float) -> float:
    if share not in STEPS:
        raise InputError(f"a share is one of {', '.join(f'{one:g}' for one in STEPS)}")
    return share


def _files(draft: Draft) -> list[Any]:
    return sorted(Path(name).name for name in draft.texts)


def _snapshot(draft: Draft) -> Draft:
    """Return a draft with the texts of this moment."""
    return draft.model_copy(update={"texts": dict(draft.texts), "base": dict(draft.base)})
