"""Declarations of servers: definitions of tools, and texts for models.  Pure: no I/O.

A model acts on a tool's description as it acts on any text, and the server can change it after
everybody has looked.  So a definition has a digest that can be pinned.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json

CHANGED: Final = "tool_definition_changed"
"""A tool is not what it was when it was first seen, or last approved."""
NEW: Final = "tool_definition_new"
"""A server that was known has a tool it did not have."""
ALTERED: Final = "tool_definition_altered"
"""The record of a definition does not bear the guard's seal."""
UNPINNED: Final = "tool_definition_unpinned"
"""One listing has more tools than are pinned."""
CODES: Final = (CHANGED, NEW, ALTERED, UNPINNED)
_META: Final = "_meta"
"""Member that no model is shown; servers put values that vary there."""
_SHOWN_META: Final = ("ui",)
"""Its members that a client shows a person: the page that a tool opens."""


@dataclass(frozen=True)
class ToolDefinition:
    """One tool as its server describes it."""

    name: str
    document: Mapping[str, Json]

    @cached_property
    def text(self) -> str:
        """Canonical JSON of everything a client may show to a model or a person."""
        shown = {key: value for key, value in self.document.items() if key != _META}
        meta = self.document.get(_META)
        if isinstance(meta, dict):
            kept = {k: v for k, v in meta.items() if k.partition("/")[0] in _SHOWN_META}
            shown |= {_META: kept} if kept else {}
        return json.dumps(shown, sort_keys=True, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """Hex digest of ``text``."""
        data = self.text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declarations in one answer or event, apart from results of calls."""

    source: str
    """The method it belongs to, such as ``tools/list``."""
    content: Json
    definitions: tuple[ToolDefinition, ...] = ()
    is_listing: bool = False
    """True for a listing or instructions: withheld entries are left out, one by one.  Anything else
    is withheld whole."""
