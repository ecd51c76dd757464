"""Directories that only their owner may enter."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE: Final = 0o700


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
