"""Values that can be a destination, found anywhere in a text, in one comparable form.

Pure: no I/O.  A value is a short text ``kind:canonical``.  :func:`keys_of` gives the values under
which a destination is looked up, :func:`find_values` those that a text contains, and the two use
the canonical forms of :mod:`guard.destinations.canonical`, so a look-up can only miss what
was never written.  Work is linear in the text and bounded per text; what is beyond a bound is
*overflow*.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stdnum import iban

from guard.content.decoder import FILE_ENDINGS, Budget, destination_readings, words_with
from guard.content.letters import is_own_skeleton, skeleton
from guard.core.bounded_cache import bounded_cache
from guard.core.model import Destination
from guard.destinations.hosts import canonical_host, is_ip
from guard.destinations.text_scan import find_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUE_LIMIT: Final = 2000
"""Values taken from one text."""
TEXT_LIMIT: Final = 128 * 1024
"""Characters of one text that are looked through."""
PIECE: Final = 32 * 1024
OVERLAP: Final = 512
"""A text is looked through in pieces, which overlap so that no value is cut in two unseen."""
VIEWED_LIMIT: Final = 64 * 1024
"""Characters of other readings that are looked through per text."""
SAID: Final = "said:"
"""First part of the value that a sentence of a prompt is (see guard/provenance/saved_values.py)."""
LEAF_LIMIT: Final = 64
"""Characters of a whole string that counts as a handle (a name, a channel, an account)."""
URL_KEYS: Final = 8
"""Ancestor paths under which a URL is looked up."""

_HOST: Final = re.compile(
    r"(?:(?<![\w@./-])|(?<=[\s\"'(=]//))(?:[\w-]{1,63}\.){1,8}[^\W\d_][\w-]{1,62}(?![\w@])"
)
_NUMBER: Final = re.compile(
    r"[\d+](?<![\w.][\d+])"
    r"(?:(?<=\+)\d[\d ().\u2010\u2011/-]{6,30}|(?<=\d)[\d ()/-]{4,30})\d(?!\w)"
)
_ACCOUNT: Final = re.compile(
    r"(?<![^\W_])[A-Za-z]{2}\d{2}(?:[\s./|_-]?[A-Za-z0-9]{2,5}){2,9}(?![^\W_])"
)
_MAYBE_ACCOUNT: Final = re.compile(r"\d(?<=[A-Za-z]{2}\d)(?<![^\W_][A-Za-z]{2}\d)\d")
_SHORTEST_ACCOUNT: Final = 14
"""Letters and digits of the shortest account number that is written in groups (Norway has 15)."""
_ID: Final = re.compile(r"(?<![\w-])(?=[A-Za-z_-]{0,60}\d)[\w-]{6,128}(?![\w-])", re.ASCII)
_HANDLE: Final = re.compile(r"[#@](?<![\w&/#@.][#@])\w[\w.-]{0,62}\w")
_REPOSITORY: Final = re.compile(
    r"(?<![\w/.:-])[A-Za-z0-9][\w.-]{0,38}/[A-Za-z0-9][\w.-]{0,98}(?![\w/])"
)
_DIGIT: Final = re.compile(r"\d")
_SQUEEZED: Final = re.compile(r"[ ()/.\-]")
_BETWEEN: Final = re.compile(r"[\s./|_-]")
_NUMERIC: Final = re.compile(r"\+?[\d ()/.\-]{4,}")
_ACCOUNT_LIKE: Final = re.compile(r"[a-z]{2}\d{2}[a-z0-9 -]{6,48}")
_DEFAULT_DIGITS: Final = 6
_SHORTEST_ID: Final = 6
_SCHEME: Final = re.compile(r"^[a-z][a-z0-9+.-]*:")


_PHONE: Final = re.compile(r"00[1-9]\d{6,14}")


@dataclass(slots=True)
class Found:
    """The values of a text."""

    plain: dict[str, None] = field(default_factory=dict)
    """As they stand; in order of occurrence."""
    disguised: dict[str, None] = field(default_factory=dict)
    """Found only in another reading of the text: they can taint, never attest."""
    overflow: bool = False
    """Whether a bound cut something off."""


def handle_value(text: str) -> str:
    """Return the value of an opaque handle: folded, accounts and phone numbers without gaps."""
    folded = " ".join(text.lower().split()) if text.isascii() else " ".join(skeleton(text).split())
    if _NUMERIC.fullmatch(folded) or _ACCOUNT_LIKE.fullmatch(folded):
        folded = _SQUEEZED.sub("", folded)
        if folded[:1] == "+":
            # The two ways to write a number of another country.
            folded = f"00{folded[1:]}"
    return f"handle:{folded.lstrip('#@')}"


def message_value(identifier: str) -> str:
    """Return the value of a message's id."""
    return f"message:{' '.join(identifier.split())}"


