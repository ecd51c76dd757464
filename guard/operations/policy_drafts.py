"""Drafts of a policy: edited on the console, rehearsed in a separate process, committed to Git.

The last drafts are kept, one file each, in a directory beside the audit log.  A draft changes no
verdict until it is committed or put on trial (docs/how-to/console.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError, InputError, PolicyError
from guard.operations.policy_history import PolicyHistory
from guard.policy import load_policies
from guard.replay.policy_tests import SUFFIX
from guard.replay.rehearsal import Job, read_draft
from guard.settings import BUILTIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.policy import Policy
    from guard.operations.people import Person

DRAFTS: Final = 50
_KEPT: Final = ("id", "by", "at", "texts", "base")
TEXT_BYTES: Final = 1 << 20
WAITING: Final = 4
"""Maximum number of rehearsals that wait for the running one."""
SECONDS: Final = 1800.0
"""Maximum duration of a rehearsal, in seconds."""
_LINE: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class Rehearsal:
    """Result of tests or a replay of a draft, as far as it is known."""

    what: str
    """``tests``, or the hours of recordings in words."""
    done: int = 0
    of: int = 0
    result: dict[str, Any] | None = None
    error: str = ""

    @property
    def runs(self) -> bool:
        """True until it has ended."""
        return self.result is None and not self.error


@dataclass(slots=True)
class Draft:
    """Changed texts of policy files, and of the tests beside them."""

    id: str
    by: str
    at: float
    texts: dict[str, str]
    """Texts by path; only those that differ from the file."""
    base: dict[str, str]
    """Digest of the original file, by path."""
    rehearsals: dict[str, Rehearsal] = field(default_factory=dict)
    """Rehearsals of the current texts: ``tests`` and ``travel``."""
    writers: set[tuple[str, str]] = field(default_factory=set)
    """Realm and subject of each author."""
    seconded: str = ""
    """Name of another person who agrees to the current texts."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of loading a draft."""

    policy: Policy | None
    problems: tuple[tuple[str, int, str], ...]
    """File, line and message; empty where the policy is valid."""
    warnings: tuple[tuple[str, int, str], ...] = ()


