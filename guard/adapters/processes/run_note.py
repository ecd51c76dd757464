"""Where the embedded Redis of a running guard is, noted for commands of the same user.

One file for each running guard, in the state directory, which only its user can enter.  It names
a socket that only that user can open, so it gives nothing away.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from guard.adapters.redis.embedded import check_private
from guard.core.errors import GuardError, InputError
from guard.settings import state_directory

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunNote:
    """What a command needs to know of one running guard."""

    pid: int
    redis: str
    """URL of its state."""
    label_key: str = ""
    """File of its label key, empty for the user's own."""

    def write(self) -> bool:
        """Leave the note; return whether that was possible: a guard serves without it too."""
        try:
            directory = _directory()
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_private(directory)
            path = directory / f"{self.pid}.json"
            path.unlink(missing_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123  (a descriptor)
                json.dump(asdict(self), file)
        except (OSError, GuardError):
            return False
        return True

    def remove(self) -> None:
        """Take the note away."""
        with suppress(OSError):
            (_directory() / f"{self.pid}.json").unlink(missing_ok=True)


def find_running() -> RunNote:
    """Return the note of this user's one running guard.

    Raises:
        InputError: there is none, or more than one, and which is meant was not said.
    """
    notes = [note for path in sorted(_directory().glob("*.json")) if (note := _read(path))]
    if not notes:
        msg = "no guard of this user runs with `--redis embedded`; name the state with --redis URL"
        raise InputError(msg)
    if len(notes) > 1:
        urls = ", ".join(f"`{note.redis}` (process {note.pid})" for note in notes)
        msg = f"several guards of this user run; choose one with --redis: {urls}"
        raise InputError(msg)
    return notes[0]


def _directory() -> Path:
    return state_directory() / "run"


def _read(path: Path) -> RunNote | None:
    """Return a note whose guard is alive; the note of one that was killed is taken away."""
    try:
        check_private(path.parent)
        note = RunNote(**json.loads(path.read_text(encoding="utf-8")))
        os.kill(note.pid, 0)
    except ProcessLookupError:
        path.unlink(missing_ok=True)
        return None
    except (OSError, ValueError, TypeError, GuardError):
        return None
    return note
