"""Network and mount namespaces of this process and its children, to cut links and fill disks.

On Linux, as root.  In the network namespace, rules of routing make one address or port of loopback
unreachable from another.  The mount namespace has small file systems.  Elsewhere nothing of that is
available, and the faults that need it are left out.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NEWNS: Final = 0x00020000
_NEWNET: Final = 0x40000000
_FIRST_RULE: Final = 10
_LOCAL_RULE: Final = "1000"
_CLOCK: Final = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *shift;
__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("LAB_CLOCK_SHIFT");
  int file = path ? open(path, O_RDONLY) : -1;
  void *found = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
  if (found != MAP_FAILED) shift = found;
}
int clock_gettime(clockid_t id, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, id, at);
  if (!failed && id == CLOCK_REALTIME && shift) at->tv_sec += *shift;
  return failed;
}
"""
"""Shifts the time of day by the seconds in a file, and no other clock: libfaketime 0.9.10 makes
``clock_nanosleep`` fail, by which Python sleeps."""


class Clock:
    """The time of day of processes that are started with :attr:`environment`.

    Args:
        directory: for the library and the shift.
    """

    def __init__(self, directory: Path) -> None:
        self._shift = directory / "clock-shift"
        self.environment: dict[str, str] = {}
        self.set(0)
        compiler, source = shutil.which("cc"), directory / "clock.c"
        if compiler is None or not sys.platform.startswith("linux"):
            return
        source.write_text(_CLOCK, encoding="utf-8")
        library = source.with_suffix(".so")
        with suppress(subprocess.SubprocessError):
            _run(compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source))
            self.environment = {"LD_PRELOAD": str(library), "LAB_CLOCK_SHIFT": str(self._shift)}

    def set(self, seconds: int) -> None:
        """Shift it, against the machine's."""
        # In place: the file is mapped by whoever looks at it.
        with self._shift.open("r+b" if self._shift.exists() else "wb") as file:
            file.write(seconds.to_bytes(8, sys.byteorder, signed=True))


class Isolation:
    """Namespaces that the calling thread, and what it starts from now on, is in for good."""

    def __init__(self) -> None:
        self.has_network = False
        self.has_mounts = False
        if not sys.platform.startswith("linux") or os.geteuid() != 0:
            return
        if ctypes.CDLL(None, use_errno=True).unshare(_NEWNET | _NEWNS) != 0:
            return
        with suppress(OSError, subprocess.SubprocessError):
            _run("mount", "--make-rprivate", "/")
            self.has_mounts = True
        with suppress(OSError, subprocess.SubprocessError):
            _run("ip", "link", "set", "lo", "up")
            # Rules that cut must be asked before the table of what is local.
            _run("ip", "rule", "add", "pref", _LOCAL_RULE, "table", "local")
            _run("ip", "rule", "del", "pref", "0")
            self.has_network = True

    @contextmanager
    def cut(self, *links: tuple[str, int]) -> Iterator[None]:
        """Make ports of loopback unreachable from addresses, also for open connections."""
        with ExitStack() as rules:
            for number, (source, port) in enumerate(links, _FIRST_RULE):
                to = ("from", source, "ipproto", "tcp", "dport", str(port))
                _run("ip", "rule", "add", "pref", str(number), *to, "unreachable")
                rules.callback(_run, "ip", "rule", "del", "pref", str(number))
            yield

    @staticmethod
    def small_disk(directory: Path, megabytes: int) -> None:
        """Put a file system of a size in the place of a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(directory))

    @staticmethod
    def remove_disk(directory: Path) -> None:
        """Take it away again."""
        with suppress(OSError, subprocess.SubprocessError):
            _run("umount", "-l", str(directory))


def fill(directory: Path) -> Path:
    """Leave no byte free on the file system of a directory; return the file to remove."""
    path = directory / "filler"
    block = bytes(256 * 1024)
    with path.open("wb", buffering=0) as file:
        while block:
            try:
                if file.write(block) < len(block):
                    block = block[: len(block) // 2]
            except OSError:
                block = block[: len(block) // 2]
    return path


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603  (tools of the system)
