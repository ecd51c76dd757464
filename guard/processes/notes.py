"""Notes that guards and consoles leave for commands of the same user: one file for each process.

They lie in a folder of the state directory that only its user can enter: whoever reads them could
read the label key as well.
"""

from __future__ import annotations

import json
import os
import ssl
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from guard.core.errors import GuardError, InputError
from guard.processes.private_directories import check_private, make_private, write_private
from guard.settings import state_directory

if TYPE_CHECKING:
    from pathlib import Path


FOLDER: Final = "run"
CONSOLES: Final = "consoles"


def note_path(folder: str, pid: int) -> Path:
    """Return the file of the note of a process."""
    return state_directory() / folder / f"{pid}.json"


@dataclass(frozen=True, slots=True)
class Note:
    """Note of one process."""

    folder: ClassVar[str]
    pid: int

    def write(self) -> bool:
        """Leave the note; return whether that was possible: a process serves without it too."""
        try:
            path = note_path(self.folder, self.pid)
            make_private(path.parent)
            check_private(path.parent)
            write_private(path, json.dumps(asdict(self)).encode())
        except (OSError, GuardError):
            return False
        return True

    def remove(self) -> None:
        """Take the note away."""
        with suppress(OSError, GuardError):
            note_path(self.folder, self.pid).unlink(missing_ok=True)


NoteT = TypeVar("NoteT", bound=Note)


def living_notes(made: type[NoteT]) -> list[NoteT]:
    """Return the notes of processes that are alive; that of one that was killed is taken away.

    Args:
        made: kind of notes; one whose fields do not fit is left out.
    """
    found: list[NoteT] = []
    try:
        paths = sorted((state_directory() / made.folder).glob("*.json"))
    except InputError:
        # Who has no state directory has left no notes.
        return found
    for path in paths:
        try:
            check_private(path.parent)
            fields = json.loads(path.read_text(encoding="utf-8"))
            note = made(**fields)
            os.kill(note.pid, 0)
        except ProcessLookupError:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError, GuardError):
            continue
        else:
            found.append(note)
    return found


@dataclass(frozen=True, slots=True)
class RunNote(Note):
    """Address of the store of one running guard."""

    folder = FOLDER
    redis: str
    """URL of its state."""
    label_key: str = ""
    """File of its label key, empty for the user's own."""
    durability: str = ""
    """Durability of its writes, and so of an operator's; empty for the default."""
    audit: str = ""
    """File of its audit log, where what operators do is recorded too; empty where it has none."""
    audit_key: str = ""
    """File of the key that signs it, empty for the user's own."""

    forward: str = ""
    """Address of its first forward listener, empty where it has none."""


def find_running() -> RunNote:
    """Return the note of this user's one running guard.

    Raises:
        InputError: there is none, or more than one, and which is meant was not said.
    """
    notes = living_notes(RunNote)
    if not notes:
        raise InputError(
            "no guard of this user runs with `--redis embedded`; name the state with --redis URL"
        )
    if len(notes) > 1:
        urls = ", ".join(f"`{note.redis}` (process {note.pid})" for note in notes)
        raise InputError(f"several guards of this user run; choose one with --redis: {urls}")
    return notes[0]


@dataclass(frozen=True, slots=True)
class ConsoleNote(Note):
    """Address and secret of one console."""

    folder = CONSOLES
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


def find_console(url: str | None = None, redis: str | None = None) -> ConsoleNote | None:
    """Return the note of this user's running console, None where there is none.

    Args:
        url: which one; None: there is only one.
        redis: URL of its state; None: of any.

    Raises:
        InputError: there are several, or guards with a state that the console has not, and which
            is meant was not said.
    """
    notes = living_notes(ConsoleNote)
    if url is not None:
        return next((note for note in notes if note.url == url.rstrip("/")), None)
    if redis is not None:
        return next((note for note in notes if note.redis == redis), None)
    if not notes:
        return None
    states = {note.redis for note in notes}
    guards = [one for one in living_notes(RunNote) if one.redis not in states]
    if len(notes) + len(guards) > 1:
        found = [f"--console {note.url} (process {note.pid})" for note in notes]
        found += [f"--redis {one.redis} (process {one.pid})" for one in guards]
        raise InputError(f"several consoles and guards of this user run: {', '.join(found)}")
    return notes[0]
