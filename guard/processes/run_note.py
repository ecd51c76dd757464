"""Note of a running guard: the address of its embedded Redis, for the user's commands.

One file for each running guard, in the state directory, which only its user can enter.  It names
a socket that only that user can open, so it gives nothing away.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from guard.core.errors import GuardError, InputError
from guard.processes.notes import leave_note, living_notes, note_path

FOLDER: Final = "run"


@dataclass(frozen=True, slots=True)
class RunNote:
    """Address of the store of one running guard."""

    pid: int
    redis: str
    """URL of its state."""
    label_key: str = ""
    """File of its label key, empty for the user's own."""
    durability: str = ""
    """Of its writes, and so of an operator's; empty for the default."""
    audit: str = ""
    """File of its audit log, where what operators do is recorded too; empty where it has none."""
    audit_key: str = ""
    """File of the key that signs it, empty for the user's own."""

    forward: str = ""
    """Address of its first forward listener, empty where it has none."""

    def write(self) -> bool:
        """Leave the note; return whether that was possible: a guard serves without it too."""
        return leave_note(FOLDER, self.pid, asdict(self)) is not None

    def remove(self) -> None:
        """Take the note away."""
        with suppress(OSError, GuardError):
            note_path(FOLDER, self.pid).unlink(missing_ok=True)


def find_running() -> RunNote:
    """Return the note of this user's one running guard.

    Raises:
        InputError: there is none, or more than one, and which is meant was not said.
    """
    notes = living_notes(FOLDER, RunNote)
    if not notes:
        raise InputError(
            "no guard of this user runs with `--redis embedded`; name the state with --redis URL"
        )
    if len(notes) > 1:
        urls = ", ".join(f"`{note.redis}` (process {note.pid})" for note in notes)
        raise InputError(f"several guards of this user run; choose one with --redis: {urls}")
    return notes[0]
