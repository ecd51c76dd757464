"""Notes that a running process leaves for commands of the same user: one file for each process.

They lie in a folder of the state directory that only its user can enter.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from guard.core.errors import GuardError, InputError
from guard.processes.private_directories import check_private
from guard.settings import state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from guard.core.model import Json

Note = TypeVar("Note")


def leave_note(folder: str, pid: int, fields: Mapping[str, Json]) -> Path | None:
    """Write the note of a process; return its file, None where it was not possible."""
    try:
        path = note_path(folder, pid)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(path.parent)
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123  (a descriptor)
            json.dump(fields, file)
    except (OSError, GuardError):
        return None
    return path


def note_path(folder: str, pid: int) -> Path:
    """Return the file of the note of a process."""
    return state_directory() / folder / f"{pid}.json"


def living_notes(folder: str, made: Callable[..., Note]) -> list[Note]:
    """Return the notes of processes that are alive; that of one that was killed is taken away.

    Args:
        folder: of the state directory.
        made: makes a note of its fields; one that they do not fit is left out.
    """
    found: list[Note] = []
    try:
        paths = sorted((state_directory() / folder).glob("*.json"))
    except InputError:
        # Who has no state directory has left no notes.
        return found
    for path in paths:
        try:
            check_private(path.parent)
            fields = json.loads(path.read_text(encoding="utf-8"))
            note = made(**fields)
            os.kill(fields["pid"], 0)
        except ProcessLookupError:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError, GuardError):
            continue
        else:
            found.append(note)
    return found
