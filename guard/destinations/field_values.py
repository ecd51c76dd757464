"""What a whole field of a result is: one value or prose, and whose name it bears.  Pure: no I/O."""

from __future__ import annotations

import re
from typing import Final

from guard.destinations.canonical import read_destinations
from guard.destinations.values import keys_of

WHOLE_LENGTH: Final = 320
"""Characters of the longest mailbox with its name."""
PART_LENGTH: Final = 4
ANYBODY: Final = frozenset(
    {"admin", "blog", "contact", "contacts", "docs", "help", "home", "hello", "info", "mail"}
    | {"news", "office", "page", "pages", "post", "sales", "service", "shop", "site", "support"}
    | {"team", "user", "users", "website", "webmaster"}
)
"""Parts of hosts and mailboxes that name nobody."""
_SEPARATORS: Final = re.compile(r"[\W_\d]+")


def whole_values(text: str) -> tuple[str, ...]:
    """Return the values that a whole field is, nothing where there is more in it than that."""
    if len(text) > WHOLE_LENGTH or "\n" in text.strip():
        return ()
    found = read_destinations(text)
    if len(found) > 1 and any(destination.kind != "mail" for destination in found):
        return ()
    return tuple(key for d in found if d.kind != "handle" for key in keys_of(d)[:1])


def name_parts(text: str) -> set[str]:
    """Return the words in a name that say whose it is."""
    return {part for part in _SEPARATORS.split(text) if len(part) >= PART_LENGTH} - ANYBODY
