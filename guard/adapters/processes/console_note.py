"""Where a console of this user runs, and a secret for this user's commands.

One file for each running console, in a directory of the state directory that only its user can
enter: whoever reads it could read the label key as well.
"""

from __future__ import annotations

import ssl
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from guard.adapters.processes.notes import leave_note, living_notes
from guard.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "consoles"


@dataclass(frozen=True, slots=True)
class ConsoleNote:
    """What a command needs to know of one console."""

    pid: int
    url: str
    """Without a slash at its end."""
    secret: str
    """A bearer."""
    certificate: str = ""
    """PEM file of the console's certificate, where this note is of this machine's."""

    def trust(self) -> ssl.SSLContext:
        """Return whom a connection trusts: that certificate alone, else the public authorities."""
        if not self.certificate:
            return ssl.create_default_context()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # By whatever name it is reached here, it is this certificate.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(self.certificate)
        return context

    def write(self) -> Path | None:
        """Leave the note; return its file, None where it was not possible."""
        return leave_note(FOLDER, self.pid, asdict(self))


def find_console() -> ConsoleNote | None:
    """Return the note of this user's one running console, None where there is none.

    Raises:
        InputError: there are several, and which is meant was not said.
    """
    notes = living_notes(FOLDER, ConsoleNote)
    if len(notes) > 1:
        urls = ", ".join(f"`{note.url}` (process {note.pid})" for note in notes)
        raise InputError(f"several consoles of this user run: {urls}; choose --console or --redis")
    return notes[0] if notes else None