def _read(kept: Path | None) -> list[Draft]:
    """Return the drafts that this and other consoles have kept, the oldest first.

    An unreadable file is left out.
    """
    found: list[Draft] = []
    for path in kept.glob("*.json") if kept is not None else ():
        try:
            one = json.loads(path.read_text(encoding="utf-8"))
            if one["id"] != path.stem:
                raise ValueError(one["id"])
            writers = {(realm, subject) for realm, subject in one["writers"]}
            found.append(Draft(**{name: one[name] for name in _KEPT}, writers=writers))
        except (OSError, ValueError, TypeError, KeyError) as error:
            sys.stderr.write(f"guard console: no draft in `{path}`: {type(error).__name__}\n")
    return sorted(found, key=lambda draft: draft.at)


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
        """What can be edited: policy files, then the tests beside them."""
        self.history = PolicyHistory(self.files)
        self.commits = commits and self.history.kept
        self._kept = kept
        names = {str(path) for path in self.files}
        self._drafts: OrderedDict[str, Draft] = OrderedDict(
            (draft.id, draft) for draft in _read(kept) if draft.base.keys() <= names
        )
        self._turn = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()

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

    def begin(self, person: Person, at: float, texts: dict[str, str]) -> Draft:
        """Begin a draft with new texts by path."""
        draft = Draft(secrets.token_hex(8), person.name, at, {}, {})
        self._edit(draft, texts, person)
        self._drafts[draft.id] = draft
        while len(self._drafts) > DRAFTS:
            self.discard(next(iter(self._drafts.values())))
        self._keep(draft)
        return draft

    def edit(self, draft: Draft, texts: dict[str, str], person: Person) -> None:
        """Take other texts into a draft.

        What was rehearsed of the ones before is forgotten, and that somebody agreed to them.

        Raises:
            InputError: a text is too long, or of no file of the policy.
            GuardError: it is not kept beyond this process: the disk is full, for one.
        """
        self._edit(draft, texts, person)
        self._keep(draft)

    def _edit(self, draft: Draft, texts: dict[str, str], person: Person) -> None:
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
        draft.rehearsals.clear()
        draft.writers.add(person.key)
        draft.seconded = ""

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
            GuardError: its file cannot be taken away.
        """
        self._drafts.pop(draft.id, None)
        if self._kept is not None:
            try:
                self._file(self._kept, draft).unlink(missing_ok=True)
            except OSError as error:
                raise GuardError(f"the draft cannot be forgotten: {error.strerror}") from error

    def _keep(self, draft: Draft) -> None:
        """Write a draft down for a console that is started anew.

        What was rehearsed, and that somebody agreed, ends with the process that has seen it.
        """
        if self._kept is None:
            return
        document = {name: getattr(draft, name) for name in _KEPT}
        document["writers"] = sorted(draft.writers)
        path = self._file(self._kept, draft)
        fresh = path.with_suffix(".new")
        try:
            self._kept.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file)
            fresh.replace(path)
        except OSError as error:
            msg = f"the drafts cannot be kept in `{self._kept}`: {error.strerror}"
            raise GuardError(msg) from error

    @staticmethod
    def _file(kept: Path, draft: Draft) -> Path:
        return kept / f"{draft.id}.json"

    def check(self, texts: dict[str, str]) -> Checked:
        """Return what the loader says of new texts by path."""
        try:
            policy = read_draft(self.policy, texts)
        except PolicyError as error:
            found = [(Path(p.path).name, p.line, p.message) for p in error.problems]
            return Checked(None, tuple(found))
        except (GuardError, OSError, UnicodeError) as error:
            return Checked(None, (("", 0, str(error)),))
        warnings = [(Path(p.path).name, p.line, p.message) for p in policy.source.warnings]
        return Checked(policy, (), tuple(warnings))

    def in_force(self) -> Policy:
        """Return the policy that the files hold now.

        Raises:
            GuardError: they hold none.
        """
        return load_policies(self.policy)

    def patch(self, draft: Draft) -> str:
        """Return a draft as a patch."""
        return self.history.patch(draft.texts)

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
        checked = self.check(draft.texts)
        if checked.policy is None:
            raise InputError(f"the draft has a problem: {checked.problems[0][2]}")
        return self.history.commit(draft.texts, message, who)

    def stale(self, draft: Draft) -> bool:
        """Return whether a file is another than the one that the draft was made from."""
        return any(_digest(self.text(self.file(name))) != was for name, was in draft.base.items())

    # --- rehearsals ------------------------------------------------------------------------------

    def rehearse(self, draft: Draft, *, since: float | None = None, until: float = 0.0) -> None:
        """Begin the tests of a draft, or its replay over what was recorded since then.

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
        )
        name, what = "tests", "tests"
        if since is not None:
            job = job.model_copy(
                update={
                    "recordings": self.recordings,
                    "key": self._key,
                    "since": since,
                    "until": until,
                }
            )
            name, what = "travel", f"{(until - since) / 3600:g} hours"
        rehearsal = draft.rehearsals[name] = Rehearsal(what)
        task = asyncio.get_running_loop().create_task(self._rehearsed(job, rehearsal))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _rehearsed(self, job: Job, rehearsal: Rehearsal) -> None:
        try:
            async with self._turn, asyncio.timeout(SECONDS):
                await self._run(job, rehearsal)
        except TimeoutError:
            rehearsal.error = "it took too long; choose fewer hours"
        except (OSError, ValueError) as error:
            rehearsal.error = f"it could not be run: {type(error).__name__}"
        if rehearsal.runs:
            rehearsal.error = "its process ended without a result"

    @staticmethod
    async def _run(job: Job, rehearsal: Rehearsal) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "guard.replay.rehearsal",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE,
        )
        try:
            if process.stdin is not None:
                process.stdin.write(job.model_dump_json().encode() + b"\n")
                await process.stdin.drain()
                process.stdin.close()
            while process.stdout is not None and (line := await process.stdout.readline()):
                message = json.loads(line)
                rehearsal.done = message.get("done", rehearsal.done)
                rehearsal.of = message.get("of", rehearsal.of)
                rehearsal.result = message.get("result", rehearsal.result)
                rehearsal.error = message.get("error", rehearsal.error)
            await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    async def settled(self) -> None:
        """Wait until no rehearsal runs."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def aclose(self) -> None:
        """End what runs."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
