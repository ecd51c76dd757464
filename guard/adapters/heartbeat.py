"""The heartbeat a worker gives and the supervisor reads, through one shared memory-mapped file.

CPU-bound Python cannot be timed out from inside.  So the event loop beats, and writes down which
call it is judging; a worker that stops beating is killed from outside, and the call it was
judging gets its audit line from the supervisor.
"""

from __future__ import annotations

import json
import mmap
import struct
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from guard.core.model import Json, ToolCall

SIZE: Final = 4096
_BEAT: Final = struct.Struct("<d")
_LENGTH: Final = struct.Struct("<I")
_SLOT: Final = _BEAT.size + _LENGTH.size


class Pulse:
    """One side of the shared file.

    Args:
        path: made by the supervisor with :meth:`create`, ``SIZE`` bytes.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    @classmethod
    def create(cls, path: Path) -> Pulse:
        """Make the file and return its first user."""
        path.write_bytes(bytes(SIZE))
        return cls(path)

    def beat(self) -> None:
        """Say that the event loop is alive."""
        self._map[: _BEAT.size] = _BEAT.pack(time.monotonic())

    def last_beat(self) -> float:
        """Return the time of the last beat on the monotonic clock, 0 before the first."""
        return float(_BEAT.unpack(self._map[: _BEAT.size])[0])

    def reset(self) -> None:
        """Forget the last worker."""
        self._map[:SIZE] = bytes(SIZE)

    def judging(self, call: ToolCall | None) -> None:
        """Write down the call whose judgement starts now, None when it is over."""
        if call is None:
            self._map[_BEAT.size : _SLOT] = _LENGTH.pack(0)
            return
        note = json.dumps(
            {"decision_id": call.id, "tool": call.tool[:200], "server": call.server}
        ).encode()[: SIZE - _SLOT]
        self._map[_SLOT : _SLOT + len(note)] = note
        self._map[_BEAT.size : _SLOT] = _LENGTH.pack(len(note))

    def current(self) -> dict[str, Json] | None:
        """Return the call that was being judged at the last beat, if any."""
        length = _LENGTH.unpack(self._map[_BEAT.size : _SLOT])[0]
        if not 0 < length <= SIZE - _SLOT:
            return None
        try:
            note = json.loads(self._map[_SLOT : _SLOT + length])
        except ValueError:
            return None
        return note if isinstance(note, dict) else None

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()
