"""Directories above a path, as an answer for the files below one names them.  Pure: no I/O.

INVARIANT (one reading): only an absolute path that can be read in one way lies in a directory.
One with a step up, an empty part, an escape, a pattern or letters of other width lies in none.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from guard.core.model import Destination

KIND: Final = "directory"
"""Kind of the recipient under which an answer for a directory is on record."""
NAMES: Final = 3
"""Names of a directory at least: a home directory is never covered whole."""
DEPTH: Final = 16
"""Directories above a path that are looked up."""
LENGTH: Final = 120
"""Characters of a path at most: a person sees it whole."""
_PLAIN: Final = re.compile(r"(?:/(?![. ]+(?:/|\Z))[^/\\%*?\[\]{}$`“”]+)+")


@lru_cache(maxsize=256)
def above(path: str, kind: str = KIND) -> tuple[Destination, ...]:
    """Return the directories above a path that an answer can cover, the nearest first."""
    is_shown = len(path) <= LENGTH and path.isprintable() and "  " not in path
    if not is_shown or not _PLAIN.fullmatch(path) or unicodedata.normalize("NFKC", path) != path:
        return ()
    parts = path.split("/")
    ends = range(len(parts) - 1, max(NAMES, len(parts) - 1 - DEPTH), -1)
    return tuple(Destination(kind, "/".join(parts[:end])) for end in ends)


def of_action(action: str) -> str:
    """Return the kind of the directories in which an action may change files."""
    return f"{action} in {KIND}"
