"""Mail addresses, URLs and IP addresses anywhere in a text, in bounded time.  Pure: no I/O.

For arguments the policy does not declare.  Every expression is anchored on a literal or guarded
by a look-behind and has bounded or possessive repetition, so the work is linear in the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guard.core.model import Destination
from guard.destinations.hosts import canonical_ip, malformed
from guard.destinations.mailboxes import read_mailbox
from guard.destinations.urls import URL_LIMIT, read_url

if TYPE_CHECKING:
    from collections.abc import Iterator

FIND_LIMIT: Final = 1000
"""Destinations found in one text; where there are more, the last one is malformed."""

CANDIDATE_LIMIT: Final = 5000
"""Places looked at in one text; a text with more of them gets a malformed destination."""

URL_ROOM: Final = 64 * URL_LIMIT
"""Characters of URLs read in one text, of each what follows its scheme: they may lie inside each
other, and reading every one to its end would be quadratic."""

_DROPPED: Final = dict.fromkeys(
    [
        *(0x00AD, 0x061C, 0x180E, 0xFEFF),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFE00, 0xFE10),
    ]
)
_STRUCTURE: Final = str.maketrans("＠﹫．。｡﹒：﹕／％", "@@....::/%")  # noqa: RUF001 - look-alikes
_FOLDED: Final = _DROPPED | _STRUCTURE | {0xFF10 + digit: str(digit) for digit in range(10)}
"""Zero-width characters dropped, look-alikes of structure and digits replaced.  Full NFKC would
be quadratic in runs of combining marks; letters are mapped when a host is canonicalised."""
_CHANGED: Final = frozenset(map(chr, _FOLDED))

_AT: Final = re.compile(r"@(?=\[|[\w-]{1,63}\.[\w-])")
_LOCAL: Final = re.compile(r"[\w.+-]*+")
_DOMAIN: Final = re.compile(r"\[[0-9A-Za-z:.]{2,64}\]|[\w-]{1,63}(?:\.[\w-]{1,63}){1,126}+")
_LOCAL_LIMIT: Final = 64
_SCHEME_END: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}\Z")
_URL_REST: Final = re.compile(rf"[^\s\x00-\x1f\x7f<>\"`]{{1,{URL_LIMIT + 1}}}+")
_AUTHORITY: Final = re.compile(r"[^\s/?#<>\"`]{0,512}+")
_TRAILING: Final = ".,;:!?'\")]}*_|"
_NUMBER: Final = r"(?:0[xX][0-9A-Fa-f]{1,8}|[0-9]{1,11})"
_MAYBE_IPV4: Final = re.compile(r"\.[0-9]")
_MAYBE_IPV6: Final = re.compile(r":(?::|(?:[0-9A-Fa-f.]{1,44}+:){5})")
"""What each literal has in it, quick to look for: the engine skips to the first letter."""
_IPV4: Final = re.compile(rf"(?<![\w.])(?=[0-9])(?:{_NUMBER}\.){{3}}{_NUMBER}(?!\w|\.\w)", re.ASCII)
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]{0,4}:)[0-9A-Fa-f:.]{2,45}+(?![\w:])")
_MANY_COLONS: Final = 3
_ALL_COLONS: Final = 7


def find_destinations(text: str) -> tuple[Destination, ...]:
    """Return the mail addresses, URLs and IP addresses that occur in a text, each once.

    Bare host names, handles and short forms of IP addresses are not looked for.  What has the
    shape of an address and cannot be read one way only is malformed.  At most FIND_LIMIT + 1;
    a text with more, or with more than CANDIDATE_LIMIT candidates, gets a malformed destination.
    """
    if names_no_host(text):
        return ()
    if not text.isascii() and not _CHANGED.isdisjoint(text):
        text = text.translate(_FOLDED)
    found: dict[Destination, None] = {}
    for count, candidate in enumerate(_candidates(text)):
        if count >= CANDIDATE_LIMIT or len(found) >= FIND_LIMIT:
            found[malformed("more destinations than the limit")] = None
            break
        if candidate is not None:
            found[candidate] = None
    return tuple(found)


def names_no_host(text: str) -> bool:
    """Return whether a text lacks every sign without which there is no host or mail address."""
    return "." not in text and ":" not in text and "@" not in text and text.isascii()


def _candidates(text: str) -> Iterator[Destination | None]:
    spans: list[tuple[int, int]] = []
    if "://" in text:
        yield from _urls(text, spans)
    if "@" in text:
        yield from _mails(text, spans)
    spans.sort()
    yield from _ips(text, spans)


def _urls(text: str, spans: list[tuple[int, int]]) -> Iterator[Destination | None]:
    """Yield the URLs, and note where their authorities are."""
    position, room = -1, URL_ROOM
    while (position := text.find("://", position + 1)) >= 0:
        if room <= 0:
            yield malformed("more characters of URLs than the limit")
            return
        head = text[max(0, position - 32) : position]
        scheme = _SCHEME_END.search(head)
        rest = _URL_REST.match(text, position + 3) if scheme is not None else None
        if scheme is None or rest is None:
            yield None
            continue
        room -= len(rest[0])
        name = scheme[0]
        if name.lower() == "file" and rest[0].startswith("/"):
            yield None
            continue
        authority = _AUTHORITY.match(text, position + 3)
        if authority is not None:
            spans.append(authority.span())
        yield read_url(f"{name}://{rest[0].rstrip(_TRAILING)}")


def _mails(text: str, spans: list[tuple[int, int]]) -> Iterator[Destination | None]:
    """Yield the mail addresses that are not the userinfo of a URL."""
    taken = iter(sorted(spans))
    span = next(taken, None)
    for at in _AT.finditer(text):
        position = at.start()
        while span is not None and span[1] <= position:
            span = next(taken, None)
        inside = span is not None and span[0] <= position
        domain = None if inside else _DOMAIN.match(text, position + 1)
        if domain is None:
            yield None
            continue
        spans.append(domain.span())
        yield _mail(text, position, domain[0])


def _mail(text: str, position: int, domain: str) -> Destination | None:
    head = text[max(0, position - _LOCAL_LIMIT - 2) : position]
    run = _LOCAL.match(head[::-1])
    local = run[0][::-1].lstrip(".-") if run else ""
    before = head[: len(head) - len(local)][-1:]
    if not local:
        # `"quoted"@host` is an address that is not read; `@host` after a space is a mention.
        return malformed(f"{head}@{domain}") if before in {'"', ")", ">"} else None
    if before in {"%", "!"} or len(local) > _LOCAL_LIMIT:
        return malformed(f"{head}@{domain}")
    return read_mailbox(f"{local}@{domain.rstrip('-_')}")


def _ips(text: str, spans: list[tuple[int, int]]) -> Iterator[Destination | None]:
    """Yield the IP addresses that are neither a URL's host nor a mail domain."""
    for pattern, sign in ((_IPV4, _MAYBE_IPV4), (_IPV6, _MAYBE_IPV6)):
        if sign.search(text) is None:
            continue
        taken = iter(spans)
        span = next(taken, None)
        for found in pattern.finditer(text):
            while span is not None and span[1] <= found.start():
                span = next(taken, None)
            literal = found[0].rstrip(".")
            if pattern is _IPV6 and not _maybe_ipv6(literal):
                continue
            if span is None or span[0] > found.start():
                ip = canonical_ip(literal)
                yield None if ip is None else Destination("ip", ip, ip)


def _maybe_ipv6(literal: str) -> bool:
    """Return whether it is no time of day and no name in a program such as ``ab::cd``."""
    if literal.count(":") >= _MANY_COLONS:
        return "::" in literal or literal.count(":") >= _ALL_COLONS - 1
    return "::" in literal and any(char.isdigit() for char in literal)
