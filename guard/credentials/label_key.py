"""The deployment's label key: a file that only its user can read, made on first use."""

from __future__ import annotations

import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from guard.core.errors import GuardError, InputError
from guard.processes.private_directories import make_private, write_private
from guard.settings import state_directory

NAME: Final = "label.key"
_EARLIER: Final = Path(".local", "state", "agent-egress-guard")
"""Below the home directory; where keys were made that no setting gave a place."""
_SHARED: Final = stat.S_IRWXG | stat.S_IRWXO


def default_path() -> Path:
    """Return where the key lies unless a setting says otherwise.

    A key that an earlier version made in its own directory stays there, and so do the notes beside
    it: another key would make every label of the deployment unreadable.
    """
    path = state_directory() / NAME
    # Without a home directory, or one that can be entered, there is no key of earlier versions.
    with suppress(RuntimeError, OSError):
        earlier = Path.home() / _EARLIER / NAME
        if earlier.exists() and not path.exists():
            return earlier
    return path


def label_key_path(path: Path | None = None, fallback: Path | None = None) -> Path:
    """Return the file of the key.

    Args:
        path: the file; left out, one in the user's state directory.
        fallback: the file to use where no path is given and there is no such directory; for
            labels that do not outlive the process either.
    """
    if path is None and fallback is not None and not _has_default():
        return fallback
    return path or default_path()


def audit_key_path() -> Path:
    """Return the key file that signs the audit log where no setting names one."""
    return state_directory() / "audit.key"


def recording_key_path() -> Path:
    """Return the key file of recordings where no setting names one."""
    return state_directory() / "recording.key"


def load_key(path: Path, what: str, *, make: bool = True) -> bytes:
    """Return the key in a file.

    Args:
        path: the file.
        what: what it is called in errors.
        make: whether to make it where there is none.

    Raises:
        GuardError: it cannot be read or made, is too short, or others can read it.
    """
    try:
        if make:
            _make(path)
        mode = path.stat().st_mode
        key = path.read_bytes()
    except OSError as error:
        raise GuardError(
            f"the {what} `{path}` cannot be used: {(error.strerror or 'error').lower()}"
        ) from error
    if mode & _SHARED:
        raise GuardError(f"the {what} `{path}` can be read by others; run chmod 600 on it")
    from guard.provenance.seal import KEY_BYTES

    if len(key) < KEY_BYTES:
        raise GuardError(
            f"the {what} `{path}` has less than {KEY_BYTES} bytes; remove it to make another"
        )
    return key


def fallback_key(directory: Path) -> Path | None:
    """Return the key file of a run that cannot use the user's state directory."""
    return None if _has_default() else directory / NAME


def _has_default() -> bool:
    """Return whether the user's state directory has, or now has, a key."""
    try:
        _make(default_path())
    except (InputError, OSError):
        return False
    return True


def _make(path: Path) -> None:
    """Make the key file if it is missing; of two processes that try, one wins and both read it."""
    from guard.provenance.seal import KEY_BYTES

    if path.exists():
        return
    make_private(path.parent)
    write_private(path, secrets.token_bytes(KEY_BYTES), is_new=True)
