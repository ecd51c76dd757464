"""Free ports of loopback, for processes that must be told a port before they listen on it.

A port that the kernel gave out a moment ago it may give to the next connection of anybody.  So
these come from below the range that it gives out of, where nobody listens unasked.
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Final

from guard.core.errors import GuardError

LOWEST: Final = 10_000
TRIES: Final = 1000
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL: Final = 32_768
"""Where the kernel's range begins on Linux unless somebody changed it; elsewhere it is higher."""
_given: Final[set[int]] = set()
"""Given out by this process; whoever asked may not listen on it yet."""


def free_port() -> int:
    """Return a port that nobody listens on and no connection is given, a different one each time.

    Raises:
        GuardError: there is none.
    """
    end = _kernel_starts()
    for _ in range(TRIES):
        port = LOWEST + secrets.randbelow(end - LOWEST)
        if port in _given:
            continue
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        _given.add(port)
        return port
    msg = f"no port of loopback from {LOWEST} to {end} is free"
    raise GuardError(msg)


def _kernel_starts() -> int:
    """Return the first port that connections are given."""
    try:
        first = int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        first = _USUAL
    # Where they are given nearly all ports there is nothing below to choose from.
    return first if first > LOWEST + TRIES else _USUAL
