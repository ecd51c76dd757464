"""Directories that only their owner may enter, and files that only he may read."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE: Final = 0o700
PRIVATE_FILE: Final = 0o600


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user alone.

    ``mkdir(parents=True)`` gives its mode to the last one only, and others need the same state
    directory closed.

    Raises:
        OSError: it cannot be made.
    """
    for one in (*reversed(directory.parents), directory):
        if not one.is_dir():
            one.mkdir(mode=PRIVATE, exist_ok=True)


def check_private(directory: Path, allowed: int = PRIVATE) -> None:
    """Refuse a directory that anyone else could enter or swap.

    Args:
        directory: to look at.
        allowed: permission bits that it may have.

    Raises:
        GuardError: it is not a directory, is not ours, or has other bits.
    """
    status = directory.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.geteuid()
        or stat.S_IMODE(status.st_mode) & ~allowed
    ):
        raise GuardError(
            f"`{directory}` is open to others; run chmod {allowed:o} on it, owned by this user"
        )


def write_private(
    path: Path, data: bytes, *, is_new: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write a file that only this user may read; whoever finds it finds all of it, on the disk.

    Args:
        path: of the file; one that is there is replaced.
        data: its content.
        is_new: whether one that is there is left as it is instead.
        mode: permissions of the whole file, where others may read it as well.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123  (a descriptor)
            file.write(data)
            file.flush()
            os.fsync(handle)
            os.fchmod(handle, mode)
        if not is_new:
            draft.replace(path)
            return
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file whole, with its mode; a new one is its owner's alone."""
    mode = path.stat().st_mode & 0o777 if path.exists() else PRIVATE_FILE
    write_private(path, data, mode=mode)
