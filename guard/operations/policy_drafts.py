"""Drafts of a policy: edited on the console, tested, committed to Git.

The last drafts are kept while the console runs.  A draft changes no verdict until it is committed
or put on trial (docs/how-to/console.md).

Git repository of policy files: patches, and the commit of a change.

``git`` runs without a shell, on the named files only.  The repository's hooks run as for any other
commit.

Acts on policies: agree to a draft, commit it, put it on trial, widen or stop the trial.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import io
import secrets
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from guard.core.errors import GuardError, InputError, PolicyError
from guard.policy import load_policies
from guard.policy.yaml_loader import merged_yaml
from guard.processes.private_directories import replace_file
from guard.replay.policy_tests import SUFFIX
from guard.replay.rehearsal import run_tests
from guard.settings import BUILTIN
from guard.store.trials import RUNNING, SECONDS, STEPS, STOPPED, TrialRecord, TrialStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.core.policy import Policy
    from guard.operations.deployment import Person
    from guard.telemetry.audit_log import AuditLogFile, NoAuditLog


GIT_SECONDS: Final = 20.0
_MESSAGE: Final = 2000
_NO_END: Final = "\\ No newline at end of file\n"


class PolicyHistory:
    """Repository of policy files.

    Args:
        files: of the policy, and their tests; those outside of the first one's repository are not
            committed.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._top: Path | None = None
        try:
            for path in files[:1]:
                found = self._git(path.resolve().parent, "rev-parse", "--show-toplevel")
                self._top = Path(found.strip())
        except GuardError:
            return

    @property
    def kept(self) -> bool:
        """True if there is a repository."""
        return self._top is not None

    def patch(self, texts: Mapping[str, str]) -> str:
        """Return new texts as a patch for ``git apply`` at the top of the repository."""
        parts: list[str] = []
        for path, text in texts.items():
            name = self._name(Path(path)) or Path(path).name
            texts_of = (Path(path).read_text(encoding="utf-8"), text)
            # Git ends a line at a line feed only.
            before, after = (io.StringIO(one, newline="\n").readlines() for one in texts_of)
            lines = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
            parts += (one if one.endswith("\n") else f"{one}\n{_NO_END}" for one in lines)
        return "".join(parts)

    def commit(self, texts: Mapping[str, str], message: str, who: str) -> str:
        """Write new texts and commit these files alone; return the commit's id.

        Raises:
            InputError: a file lies in no repository, or has changes that nobody committed.
            GuardError: Git refused; the files are as they were.
        """
        top = self._top
        paths = [Path(path) for path in texts]
        names = [self._name(path) for path in paths]
        if top is None or not all(names):
            raise InputError("the files are in no Git repository; take the patch")
        if self._git(top, "status", "--porcelain", "--", *names).strip():
            raise InputError(
                "somebody has changed the files and not committed that; take the patch"
            )
        before = {path: path.read_bytes() for path in paths}
        name = "".join(c for c in who if c.isprintable() and c not in "<>") or "console"
        person = ("-c", f"user.name={name}", "-c", "user.email=console@guard.invalid")
        try:
            for path in paths:
                replace_file(path, texts[str(path)].encode())
            self._git(
                top, *person, "commit", "-q", "-m", message[:_MESSAGE], "--only", "--", *names
            )
        except (OSError, GuardError) as error:
            for path, data in before.items():
                replace_file(path, data)
            raise GuardError(f"nothing was changed: {error}") from error
        return self._git(top, "rev-parse", "HEAD").strip()

    def _name(self, path: Path) -> str:
        """Return a file's name in the repository, empty if it lies outside."""
        found = path.resolve()
        is_in = self._top is not None and found.is_relative_to(self._top)
        return found.relative_to(self._top or "/").as_posix() if is_in else ""

    @staticmethod
    def _git(where: Path, *arguments: str) -> str:
        # What stands in the repository is read as text, and no pager or editor is started.
        command = ["git", "--no-pager", "-c", "core.quotePath=false", *arguments]
        try:
            ended = subprocess.run(  # noqa: S603  (no shell; the arguments are names of our own)
                command,
                cwd=where,
                capture_output=True,
                check=False,
                timeout=GIT_SECONDS,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GuardError(f"git cannot be run: {type(error).__name__}") from error
        if ended.returncode:
            raise GuardError(f"git: {ended.stderr.strip()[:300]}")
        return ended.stdout


DRAFTS: Final = 50
TEXT_BYTES: Final = 1 << 20


class Draft(BaseModel):
    """Changed texts of policy files, and of the tests beside them.

    Outcomes and agreement end with the process that has seen them.
    """

    id: str
    by: str
    at: float
    texts: dict[str, str] = {}
    """Texts by path; only those that differ from the file."""
    base: dict[str, str] = {}
    """Digest of the original file, by path."""
    writers: set[tuple[str, str]] = set()
    """Realm and subject of each author."""
    rehearsals: dict[str, dict[str, Any]] = {}
    """Outcome of the current texts' ``tests``."""
    seconded: str = ""
    """Name of another person who agrees to the current texts."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of loading a draft."""

    policy: Policy | None
    problems: list[tuple[str, int, str]]
    """File, line and message; empty where the policy is valid."""
    warnings: list[tuple[str, int, str]]


class PolicyDrafts:
    """Drafts of one policy.

    Args:
        policy: the files that make it, as the guard is given them.
        commits: whether the console may write the files and commit.
    """

    def __init__(
        self,
        policy: Sequence[Path],
        *,
        commits: bool = False,
    ) -> None:
        self.policy = list(policy)
        own = [path for path in policy if not str(path).startswith(BUILTIN)]
        tests = [path.with_name(path.stem + SUFFIX) for path in own]
        self.files = [*own, *(path for path in tests if path.is_file())]
        """Files that can be edited: policy files, then the tests beside them."""
        self.history = PolicyHistory(self.files)
        self.commits = commits and self.history.kept
        self._drafts: dict[str, Draft] = {}
        self._turn = asyncio.Lock()

    def file(self, text: str) -> Path:
        """Return the file of a name that a form sent.

        Raises:
            InputError: it is none of those that can be edited.
        """
        found = next((path for path in self.files if str(path) == text), None)
        if found is None:
            raise InputError("this file is not one of the policy's")
        return found

    def text(self, path: Path) -> str:
        """Return a file as it is now.

        Raises:
            GuardError: it cannot be read.
        """
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise GuardError(f"`{path}` cannot be read ({type(error).__name__})") from error

    def drafts(self) -> list[Draft]:
        """Return the drafts, the newest first."""
        return list(reversed(self._drafts.values()))

    def draft(self, identifier: str) -> Draft:
        """Return a draft.

        Raises:
            InputError: there is none of this id, any more.
        """
        found = self._drafts.get(identifier)
        if found is None:
            raise InputError(f"this draft is gone; the last {DRAFTS} are kept")
        return found

    def keep(self, person: Person, at: float, texts: dict[str, str], identifier: str = "") -> Draft:
        """Write texts into a draft, a new one if none is named.

        Tests of the earlier texts and agreement to them are forgotten.

        Raises:
            InputError: a text is too long, or of no file of the policy.
            GuardError: a file cannot be read.
        """
        new = Draft(id=secrets.token_hex(8), by=person.name, at=at)
        draft = self.draft(identifier) if identifier else new
        draft.rehearsals, draft.seconded = {}, ""
        for name, given in texts.items():
            path = self.file(name)
            # A form sends other line ends than files have.
            text = given.replace("\r\n", "\n")
            if len(text.encode("utf-8", "replace")) > TEXT_BYTES:
                raise InputError("the text is longer than a policy file may be")
            now = self.text(path)
            draft.base.setdefault(name, _digest(now))
            draft.texts.pop(name, None)
            if text != now:
                draft.texts[name] = text
        draft.writers.add(person.key)
        self._drafts[draft.id] = draft
        while len(self._drafts) > DRAFTS:
            self.discard(next(iter(self._drafts.values())))
        return draft

    @property
    def needs_two(self) -> bool:
        """True if the policy in force needs two persons for a change, or cannot be read."""
        try:
            return self.in_force().approvals.changes
        except GuardError:
            return True

    def check_agreed(self, draft: Draft) -> None:
        """Refuse a draft that a second person has yet to agree to.

        Raises:
            InputError: it is one.
        """
        if self.needs_two and not draft.seconded:
            raise InputError("a second person has to agree to this draft first")

    def discard(self, draft: Draft) -> None:
        """Forget a draft."""
        self._drafts.pop(draft.id, None)

    def check(self, texts: dict[str, str]) -> Checked:
        """Return the result of loading new texts by path."""
        policy: Policy | None = None
        problems: list[tuple[str, int, str]] = []
        try:
            policy = load_policies(self.policy, texts)
        except PolicyError as error:
            problems = [(Path(p.path).name, p.line, p.message) for p in error.problems]
        except (GuardError, OSError, UnicodeError) as error:
            problems = [("", 0, str(error))]
        warnings = policy.source.warnings if policy is not None else ()
        shown = [(Path(p.path).name, p.line, p.message) for p in warnings]
        return Checked(policy, problems, shown)

    def valid(self, draft: Draft) -> Policy:
        """Return the policy of a draft.

        Raises:
            InputError: it has a problem.
        """
        checked = self.check(draft.texts)
        if checked.policy is None:
            raise InputError(f"the draft has a problem: {checked.problems[0][2]}")
        return checked.policy

    def in_force(self) -> Policy:
        """Return the policy that the files hold now.

        Raises:
            GuardError: they hold none.
        """
        return load_policies(self.policy)

    def commit(self, draft: Draft, message: str, who: str) -> str:
        """Write a draft into its files and commit them; return the commit's id.

        Raises:
            InputError: the console may not, or a file has changed since the draft was begun.
            GuardError: the draft has a problem, or Git refused; nothing was changed.
        """
        if not self.commits:
            raise InputError("this console does not commit (--console-commit); take the patch")
        if self.stale(draft):
            raise InputError("a file has changed since this draft was begun; begin anew")
        self.check_agreed(draft)
        self.valid(draft)
        return self.history.commit(draft.texts, message, who)

    def stale(self, draft: Draft) -> bool:
        """Return whether a file differs from the one that the draft was made from."""
        return any(_digest(self.text(self.file(name))) != was for name, was in draft.base.items())

    # --- tests -----------------------------------------------------------------------------------

    async def run_tests(self, draft: Draft) -> None:
        """Run the tests of a draft, one draft after the other, and keep the outcome with it."""
        texts, found, why = dict(draft.texts), None, ""
        async with self._turn:
            try:
                found = await asyncio.to_thread(run_tests, self.policy, texts)
            except (GuardError, OSError, UnicodeError) as error:
                why = str(error)
        outcome = {"what": "tests", "runs": False, "result": found, "error": why}
        if draft.texts == texts:
            draft.rehearsals["tests"] = outcome


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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

    async def map_tools(self, person: Person, mapping: Sequence[tuple[str, str]]) -> Draft:
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
        await drafts.run_tests(draft)
        return draft

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
