"""The worker process, as the supervisor starts it.

``python -OO -m guard.runtime.worker PARENT DIRECTORY REDIS_URL``.  Settings arrive as one JSON line
on standard input.  The module imports no more than serving needs, and that in :func:`main`: the
process that reads large results imports this module too.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EXIT_FAILED = 1
EXIT_INVALID = 3
FAULT_ARGUMENT = 4
SWITCH_SECONDS = 0.0005
"""Time for which a thread that parses a large message keeps the interpreter while the event loop
waits for it.  The loop waits once per system call, so a call waits several times as long."""


def main() -> int:
    """Serve until told to stop; return the exit code."""
    # What is imported stays: there is no garbage to look for until the worker serves.
    gc.disable()
    sys.setswitchinterval(SWITCH_SECONDS)
    from guard.core.errors import GuardError, PolicyError
    from guard.processes.child_process import die_with_parent

    parent, directory, redis_url = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    try:
        die_with_parent(parent)
        from guard.processes.event_loop import new_loop
        from guard.processes.listening_ports import connections_allowed
        from guard.runtime.serving import serve
        from guard.settings import Settings

        settings = Settings.model_validate_json(sys.stdin.readline())
        connections = settings.connections or connections_allowed()
        settings = settings.model_copy(update={"connections": connections})
        polling = settings.busy_poll / 1e6
        with asyncio.Runner(loop_factory=lambda: new_loop(polling, settings.workers)) as runner:
            runner.run(serve(settings, redis_url, directory, _fault_point()))
    except PolicyError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INVALID
    except (GuardError, OSError) as error:
        sys.stderr.write(f"guard run: {error}\n")
        return EXIT_FAILED
    return 0


def _fault_point() -> Callable[[str], None]:
    """Return what is told of each step of a memory write.

    Tests name a step as a fourth argument, and the process dies there as if by kill -9.  The
    supervisor runs workers with ``-OO``, where this is not compiled in.
    """
    if __debug__ and len(sys.argv) > FAULT_ARGUMENT:
        point = sys.argv[FAULT_ARGUMENT]
        return lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == point else None
    return lambda _: None


if __name__ == "__main__":
    sys.exit(main())