def keys_of(destination: Destination) -> tuple[str, ...]:
    """Return the values that would attest a destination, the exact one first.

    A URL is also attested by a URL above it on the same host, or by the host; a mail address
    only by itself: the domain of a mail provider says nothing about a mailbox.
    """
    kind, canonical = destination.kind, destination.canonical
    if kind == "mail":
        return (f"mail:{canonical}",)
    if kind in {"host", "ip"}:
        return (f"host:{canonical}",)
    if kind == "url":
        return (*_url_keys(canonical), f"host:{destination.host}")
    if kind == "handle":
        return (handle_value(canonical),)
    if kind == "reply":
        return (message_value(canonical),)
    return (canonical,) if kind in {"text", "number"} else ()


def taints_of(destination: Destination) -> tuple[str, ...]:
    """Return further values that taint a destination: its host, and its look-alike in ASCII."""
    if destination.kind == "url":
        return (f"any:{destination.host}",)
    if destination.kind in {"host", "ip"}:
        return (f"any:{destination.canonical}",)
    if destination.kind != "mail":
        return ()
    if is_own_skeleton(destination.canonical) and "xn--" not in destination.host:
        return ()
    local = skeleton(destination.canonical.rpartition("@")[0])
    hosts = [destination.host]
    if "xn--" in destination.host:
        hosts.append(skeleton(_shown(destination.host)))
    exact = f"mail:{destination.canonical}"
    return tuple(v for v in (f"mail:{local}@{host}" for host in hosts) if v != exact)


def hints_of(destination: Destination) -> tuple[str, ...]:
    """Return values that make an unknown destination suspicious: the bare host of a mailbox."""
    return (f"any:{destination.host}",) if destination.kind == "mail" else ()


def _shown(host: str) -> str:
    try:
        return host.encode("ascii").decode("idna")
    except UnicodeError:
        return host


def _url_keys(canonical: str) -> tuple[str, ...]:
    bare = _SCHEME.sub("", canonical).partition("?")[0]
    host, _, path = bare.removeprefix("//").partition("/")
    parts = [part for part in path.split("/") if part]
    keys = [f"url://{host}/{'/'.join(parts[:depth])}" for depth in range(len(parts), 0, -1)]
    return tuple(keys[:URL_KEYS])


def values_of(destination: Destination) -> tuple[str, ...]:
    """Return the values that an occurrence of a destination in a text stands for."""
    if destination.kind != "url":
        return keys_of(destination)
    keys = _url_keys(destination.canonical)
    return keys[:1] or (f"host:{destination.host}",)


@bounded_cache(64)
def find_values(text: str, *, disguised: bool = True) -> Found:
    """Return the values in a text; whoever asks again is given the same object, not to be changed.

    Args:
        text: anything.
        disguised: whether other readings are looked through as well.
    """
    found = Found(overflow=len(text) > TEXT_LIMIT)
    budget = Budget(VIEWED_LIMIT)
    for start in range(0, min(len(text), TEXT_LIMIT), PIECE - OVERLAP):
        piece = text[start : start + PIECE]
        _scan(piece, found.plain, found)
        if disguised:
            for reading in destination_readings(piece, budget):
                _scan(reading, found.disguised, found)
        if len(found.plain) + len(found.disguised) > VALUE_LIMIT:
            found.overflow = True
            break
    for value in found.plain:
        found.disguised.pop(value, None)
    found.overflow = found.overflow or budget.exceeded
    _cut(found)
    return found


