"""A worker process that begins before anybody knows what to tell it.

Most of a start are the imports of a worker.  They go on beside those of the supervisor, which
reads its settings and opens its sockets meanwhile.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from guard.environment import inherited

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_ENVIRONMENT: Final = {
    # glibc gives large blocks back when they are freed.  Left alone it raises this threshold with
    # the first one, a model's file, and keeps four megabytes of every worker in pieces of its heap.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    # Plugins of pydantic are looked for in every distribution that is installed, and are given all
    # that is validated.
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
}
_DESCRIPTOR: Final = b"+"
_NO_MORE: Final = b"."


def start_python(
    module: str,
    *arguments: str,
    stdin: int = subprocess.PIPE,
    passed: Sequence[int] = (),
    level: str = "-O",
) -> subprocess.Popen[bytes]:
    """Start one of our modules; it waits for the settings on its standard input."""
    # -O: mitmproxy type-checks every message under __debug__ (no check of ours is an assert).
    # -P: the directory that the guard is started in holds no module of ours.
    command = [sys.executable, level, "-P", "-m", module, *arguments]
    return subprocess.Popen(  # noqa: S603  (our own module)
        command,
        stdin=stdin,
        pass_fds=passed,
        # What it says is in the settings already, where the command line did not overrule it.
        env=inherited() | _ENVIRONMENT,
    )


def start_worker(
    *arguments: str,
    stdin: int = subprocess.PIPE,
    passed: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a worker."""
    # Docstrings are four megabytes of a worker; the console shows those of its routes.
    return start_python("guard.runtime.worker", *arguments, stdin=stdin, passed=passed, level="-OO")


class EarlyWorker:
    """One such process; it ends with this one, whatever it has been told.

    Args:
        place: its directory, in that of the run; the supervisor makes it.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = start_worker(str(os.getpid()), str(place), stdin=theirs.fileno())
        self._is_told = False

    def tell(self, url: str, sockets: Iterable[socket.socket]) -> subprocess.Popen[bytes]:
        """Return the process, told all but its settings, for which it waits as any worker does.

        Args:
            url: of its Redis.
            sockets: on which it listens, in the order of its settings.
        """
        # One that has died needs none; whoever looks after it sees that.
        with suppress(BrokenPipeError, ConnectionResetError):
            for one in sockets:
                socket.send_fds(self._channel, [_DESCRIPTOR], [one.fileno()])
            self._channel.sendall(_NO_MORE + url.encode() + b"\n")
        self._process.stdin = self._channel.makefile("wb")
        self._channel.close()
        self._is_told = True
        return self._process

    def end(self) -> None:
        """End the process, unless it has been told."""
        if not self._is_told:
            self._channel.close()
            self._process.kill()
            self._process.wait()


def heard_sockets() -> list[int]:
    """Return the sockets of a worker that began early, out of its standard input, as descriptors.

    The URL of its Redis is the next line there.

    Raises:
        EOFError: nobody will tell it anything.
    """
    found: list[int] = []
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as channel:
        while True:
            said, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
            if not said:
                raise EOFError
            if said == _NO_MORE:
                return found
            found += descriptors
