"""Which calls are memory writes, and what of them is remembered.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.memory import MemoryClass
from guard.core.memory_policy import WriteMapping
from guard.core.model import Role

if TYPE_CHECKING:
    from guard.core.memory_policy import MemoryPolicy
    from guard.core.model import ClassifiedCall

UNMAPPED: Final = WriteMapping("", lambda _: True, "default", MemoryClass.L1)
"""A save that no entry of ``memory.writes`` claims counts as a write of the highest class."""


def write_of(memory: MemoryPolicy | None, classified: ClassifiedCall) -> WriteMapping | None:
    """Return what the policy says of a call as a write; None where it is none."""
    if memory is None:
        return None
    call, method, path = classified.call, "", ""
    if call.protocol == "http":
        method = str(call.arguments.get("method", ""))
        path = urlsplit(str(call.arguments.get("url", ""))).path
    found = memory.write(call.tool, method, path)
    return found or (UNMAPPED if classified.role is Role.SAVE else None)
