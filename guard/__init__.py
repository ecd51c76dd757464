"""An inline egress guard for LLM agents.

The guard stands between an agent and its tools.  What comes in through tool results is labelled,
what leaves through tool calls is judged on those labels, on the session's trajectory and on the
operator's policy, before a byte is forwarded.  See ``docs/explanation/architecture.md``.

The names below are the public in-process API (``docs/how-to/in-process.md``); everything else in
this package is internal and changes without notice.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from guard.core import VERSION

if TYPE_CHECKING:
    from guard.in_process import (
        Guard,
        Refused,
        Released,
        Session,
        SyncGuard,
        SyncSession,
        Verdict,
    )

__all__ = [
    "Guard",
    "Refused",
    "Released",
    "Session",
    "SyncGuard",
    "SyncSession",
    "Verdict",
    "__version__",
]

# ONNX Runtime sends telemetry, lately from Linux and macOS as well: when it is imported it writes a
# device id and a queue of events to disk and starts an uploader.  A guard against data leaving must
# not send any itself.  The runtime reads the switch once, at its import, which no module of ours
# can do before this has run.  The second name is that of the versions before it was renamed.
os.environ["ORT_DISABLE_TELEMETRY"] = os.environ["ORT_TELEMETRY_DISABLED"] = "1"

__version__ = VERSION

# Not at import time: the command line and the wheels of other people import this package as well.
_PUBLIC = {"Guard", "Refused", "Released", "Session", "SyncGuard", "SyncSession", "Verdict"}


def __getattr__(name: str) -> object:
    """Load the in-process API when it is asked for."""
    if name in _PUBLIC:
        return getattr(import_module("guard.in_process"), name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
