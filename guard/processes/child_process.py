"""Child processes: they end with their parent, and a worker proves by a heartbeat that it runs.

CPU-bound Python cannot be timed out from inside.  So the worker's event loop beats into a shared
memory-mapped file, and writes down there which call it is judging.  The supervisor kills a worker
that stops beating, and writes the audit line of the call it was judging.

Directories that only their owner may enter.

Files that a worker leaves for its supervisor, beside its heartbeat file.

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
import stat
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.core.json_values import json_encoder
from guard.core.mappings import DetectionSettings
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


PRIVATE: Final = 0o700


def make_private(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for this user alone.

    ``mkdir(parents=True)`` gives its mode to the last one only, and others need the same state
    directory closed.

    Raises:
        OSError: it cannot be made.
    """
    for one in (*reversed(directory.parents), directory):
        if not one.is_dir():
            one.mkdir(mode=PRIVATE, exist_ok=True)


def check_private(directory: Path, allowed: int = PRIVATE) -> None:
    """Refuse a directory that anyone else could enter or swap.

    Args:
        directory: to look at.
        allowed: permission bits that it may have.

    Raises:
        GuardError: it is not a directory, is not ours, or has other bits.
    """
    status = directory.lstat()
    if (
        not stat.S_ISDIR(status.st_mode)
        or status.st_uid != os.geteuid()
        or stat.S_IMODE(status.st_mode) & ~allowed
    ):
        raise GuardError(
            f"`{directory}` is open to others; run chmod {allowed:o} on it, owned by this user"
        )


NEVER: Final = 0.0


def control_socket(pulse: Path) -> Path:
    """Return where the worker with a pulse file answers."""
    return pulse.with_name(f"{pulse.name}.control")


def control_sockets(pulse: Path) -> list[Path]:
    """Return the pulse files of the other workers of a run that answer, or did."""
    found = sorted(pulse.parent.glob("pulse-*.control"))
    return [one for path in found if (one := path.with_suffix("")) != pulse]


def ready_file(pulse: Path) -> Path:
    """Return the file that says what it listens on, and under which policy."""
    return pulse.with_name(f"{pulse.name}.ready")


def last_words(pulse: Path) -> Path:
    """Return where it leaves its metrics when it ends."""
    return pulse.with_name(f"{pulse.name}.last")


def ready_line(listening: str, admin: tuple[str, int], policy: str) -> str:
    """Return the line that operators and scripts wait for."""
    return f"guard ready on {listening} admin {admin[0]}:{admin[1]} policy {policy}"


class DetectionFiles:
    """Files by which workers and the detector of committed saves know of each other.

    Args:
        directory: of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._wanted = directory / "detection"
        self._judged = directory / "detection-judged"

    def ask_for(self, settings: DetectionSettings | None) -> None:
        """Say how committed saves are to be judged under the policy in force; None: not at all."""
        if settings is None:
            self._wanted.unlink(missing_ok=True)
            return
        fresh = self._wanted.with_name(f"{self._wanted.name}.{os.getpid()}")
        fresh.write_text(json.dumps(asdict(settings)), encoding="ascii")
        fresh.replace(self._wanted)

    def wanted(self) -> DetectionSettings | None:
        """Return how committed saves are to be judged."""
        with suppress(OSError, ValueError, TypeError):
            return DetectionSettings(**json.loads(self._wanted.read_text(encoding="ascii")))
        return None

    @property
    def is_wanted(self) -> bool:
        """Return whether the policy in force has committed saves judged."""
        return self._wanted.exists()

    def note_round(self) -> None:
        """Note that every committed save was judged just now."""
        self._judged.touch()

    def age(self, now: float) -> float:
        """Return the seconds since every committed save was judged; 0 where none has to be."""
        if not self.is_wanted:
            return NEVER
        times = []
        for path in (self._judged, self._wanted):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(0.0, now - times[0]) if times else NEVER


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