def _cut(found: Found) -> None:
    for values, room in ((found.plain, VALUE_LIMIT), (found.disguised, VALUE_LIMIT)):
        for value in list(values)[room:]:
            del values[value]


def suspected_destinations(found: Found) -> Iterator[Destination]:
    """Yield what in a text may be a destination although it does not stand there as one.

    Left out is what stands in clear text as a mail address or a URL: that is a destination.  Left
    out as well are names of files, which look like hosts, and identifiers, which every result has.
    """
    for value in (*found.plain, *found.disguised):
        kind, _, canonical = value.partition(":")
        if kind == "mail" and value in found.disguised:
            yield Destination("mail", canonical, canonical.rpartition("@")[2])
        elif kind == "url" and value in found.disguised:
            yield Destination("url", f"https:{canonical}", canonical.split("/")[2])
        elif kind == "host" and not canonical.endswith(FILE_ENDINGS):
            yield Destination("ip" if is_ip(canonical) else "host", canonical, canonical)
        elif kind == "handle" and _receives(canonical):
            yield Destination("handle", canonical)


def _receives(handle: str) -> bool:
    """Return whether a handle is a phone number with its country, or an account number."""
    return _PHONE.fullmatch(handle) is not None or iban.is_valid(handle)


def leaf_value(text: str) -> str | None:
    """Return the handle that a whole string of a structured result may be, or None."""
    stripped = text.strip()
    if not 0 < len(stripped) <= LEAF_LIMIT or "\n" in stripped:
        return None
    return handle_value(stripped)


def _scan(text: str, into: dict[str, None], found: Found) -> None:
    for destination in find_destinations(text):
        if destination.kind == "malformed":
            found.overflow = True
            continue
        into.update(dict.fromkeys(values_of(destination)))
        # Where anything below a host was named, the host itself is known from there.
        if destination.host and destination.kind != "mail":
            into[f"any:{destination.host}"] = None
    for value in _others(text):
        into[value] = None
        if len(into) > VALUE_LIMIT:
            found.overflow = True
            break


def _accounts(found: str) -> Iterator[str]:
    """Yield an account number in groups, and where it may end: words behind it look like groups."""
    groups = _BETWEEN.split(found)
    for count in range(1, len(groups) + 1):
        account = "".join(groups[:count])
        if count == len(groups) or len(account) >= _SHORTEST_ACCOUNT:
            yield handle_value(account)


def _others(text: str) -> Iterator[str]:
    words = text.split()
    if "." in text:
        # The start of a text is as good as a space for the host in `//host/path`.
        for match in _HOST.finditer(f" {words_with('.', words)}"):
            host = canonical_host(match[0])
            if host is not None:
                yield f"host:{host}"
                yield f"any:{host}"
    if _DIGIT.search(text) is not None:
        yield from _numbered(text, words)
    if "#" in text or "@" in text:
        yield from (handle_value(match[0]) for match in _HANDLE.finditer(text))
    if "/" in text:
        places = words_with("/", words)
        yield from (handle_value(match[0]) for match in _REPOSITORY.finditer(places))


def _numbered(text: str, words: list[str]) -> Iterator[str]:
    """Yield the values that have digits in them."""
    for match in _NUMBER.finditer(text):
        if sum(char.isdigit() for char in match[0]) >= _DEFAULT_DIGITS:
            yield handle_value(match[0])
    if _MAYBE_ACCOUNT.search(text) is not None:
        for match in _ACCOUNT.finditer(text):
            if sum(char.isdigit() for char in match[0]) >= _DEFAULT_DIGITS:
                yield from _accounts(match[0])
    long = [word for word in words if len(word) >= _SHORTEST_ID and not word.isalpha()]
    numbered = " ".join([word for word in long if _DIGIT.search(word) is not None])
    yield from (handle_value(match[0]) for match in _ID.finditer(numbered))
