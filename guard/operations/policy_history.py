"""Policy files in Git: history, differences, and the commit of a change.

``git`` runs without a shell, on the named files only.  The repository's hooks run as for any other
commit.
"""

from __future__ import annotations

import difflib
import io
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LISTED: Final = 50
SECONDS: Final = 20.0
_FORMAT: Final = "%H%x1f%an%x1f%at%x1f%s"
_FIELDS: Final = 4
_HEX: Final = frozenset("0123456789abcdef")
_MESSAGE: Final = 2000
_NO_END: Final = "\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class Change:
    """One commit that touched a policy file."""

    commit: str
    author: str
    at: float
    subject: str


class PolicyHistory:
    """Repository of policy files.

    Args:
        files: of the policy, and their tests; those outside of the first one's repository have no
            history here.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._top: Path | None = None
        self.files: list[Path] = []
        """Files in the repository."""
        if not files:
            return
        try:
            found = self._git(files[0].resolve().parent, "rev-parse", "--show-toplevel")
        except GuardError:
            return
        top = Path(found.strip())
        self._top = top
        self.files = [one for one in files if one.resolve().is_relative_to(top)]

    @property
    def kept(self) -> bool:
        """True if there is a repository."""
        return self._top is not None

    def changes(self) -> list[Change]:
        """Return the commits that touched the files, the newest first."""
        if self._top is None:
            return []
        names = [self._name(one) for one in self.files]
        try:
            text = self._git(self._top, "log", f"-{LISTED}", f"--format={_FORMAT}", "--", *names)
        except GuardError:
            return []  # Nothing was committed yet.
        rows = (line.split("\x1f") for line in text.splitlines())
        return [Change(r[0], r[1], float(r[2]), r[3]) for r in rows if len(r) == _FIELDS]

    def difference(self, commit: str) -> str:
        """Return what a commit changed in the files, as a patch.

        Raises:
            GuardError: there is no such commit.
        """
        top, commit = self._known(commit)
        names = [self._name(one) for one in self.files]
        return self._git(top, "show", "--format=%an, %aI%n%n%B", "--patch", commit, "--", *names)

    def before(self, commit: str) -> dict[str, str]:
        """Return the text of each file as it was before a commit, of those that it changed.

        Raises:
            GuardError: there is no such commit, or a file was not there before it.
        """
        top, commit = self._known(commit)
        names = {self._name(one): one for one in self.files}
        # A merge is compared with its first parent, as its diff is shown.
        changed = self._git(
            top, "diff", "--name-only", f"{commit}^1", commit, "--", *names
        ).splitlines()
        return {str(names[one]): self._git(top, "show", f"{commit}^1:{one}") for one in changed}

    def patch(self, texts: Mapping[str, str]) -> str:
        """Return new texts as a patch for ``git apply`` at the top of the repository."""
        parts: list[str] = []
        for path, text in texts.items():
            name = self._name(Path(path)) if self._top is not None else Path(path).name
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
        if top is None or any(path not in self.files for path in paths):
            raise InputError("the files are in no Git repository; take the patch")
        names = [self._name(path) for path in paths]
        if self._git(top, "status", "--porcelain", "--", *names).strip():
            raise InputError(
                "somebody has changed the files and not committed that; take the patch"
            )
        before = {path: path.read_bytes() for path in paths}
        name = "".join(c for c in who if c.isprintable() and c not in "<>") or "console"
        person = ("-c", f"user.name={name}", "-c", "user.email=console@guard.invalid")
        try:
            for path in paths:
                _replace(path, texts[str(path)].encode())
            self._git(
                top, *person, "commit", "-q", "-m", message[:_MESSAGE], "--only", "--", *names
            )
        except (OSError, GuardError) as error:
            for path, data in before.items():
                _replace(path, data)
            raise GuardError(f"nothing was changed: {error}") from error
        return self._git(top, "rev-parse", "HEAD").strip()

    def _known(self, commit: str) -> tuple[Path, str]:
        if self._top is None or not commit or not _HEX.issuperset(commit):
            raise InputError("there is no such commit")
        return self._top, commit

    def _name(self, path: Path) -> str:
        return path.resolve().relative_to(self._top or "/").as_posix()

    @classmethod
    def _git(cls, where: Path, *arguments: str) -> str:
        ended = cls._run(where, *arguments)
        if ended.returncode:
            raise GuardError(f"git: {ended.stderr.strip()[:300]}")
        return ended.stdout

    @staticmethod
    def _run(where: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        # What stands in the repository is read as text, and no pager or editor is started.
        command = ["git", "--no-pager", "-c", "core.quotePath=false", *map(str, arguments)]
        try:
            return subprocess.run(  # noqa: S603  (no shell; the arguments are names of our own)
                command,
                cwd=where,
                capture_output=True,
                check=False,
                timeout=SECONDS,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GuardError(f"git cannot be run: {type(error).__name__}") from error


def _replace(path: Path, data: bytes) -> None:
    """Put a file in the place of another whole, with its mode."""
    mode = path.stat().st_mode & 0o777
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        fresh = Path(name)
        fresh.chmod(mode)
        fresh.replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
