"""Messages named by a search text instead of an id, and links word for word.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.destinations.values import keys_of
from guard.provenance.prompt_text import names_given

if TYPE_CHECKING:
    from guard.core.model import Destination

TITLE_WORDS: Final = 16
"""Words of a search text that are looked at."""
TITLE: Final = "title:"
LINK: Final = "link:"


def title_value(name: str) -> str:
    """Return the value under which a message is found by one of its names."""
    return f"{TITLE}{name}"


def link_value(destination: Destination) -> str:
    """Return the value of one very link, whatever its scheme, path and query included."""
    return LINK + destination.canonical.partition("//")[2].rstrip("/")


def values_asked(destination: Destination) -> tuple[str, ...]:
    """Return the values that would attest a destination, those of a message's names included.

    A message that is answered may be named by its id, or by words that its subject or its sender's
    name consists of; one word is too little.
    """
    keys = keys_of(destination)
    if destination.kind == "url":
        return (*keys, link_value(destination))
    if destination.kind == "host":
        return (*keys, LINK + destination.canonical)
    if destination.kind != "reply":
        return keys
    words = " ".join(destination.canonical.split()[:TITLE_WORDS])
    return (*keys, *(title_value(name) for name in names_given(words) if " " in name))
