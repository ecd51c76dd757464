"""A child process that does not outlive its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

from guard.core.errors import GuardError

_PR_SET_PDEATHSIG: Final = 1

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
        msg = "the kernel does not let this process die with its parent"
        raise GuardError(msg)
    if os.getppid() != parent:
        msg = "the supervisor is gone"
        raise GuardError(msg)
