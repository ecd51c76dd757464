"""Note of a user's console: its address, and a secret for the user's commands.

One file for each running console, in a directory of the state directory that only its user can
enter: whoever reads it could read the label key as well.
"""

from __future__ import annotations

import ssl
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from guard.core.errors import InputError
from guard.processes.notes import leave_note, living_notes
from guard.processes.run_note import FOLDER as RUNNING
from guard.processes.run_note import RunNote

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "consoles"


@dataclass(frozen=True, slots=True)
class ConsoleNote:
    """Address and secret of one console."""

    pid: int
    url: str
    """Without a slash at its end."""
    secret: str
    """A bearer."""
    certificate: str = ""
    """PEM file of the console's certificate, where this note is of this machine's."""
    redis: str = ""
    """URL of its state."""

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


def find_console(url: str | None = None, redis: str | None = None) -> ConsoleNote | None:
    """Return the note of this user's running console, None where there is none.

    Args:
        url: which one; None: there is only one.
        redis: URL of its state; None: of any.

    Raises:
        InputError: there are several, or guards with a state that the console has not, and which
            is meant was not said.
    """
    notes = living_notes(FOLDER, ConsoleNote)
    if url is not None:
        return next((note for note in notes if note.url == url.rstrip("/")), None)
    if redis is not None:
        return next((note for note in notes if note.redis == redis), None)
    if not notes:
        return None
    states = {note.redis for note in notes}
    guards = [one for one in living_notes(RUNNING, RunNote) if one.redis not in states]
    if len(notes) + len(guards) > 1:
        found = [f"--console {note.url} (process {note.pid})" for note in notes]
        found += [f"--redis {one.redis} (process {one.pid})" for one in guards]
        raise InputError(f"several consoles and guards of this user run: {', '.join(found)}")
    return notes[0]
