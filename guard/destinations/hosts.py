"""Hosts and plain text in canonical form: IDNA names, IP literals, folded text.  Pure: no I/O."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import unicodedata
from typing import Final

import idna

from guard.core.model import Destination

HOST_LIMIT: Final = 253
"""Characters of a host name (RFC 1035, 2.3.4)."""

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_ASCII_LABEL: Final = re.compile(_LABEL)
_ASCII_HOST: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")
_NUMERIC_LABEL: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)")
_ZONE: Final = re.compile(r"%[\w.~-]{1,32}\Z", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that show nothing although their category is a letter, a mark or a symbol."""


def malformed(text: str) -> Destination:
    """Return the marker of a text that cannot be read as one destination in one way only.

    The canonical form is ``malformed:`` and 16 hex digits of the text's sha256: bounded, safe to
    print, the same for the same text, and free of what the attacker wrote.
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Destination("malformed", f"malformed:{digest[:16]}")


def has_hidden(text: str) -> bool:
    """Return whether a text holds control, bidi, zero-width, unassigned or blank characters."""
    if text.isascii():
        return _CONTROL.search(text) is not None
    if _BLANK.search(text):
        return True
    return any(unicodedata.category(char) in _HIDDEN_CATEGORIES for char in text)


def fold(text: str) -> str | None:
    """Return the compatibility-composed, casefolded text, or None where folding does not settle.

    The caller bounds the length: normalisation is quadratic in runs of combining marks.
    Confusables are left alone: a Cyrillic letter never becomes a Latin one.
    """
    if text.isascii():
        return text.lower()
    for _ in range(4):
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        if folded == text:
            return folded
        text = folded
    return None


def canonical_ip(text: str) -> str | None:
    """Return an IP literal in canonical form, or None where the text is none.

    Takes what ``inet_aton`` takes (decimal, octal, hex, fewer than four parts), IPv6 in any
    spelling, brackets and a zone id, which is dropped.  IPv4-mapped IPv6 becomes IPv4.  A part
    with a leading zero is octal to some resolvers and decimal to others: where the two readings
    are both addresses and differ, the text is no literal.
    """
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if ":" not in text:
        return _canonical_ipv4(text.lower())
    text = _ZONE.sub("", text)
    try:
        # A second `%` would pass as a zone id of the address module's own.
        address = None if "%" in text else ipaddress.IPv6Address(text)
    except ValueError:
        return None
    if address is None:
        return None
    return str(address.ipv4_mapped or address)


def _canonical_ipv4(text: str) -> str | None:
    parts = text.split(".") if len(text) <= HOST_LIMIT else []
    if not 1 <= len(parts) <= 4 or not all(  # noqa: PLR2004 - the parts of an IPv4 address
        _NUMERIC_LABEL.fullmatch(part) and part.isascii() for part in parts
    ):
        return None
    octal = _ipv4_value(parts, zero_is_octal=True)
    if any(len(part) > 1 and part[0] == "0" and part[1] != "x" for part in parts):
        decimal = _ipv4_value(parts, zero_is_octal=False)
        if octal is None or decimal not in {None, octal}:
            return None
    return None if octal is None else str(ipaddress.IPv4Address(octal))


def _ipv4_value(parts: list[str], *, zero_is_octal: bool) -> int | None:
    numbers = []
    for part in parts:
        base = 10
        if part.startswith("0x"):
            part, base = part[2:] or "0", 16  # noqa: PLW2901 - the digits of this part
        elif zero_is_octal and part.startswith("0"):
            base = 8
        try:
            numbers.append(int(part, base))
        except ValueError:
            return None
    *heads, last = numbers
    if any(head > 0xFF for head in heads) or last >= 256 ** (4 - len(heads)):  # noqa: PLR2004
        return None
    return int(sum(head << (24 - 8 * index) for index, head in enumerate(heads)) + last)


def is_ip(host: str) -> bool:
    """Return whether a canonical host is an IP address and not a name."""
    return ":" in host or host.rpartition(".")[2].isdigit()


def canonical_host(text: str) -> str | None:
    """Return a host in canonical form, or None where the text is no host.

    An IP address in the form of :func:`canonical_ip` (IPv6 only in brackets), or a name as lower
    case A-labels (UTS 46, non-transitional) without the trailing dot.  As in the URL standard, a
    name whose last label is a number is an IPv4 address or nothing.
    """
    if text.startswith("["):
        return canonical_ip(text) if text.endswith("]") else None
    if len(text) > HOST_LIMIT + 1:
        return None
    host = text.lower().removesuffix(".") if text.isascii() else _mapped(text)
    if host is not None and not (host.isascii() and "xn--" not in host):
        labels = [_canonical_label(label) for label in host.split(".")]
        host = None if None in labels else ".".join(label for label in labels if label)
    if host is None or not _ASCII_HOST.fullmatch(host):
        return None
    if _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]):
        return _canonical_ipv4(host)
    return host if len(host) <= HOST_LIMIT else None


def _mapped(text: str) -> str | None:
    # UTS 46 deletes zero-width characters, so two spellings that look alike would be one host;
    # they are refused before it can.
    if has_hidden(text):
        return None
    try:
        return idna.uts46_remap(text, std3_rules=False, transitional=False).removesuffix(".")
    except (idna.IDNAError, UnicodeError, ValueError):
        return None


def _canonical_label(label: str) -> str | None:
    if label.isascii() and not label.startswith("xn--"):
        return label if _ASCII_LABEL.fullmatch(label) else None
    try:
        encoded = idna.alabel(label).decode("ascii")
    except (idna.IDNAError, UnicodeError, ValueError):
        return None
    # An A-label that is not what its own decoding encodes to is a second spelling of another.
    return encoded if encoded == label or not label.isascii() else None
