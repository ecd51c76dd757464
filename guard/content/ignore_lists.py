"""Files that say what a program leaves out.  Pure: no I/O.

They name secrets so that nobody takes them along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

from guard.core.argument_texts import FILE_PATHS, is_about_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json

_FILE: Final = re2.compile(
    r"(?:^|[/\\])\.(?:git|docker|npm|eslint|prettier|helm|gcloud|vercel|slug|cf|cursor|rg|stylelint)ignore$"
)
_LIST: Final = re2.compile(r"^(?:(?:[ \t]*#[^\n`$]*|!?[\w.*/?\[\]{}@~+-]*)[ \t\r]*(?:\n|$))*$")
"""Lines of one pattern each, and comments."""


def left_out(arguments: Mapping[str, Json]) -> frozenset[str]:
    """Return the names of the arguments that list what is left out, as the file is called for."""
    if not is_about_file(arguments, _FILE):
        return frozenset()
    return frozenset(
        name
        for name, value in arguments.items()
        if isinstance(value, str) and name not in FILE_PATHS and _LIST.search(value)
    )
