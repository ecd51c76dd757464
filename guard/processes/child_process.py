"""Child processes: they end with their parent, and a worker proves by a heartbeat that it runs.

CPU-bound Python cannot be timed out from inside.  So the worker's event loop beats into a shared
memory-mapped file, and writes down there which call it is judging.  The supervisor kills a worker
that stops beating, and writes the audit line of the call it was judging.

Processes that work for a supervisor beside its workers: the console and the detector.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.core.json_values import json_encoder
from guard.environment import inherited
from guard.settings import EMBEDDED, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from guard.core.model import Json, ToolCall


SIZE: Final = 4096
_ENCODE: Final = json_encoder()
_BEAT: Final = struct.Struct("<d")
_LENGTH: Final = struct.Struct("<I")
_SLOT: Final = _BEAT.size + _LENGTH.size
_PR_SET_PDEATHSIG: Final = 1

_ENVIRONMENT: Final = {
    # glibc gives large blocks back when they are freed.  Left alone it raises this threshold with
    # the first one, a model's file, and keeps four megabytes of every worker in pieces of its heap.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    # Plugins of pydantic are looked for in every distribution that is installed, and are given all
    # that is validated.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}

# The request for that signal survives exec, so a shim asks for it and then becomes the program; a
# preexec_fn would run Python between fork and exec, which threads can deadlock.  The parent may
# have died before the request was made, hence the look at its id.
SHIM: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    if ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0) != 0:
        sys.exit("prctl failed")
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""``python -c SHIM PARENT PROGRAM ARGUMENTS…``: a program that the kernel ends with its parent."""


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent dies, however it dies (Linux).

    Args:
        parent: process id of the parent, as the parent knows it: it may have died before the
            request was made.

    Raises:
        GuardError: the request was refused, or the parent is gone already.
    """
    if sys.platform != "linux":
        return
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise GuardError("the kernel does not let this process die with its parent")
    if os.getppid() != parent:
        raise GuardError("the supervisor is gone")


def start_python(
    module: str,
    *arguments: str,
    passed: Sequence[int] = (),
    level: str = "-O",
) -> subprocess.Popen[bytes]:
    """Start one of our modules; it waits for the settings on its standard input."""
    # -O: mitmproxy type-checks every message under __debug__ (no check of ours is an assert).
    # -P: the directory that the guard is started in holds no module of ours.
    command = [sys.executable, level, "-P", "-m", module, *arguments]
    return subprocess.Popen(  # noqa: S603  (our own module)
        command,
        stdin=subprocess.PIPE,
        pass_fds=passed,
        # What it says is in the settings already, where the command line did not overrule it.
        env=inherited() | _ENVIRONMENT,
    )


class Heartbeat:
    """The heartbeat file, as the worker writes it and the supervisor reads it.

    Args:
        path: made by the supervisor with :meth:`create`, ``SIZE`` bytes.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    @classmethod
    def create(cls, path: Path) -> Heartbeat:
        """Make the file, and open it."""
        path.write_bytes(bytes(SIZE))
        return cls(path)

    def beat(self) -> None:
        """Note that the event loop is alive now."""
        self._map[: _BEAT.size] = _BEAT.pack(time.monotonic())

    def last_beat(self) -> float:
        """Return the time of the last beat on the monotonic clock, 0 before the first."""
        return float(_BEAT.unpack(self._map[: _BEAT.size])[0])

    def judging(self, call: ToolCall | None) -> None:
        """Write down the call whose judgement starts now, None when it is over."""
        if call is None:
            self._map[_BEAT.size : _SLOT] = _LENGTH.pack(0)
            return
        fields: dict[str, Json] = {
            "decision_id": call.id,
            "tool": call.tool[:200],
            "server": call.server,
        }
        note = "".join(_ENCODE(fields, 0)).encode()[: SIZE - _SLOT]
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


NICE: Final = 15


def serve_for_supervisor(
    name: str,
    serve: Callable[[Settings, str, Path | None, Path], Coroutine[Any, Any, None]],
) -> int:
    """Serve with the arguments and settings of a supervisor; return the exit code.

    Args:
        name: of the process, for errors.
        serve: takes the settings, the URL of Redis, the label key and the run's directory.
    """
    parent, redis, directory = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    settings = Settings.model_validate_json(sys.stdin.readline())
    key = settings.label_key
    if key is None and settings.redis == EMBEDDED and (directory / "label.key").exists():
        key = directory / "label.key"
    try:
        die_with_parent(parent)
        # Calls come first where processors are few.
        os.nice(NICE)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(settings, redis, key, directory))
    except (GuardError, OSError) as error:
        sys.stderr.write(f"guard {name}: {error}\n")
        return 1
    return 0
