"""Processes of a running guard, for measurements and tests; Linux only."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.processes.loopback import free_port

if TYPE_CHECKING:
    from guard.processes.loopback import Child, Rig


def begin_guard(
    rig: Rig, policy: Path, upstream: int, *options: str, admin: int = 0
) -> tuple[int, Child]:
    """Start a guard in front of a port of loopback; return its own and its supervisor.

    Raises:
        GuardError: it did not start.
    """
    port = free_port()
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
    words = ("--policy", str(policy.resolve()), "--reverse", listener)
    child = rig.begin_guard(*words, *options, admin=admin)
    child.wait_ready()
    return port, child


WORKERS: Final = ("guard.runtime.worker", "guard.worker")
"""Modules that a worker runs, in this edition and in the second one, which it is compared with."""


def worker_of(supervisor: int) -> int:
    """Return the process id of a guard's worker.

    Raises:
        GuardError: the supervisor has no worker now.
    """
    for module in WORKERS:
        if (found := child_of(supervisor, module)) is not None:
            return found
    raise GuardError("the guard has no worker")


def child_of(supervisor: int, module: str) -> int | None:
    """Return the process of a module that a supervisor started; None where there is none now."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text("ascii")
    for child in children.split():
        with suppress(OSError):  # It has just ended.
            if module.encode() in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    return None


def processor_time(process: int) -> float:
    """Return the processor time of a process in seconds, to the nanosecond."""
    # As clock_getcpuclockid(3) makes the clock's id; /proc counts in hundredths.
    return time.clock_gettime(~process << 3 | 2)


def resident(process: int) -> int:
    """Return the bytes of memory that a process uses."""
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return int(status.partition("VmRSS:")[2].split(maxsplit=1)[0]) * 1024
