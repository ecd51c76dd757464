"""The roads that the planted address can take to the send.  Pure: no I/O.

Apart from the scenario, so that the command line can name them without loading the MCP SDK.
"""

from __future__ import annotations

from enum import StrEnum


class Via(StrEnum):
    """The road the planted address takes to the send."""

    MEMORY = "memory"
    DOCUMENT = "document"
    SESSION_SPLIT = "session-split"
