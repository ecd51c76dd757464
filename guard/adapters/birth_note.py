"""Which label store a guard saw last, noted beside the deployment's label key.

A file that only its user can read.  It is replaced whole, so of several workers that write it one
wins and whoever reads it reads all of it.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.provenance.store_continuity import ID_BYTES, Remembered

if TYPE_CHECKING:
    from pathlib import Path

_PARTS: Final = 2
_UNREADABLE: Final = Remembered(b"", 0)


class BirthNote:
    """One file.

    Args:
        key: the label key's file; the note lies beside it.
        store: what kind of store it is about, ``redis`` or ``embedded``.
    """

    def __init__(self, key: Path, store: str) -> None:
        self._path = key.with_name(f"{key.name}.{store}-birth")

    def read(self) -> Remembered | None:
        """Return what was noted, None where nothing ever was.

        Raises:
            GuardError: there is a note that cannot be read.
        """
        try:
            words = self._path.read_text(encoding="ascii", errors="replace").split()
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = (error.strerror or "error").lower()
            msg = f"the note of the label store `{self._path}` cannot be read: {reason}"
            raise GuardError(msg) from error
        try:
            name, serial = bytes.fromhex(words[0]), int(words[1])
        except (ValueError, IndexError):
            return _UNREADABLE
        if len(words) != _PARTS or len(name) != ID_BYTES or serial < 0:
            return _UNREADABLE
        return Remembered(name, serial)

    def write(self, seen: Remembered) -> bool:
        """Note what was seen; return whether that was possible."""
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(handle, f"{seen.id.hex()} {seen.serial}\n".encode("ascii"))
            finally:
                os.close(handle)
            draft.replace(self._path)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            return False
        return True
