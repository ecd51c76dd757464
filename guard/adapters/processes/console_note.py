"""Where a console of this user runs, and a secret for this user's commands.

One file for each running console, in a directory of the state directory that only its user can
enter: whoever reads it could read the label key as well.
"""

from __future__ import annotations

import json
import os
import ssl
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from guard.adapters.redis.embedded import check_private
from guard.core.errors import GuardError, InputError
from guard.settings import state_directory

if TYPE_CHECKING:
    from pathlib import Path


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
            return None
        return path


def find_console() -> ConsoleNote | None:
    """Return the note of this user's one running console, None where there is none.

    Raises:
        InputError: there are several, and which is meant was not said.
    """
    notes = [note for path in sorted(_directory().glob("*.json")) if (note := _read(path))]
    if len(notes) > 1:
        urls = ", ".join(f"`{note.url}` (process {note.pid})" for note in notes)
        raise InputError(f"several consoles of this user run: {urls}; choose --console or --redis")
    return notes[0] if notes else None


def _directory() -> Path:
    return state_directory() / "consoles"


def _read(path: Path) -> ConsoleNote | None:
    """Return a note whose console is alive; the note of one that was killed is taken away."""
    try:
        check_private(path.parent)
        note = ConsoleNote(**json.loads(path.read_text(encoding="utf-8")))
        os.kill(note.pid, 0)
    except ProcessLookupError:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return None
    except (OSError, ValueError, TypeError, GuardError):
        return None
    return note
