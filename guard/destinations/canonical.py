"""Destinations of a call in canonical form, one reading or none.  Pure: no I/O.

Everything a policy compares is compared here in canonical form, and canonicalising a canonical
form gives itself.  A text that two programs may read in two ways is ``malformed``, which no
pattern matches.  Canonical forms are for identity: the call is sent on as the agent wrote it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guard.core.bounded_cache import bounded_cache
from guard.core.model import Destination
from guard.destinations.hosts import malformed
from guard.destinations.mailboxes import mail_scheme
from guard.destinations.patterns import DestinationPattern, PatternSet, parse_pattern
from guard.destinations.recipients import QUOTED, read_recipient
from guard.destinations.text_scan import find_destinations
from guard.destinations.urls import REFUSED_SCHEMES, URL_START, WEB_SCHEMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guard.core.model import Json

__all__ = [
    "MISSING",
    "READ_LIMIT",
    "TEXT_LIST_LIMIT",
    "DestinationPattern",
    "PatternSet",
    "find_destinations",
    "parse_pattern",
    "read_destinations",
]

MISSING: Final = Destination("missing", "", "")
"""What a send has that names no destination where the policy says destinations are."""

READ_LIMIT: Final = 1000
"""Destinations read from one argument; where there are more, the last one is malformed."""

TEXT_LIST_LIMIT: Final = 1 << 18
"""Characters of one declared string; a longer one is malformed."""

_CACHED_LENGTH: Final = 256
_CACHE_SIZE: Final = 4096
_INT_LIMIT: Final = 1 << 128
"""Integers from here on are malformed: no account number is as long, and printing them costs."""

_EMPTY: Final = re.compile(r"[ \t\r\n,;]*+")
_STOP: Final = re.compile(r'[",;\r\n]')
_GROUP: Final = re.compile(r"[\w .'-]{1,64}:(?!//)")
_ADDRESS_KINDS: Final = frozenset({"mail", "url", "host", "ip", "malformed"})


def read_destinations(value: Json) -> tuple[Destination, ...]:
    """Return every destination of a declared destination argument, without repetition.

    A string is one recipient or a list of them; a list is all of its items; of an object count
    the keys and values that look like addresses, and one that has none is malformed.  Null and
    the empty string are nothing, integers are handles, other scalars are malformed.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return _read_text(value)
    found: dict[Destination, None] = {}
    for destination in _read_json(value):
        found[destination] = None
        if len(found) > READ_LIMIT:
            return (*list(found)[:READ_LIMIT], malformed("more destinations than the limit"))
    return tuple(found)


def _read_json(value: Json) -> Iterator[Destination]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield from _read_text(item)
        elif isinstance(item, list | tuple):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            yield from _read_object(item)
        elif item is not None:
            number = isinstance(item, int) and not isinstance(item, bool)
            if number and abs(item) < _INT_LIMIT:
                yield from _read_text(str(item))
            else:
                yield malformed(f"a {type(item).__name__}")


def _read_object(value: Json) -> Iterator[Destination]:
    """Yield what looks like an address anywhere in an object, or one malformed destination."""
    any_address = False
    stack: list[Json] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(reversed(item.values()))
            texts = [key for key in item if isinstance(key, str) and ("@" in key or "://" in key)]
        elif isinstance(item, list | tuple):
            stack.extend(reversed(item))
            continue
        else:
            texts = [item] if isinstance(item, str) else []
        for text in texts:
            for destination in _read_text(text):
                if destination.kind in _ADDRESS_KINDS:
                    any_address = True
                    yield destination
    if not any_address:
        yield malformed("an object without an address")


@bounded_cache(_CACHE_SIZE, short=_CACHED_LENGTH)
def _read_text(text: str) -> tuple[Destination, ...]:
    """Return the destinations of a text with recipients between ``,`` ``;`` and line ends."""
    if len(text) > TEXT_LIST_LIMIT:
        return (malformed(text),)
    found: dict[Destination, None] = {}
    group = False
    for item, separator in _split(text):
        piece = item
        name = _GROUP.match(piece) if "@" in piece and not mail_scheme(piece) else None
        if name is not None and not group:
            group, piece = True, piece[name.end() :].strip(" \t")
        if group and (separator not in {",", ";"} or _is_scheme(name)):
            # An RFC 5322 group ends with a semicolon; without one this is a header line, as in
            # `a@example.com\nBcc: b@evil.example`.
            found[malformed(item)] = None
            group = False
        else:
            found.update(dict.fromkeys(read_recipient(piece)))
            group = group and separator != ";"
        if len(found) > READ_LIMIT:
            return (*list(found)[:READ_LIMIT], malformed("more destinations than the limit"))
    return tuple(found)


def _is_scheme(name: re.Match[str] | None) -> bool:
    return name is not None and name[0][:-1].lower() in REFUSED_SCHEMES | WEB_SCHEMES


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield the items of a list with the separator behind each, an open quote as it stands.

    Quotes protect separators, parentheses do not (an item with half a comment is malformed).  In
    a URL a ``,`` or ``;`` separates only before a space or the end.
    """
    length, position = len(text), 0
    while position < length:
        start = position = _EMPTY.match(text, position).end()  # type: ignore[union-attr]
        url = URL_START.match(text, start) is not None
        separator = ""
        while stop := _STOP.search(text, position):
            position = stop.end()
            if stop[0] == '"':
                quoted = QUOTED.match(text, stop.start())
                position = quoted.end() if quoted else length
            elif not (url and stop[0] in ",;" and text[position : position + 1].strip()):
                separator = stop[0]
                break
        else:
            position = length
        item = text[start : position - len(separator)].rstrip(" \t")
        if item:
            yield item, separator
