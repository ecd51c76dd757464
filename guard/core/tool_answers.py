"""Answers for unmapped tools as values: the outline of a call, and what a person said of it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from guard.core.frozen import frozen

if TYPE_CHECKING:
    from guard.core.model import Destination


class Cover(StrEnum):
    """Calls of a tool that one answer covers."""

    KINDS = "kinds"
    """Calls with the same arguments: the same switches, other texts."""
    READS = "reads"
    """Calls with the same arguments and any values: the tool only reads."""


@frozen
class ToolOutline:
    """Outline of the arguments of one call of an unmapped tool."""

    kinds: Destination
    reads: Destination
    values: tuple[Destination, ...]
    """Values that need an attestation of their own under ``kinds``."""
    named: tuple[str, ...] = ()
    """Likewise, the value under which a prompt of the session names each."""

    def recipient(self, cover: Cover) -> Destination:
        """Return the recipient under which an answer with a cover is on record."""
        return self.kinds if cover is Cover.KINDS else self.reads


@frozen
class ToolAnswer:
    """Outline of a call, and the answers of people for its tool."""

    outline: ToolOutline
    pin: str
    """Digest of the tool's pin as the store holds it; empty for a tool without one."""
    cover: Cover | None = None
    """Cover that a person has given with this very call."""
