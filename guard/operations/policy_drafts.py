"""Drafts of a policy: edited on the console, rehearsed in a separate process, committed to Git.

The last drafts are kept, one file each, in a directory beside the audit log.  A draft changes no
verdict until it is committed or put on trial (docs/how-to/console.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, Field

from guard.core.errors import GuardError, InputError, PolicyError
from guard.operations.policy_history import PolicyHistory, replace_file
from guard.policy import load_policies
from guard.replay.policy_tests import SUFFIX
from guard.replay.rehearsal import Job, read_draft
from guard.settings import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.policy import Policy
    from guard.operations.people import Person

DRAFTS: Final = 50
TEXT_BYTES: Final = 1 << 20
WAITING: Final = 4
"""Maximum number of rehearsals that wait for the running one."""
SECONDS: Final = 1800.0
"""Maximum duration of a rehearsal, in seconds."""


class Rehearsal(BaseModel):
    """Result of tests or a replay of a draft, as far as it is known."""

    what: str
    """``tests``, or the hours of recordings in words."""
    result: dict[str, Any] | None = None
    error: str = ""

    @property
    def runs(self) -> bool:
        """True until it has ended."""
        return self.result is None and not self.error


class Draft(BaseModel):
    """Changed texts of policy files, and of the tests beside them.

    Rehearsals and agreement end with the process that has seen them.
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
    rehearsals: dict[str, Rehearsal] = Field(default={}, exclude=True)
    """Rehearsals of the current texts: ``tests`` and ``travel``."""
    seconded: str = Field(default="", exclude=True)
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
        recordings: directory of ``--record``; None: there is no past to replay.
        key: of the recordings; None for the user's own.
        commits: whether the console may write the files and commit.
        kept: directory of the drafts, made with the first; None keeps them as long as the process.
    """

    def __init__(
        self,
        policy: Sequence[Path],
        recordings: Path | None = None,
        key: Path | None = None,
        *,
        commits: bool = False,
        kept: Path | None = None,
    ) -> None:
        self.policy = list(policy)
        self.recordings = recordings
        self._key = key
        own = [path for path in policy if not str(path).startswith(BUILTIN)]
        tests = [path.with_name(path.stem + SUFFIX) for path in own]
        self.files = [*own, *(path for path in tests if path.is_file())]
        """Files that can be edited: policy files, then the tests beside them."""
        self.history = PolicyHistory(self.files)
        self.commits = commits and self.history.kept
        self._kept = kept
        self._drafts = {one.id: one for one in self._read()}
        self._turn = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def _read(self) -> list[Draft]:
        """Return the kept drafts of these files, the oldest first, without unreadable ones."""
        names, found = {str(path) for path in self.files}, list[Draft]()
        for path in self._kept.glob("*.json") if self._kept is not None else ():
            try:
                one = Draft.model_validate_json(path.read_bytes())
            except (OSError, ValueError) as error:
                sys.stderr.write(f"guard console: no draft in `{path}`: {type(error).__name__}\n")
            else:
                found += [one] if one.id == path.stem and one.base.keys() <= names else []
        return sorted(found, key=lambda draft: draft.at)

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

        Rehearsals of the earlier texts and agreement to them are forgotten.

        Raises:
            InputError: a text is too long, or of no file of the policy.
            GuardError: it is not kept beyond this process: the disk is full, for one.
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
        if self._kept is not None:
            try:
                self._kept.mkdir(mode=0o700, exist_ok=True)
                replace_file(self._kept / f"{draft.id}.json", draft.model_dump_json().encode())
            except OSError as error:
                msg = f"the drafts cannot be kept in `{self._kept}`: {error.strerror}"
                raise GuardError(msg) from error
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
        """Forget a draft.

        Raises:
            GuardError: its file cannot be removed.
        """
        self._drafts.pop(draft.id, None)
        if self._kept is not None:
            try:
                (self._kept / f"{draft.id}.json").unlink(missing_ok=True)
            except OSError as error:
                raise GuardError(f"the draft cannot be forgotten: {error.strerror}") from error

    def check(self, texts: dict[str, str]) -> Checked:
        """Return the result of loading new texts by path."""
        policy: Policy | None = None
        problems: list[tuple[str, int, str]] = []
        try:
            policy = read_draft(self.policy, texts)
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

    # --- rehearsals ------------------------------------------------------------------------------

    def rehearse(self, draft: Draft, *, since: float | None = None, until: float = 0.0) -> None:
        """Begin the tests of a draft, or its replay over the recordings since a time.

        Raises:
            InputError: there are no recordings, or too many rehearsals wait.
        """
        if since is not None and self.recordings is None:
            raise InputError("nothing is recorded: guard run --record")
        if len(self._tasks) > WAITING:
            raise InputError("other rehearsals wait already; try again later")
        job = Job(
            policy=[path.resolve() if path in self.files else path for path in self.policy],
            drafts={str(Path(name).resolve()): text for name, text in draft.texts.items()},
            tests=since is None,
            recordings=None if since is None else self.recordings,
            key=self._key,
            since=since or 0.0,
            until=until,
        )
        what = "tests" if since is None else f"{(until - since) / 3600:g} hours"
        rehearsal = Rehearsal(what=what)
        draft.rehearsals["tests" if since is None else "travel"] = rehearsal
        task = asyncio.get_running_loop().create_task(self._rehearsed(job, rehearsal))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _rehearsed(self, job: Job, rehearsal: Rehearsal) -> None:
        try:
            async with self._turn, asyncio.timeout(SECONDS):
                lines = await self._run(job)
            message = json.loads(next((one for one in reversed(lines) if one), b"{}"))
            rehearsal.result = message.get("result")
            rehearsal.error = message.get("error", "")
        except TimeoutError:
            rehearsal.error = "it took too long; choose fewer hours"
        except (OSError, ValueError) as error:
            rehearsal.error = f"it could not be run: {type(error).__name__}"
        if rehearsal.runs:
            rehearsal.error = "its process ended without a result"

    @staticmethod
    async def _run(job: Job) -> list[bytes]:
        """Return the lines of a rehearsal's process."""
        pipe, command = asyncio.subprocess.PIPE, (sys.executable, "-m", "guard.replay.rehearsal")
        nowhere = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=nowhere
        )
        try:
            out, _ = await process.communicate(job.model_dump_json().encode() + b"\n")
            return out.split(b"\n")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def aclose(self) -> None:
        """End running rehearsals."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
