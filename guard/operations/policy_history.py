"""Git repository of policy files: patches, and the commit of a change.

``git`` runs without a shell, on the named files only.  The repository's hooks run as for any other
commit.
"""

from __future__ import annotations

import difflib
import io
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SECONDS: Final = 20.0
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
                timeout=SECONDS,
                encoding="utf-8",
                errors="replace",
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise GuardError(f"git cannot be run: {type(error).__name__}") from error
        if ended.returncode:
            raise GuardError(f"git: {ended.stderr.strip()[:300]}")
        return ended.stdout


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file whole, with its mode; a new one is its owner's alone."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(data)
    if path.exists():
        fresh.chmod(path.stat().st_mode & 0o777)
    fresh.replace(path)
