"""One recipient of any kind: mailbox, URL, host, IP address or opaque handle.  Pure: no I/O."""

from __future__ import annotations

import re
from typing import Final

from guard.core.model import Destination
from guard.destinations.hosts import (
    canonical_host,
    canonical_ip,
    fold,
    has_hidden,
    is_ip,
    malformed,
)
from guard.destinations.mailboxes import (
    TEXT_LIMIT,
    mail_scheme,
    read_mail_uri,
    read_mailbox,
    same_structure,
)
from guard.destinations.urls import REFUSED_SCHEMES, URL_START, WEB_SCHEMES, read_url

QUOTED: Final = re.compile(r'"[^"\\\r\n]*+(?:\\[^\r\n][^"\\\r\n]*+)*+"')
"""A quoted string (RFC 5322, 3.2.4) on one line."""

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]{0,31}):")
_HOST_AND_MORE: Final = re.compile(r"([^\s/:?#\\]+)(:[0-9]{1,5})?(?:[/?#]\S*)?")
_BRACKETED: Final = re.compile(r"(\[[^\[\]]*\])(?::[0-9]{1,5})?")
_DIGITS: Final = re.compile(r"[0-9]+")
_FOUR_NUMBERS: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)(?:\.(?:[0-9]+|0x[0-9a-f]*)){3}")
_IBAN: Final = re.compile(r"[a-z]{2}[0-9]{2}(?: [a-z0-9]{4}){2,7}(?: [a-z0-9]{1,3})?")
_PHONE: Final = re.compile(r"\+?[0-9(][0-9 ()/-]{3,}")


def read_recipient(text: str) -> tuple[Destination, ...]:
    """Return the destinations of one recipient; more than one only of a ``mailto:`` URI."""
    text = text.strip()
    if not text:
        return ()
    if URL_START.match(text):
        return (read_url(text),)
    if len(text) > TEXT_LIMIT:
        return (malformed(text),)
    if mail_scheme(text):
        return read_mail_uri(text)
    if "@" in text:
        return (read_mailbox(text),)
    return (read_plain(text),)


def read_plain(text: str) -> Destination:
    """Return the IP, host or handle of a text without an ``@`` of its own."""
    folded = fold(text)
    if folded is None or has_hidden(text) or "=?" in text or not same_structure(text, folded):
        return malformed(text)
    unwrapped = _unwrapped(text)
    if unwrapped != text:
        again = read_recipient(unwrapped) if unwrapped else ()
        return again[0] if len(again) == 1 else malformed(text)
    scheme = _SCHEME.match(folded)
    if scheme is not None and scheme[1] in REFUSED_SCHEMES | WEB_SCHEMES:
        return malformed(text)
    if "://" in folded or folded.startswith(("//", "\\\\")) or _unfit(folded):
        return malformed(text)
    return _read_host(text, folded) or _handle(text, folded)


def _unwrapped(text: str) -> str:
    """Return what stands in one pair of angle brackets or quotes, where that is all."""
    inner = text[1:-1]
    if len(text) > 1 and text[0] + text[-1] in {"<>", '""'} and not set(inner) & set('<>",;\\'):
        return inner.strip()
    return text


def _unfit(folded: str) -> bool:
    """Return whether brackets, open quotes or quoted addresses make a handle ambiguous."""
    if "<" in folded or ">" in folded:
        return True
    return '"' in folded and ('"' in QUOTED.sub("", folded) or not set(folded).isdisjoint(":/\\."))


def _read_host(text: str, folded: str) -> Destination | None:
    bracketed = _BRACKETED.fullmatch(folded)
    literal = bracketed[1] if bracketed else folded
    # A bare number is an account far more often than an address; as a handle it is never inside
    # an internal network.  In a URL or a mail domain the same number is an address.
    if not _DIGITS.fullmatch(literal) and (ip := canonical_ip(literal)):
        return Destination("ip", ip, ip)
    parts = _HOST_AND_MORE.fullmatch(text)
    if parts is None or "." not in (fold(parts[1]) or "").removesuffix("."):
        return None
    host = canonical_host(parts[1])
    if host is not None:
        return Destination("ip" if is_ip(host) else "host", host, host)
    ambiguous = not text.isascii() or _FOUR_NUMBERS.fullmatch(parts[1].lower())
    return malformed(text) if ambiguous else None


def _handle(text: str, folded: str) -> Destination:
    handle = " ".join(folded.split())
    if _IBAN.fullmatch(handle) or _PHONE.fullmatch(handle):
        handle = handle.replace(" ", "")
    return Destination("handle", handle) if handle else malformed(text)
