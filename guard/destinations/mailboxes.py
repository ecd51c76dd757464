"""Mail addresses as people and headers write them, read one way or not at all.  Pure: no I/O."""

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

TEXT_LIMIT: Final = 1024
"""Characters of one recipient with its display name; a longer one is malformed."""

_LOCAL_LIMIT: Final = 64
_ADDRESS_LIMIT: Final = 254
"""Octets of a local part and of an address (RFC 5321, 4.5.3.1 with erratum 1690)."""

_PLAIN: Final = re.compile(
    r"([A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*+)@"
    r"((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)++[A-Za-z]{2,63})"
)
_LOCAL: Final = re.compile(r"[\w#$&'*=?^{}~+-]++(?:\.[\w#$&'*=?^{}~+-]++)*+")
"""RFC 5322 atoms, without what a relay may route on: ``!`` ``%`` ``/`` ``|`` and the backtick."""
_ANGLE: Final = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>(?P<rest>[^<>]*)")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_NAME_REFUSED: Final = re.compile(r'[@"\\:,;\[\]]')
_STRUCTURE: Final = '@<>"(),;:/\\[]%'
_SCHEME: Final = re.compile(r"(mailto|sips?):", re.IGNORECASE)
_PORT: Final = re.compile(r":[0-9]{1,5}\Z")
_RECIPIENT_FIELDS: Final = frozenset({"to", "cc", "bcc"})


def same_structure(text: str, folded: str) -> bool:
    """Return whether folding a text made no ``@``, separator, bracket or slash out of another."""
    return text.isascii() or all(text.count(char) == folded.count(char) for char in _STRUCTURE)


def read_mailbox(text: str) -> Destination:
    """Return the one mailbox that a text with an ``@`` names, or a malformed destination.

    Takes ``local@domain``, ``<local@domain>``, a display name before it and comments around it.
    Canonical: local part folded, its ``+tag`` dropped, domain as by :func:`canonical_host`, IP
    domains in brackets.  Dots of the local part stay: only some receivers ignore them.
    """
    plain = _PLAIN.fullmatch(text)
    if plain is not None and plain.end(1) <= _LOCAL_LIMIT and "--" not in plain[2]:
        canonical = text.lower()
        if len(text) <= _ADDRESS_LIMIT:
            return Destination("mail", canonical, canonical[plain.end(1) + 1 :])
    if len(text) > TEXT_LIMIT or "=?" in text or has_hidden(text):
        return malformed(text)
    folded = fold(text)
    if folded is None or not same_structure(text, folded):
        return malformed(text)
    address = _bare_address(text.strip())
    return (_mailbox(address) if address is not None else None) or malformed(text)


def _bare_address(text: str) -> str | None:
    """Return the address without display name and comments."""
    if "<" not in text and ">" not in text:
        return _without_comments(text)
    parts = _ANGLE.fullmatch(text)
    if parts is None or _without_comments(parts["rest"]) != "":
        return None
    for quoted in _QUOTED.findall(parts["name"]):
        # A tool that splits at separators before it minds quotes would send to the name.
        if "@" in quoted and ("," in quoted or ";" in quoted):
            return None
    name = _without_comments(_QUOTED.sub(" ", parts["name"]))
    if name is None or _NAME_REFUSED.search(name):
        return None
    return parts["address"].strip(" ")


def _without_comments(text: str) -> str | None:
    """Return the text without RFC 5322 comments, or None where one is open or has an ``@``."""
    if "(" not in text and ")" not in text:
        return text.strip()
    kept: list[str] = []
    depth = 0
    for char in text:
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                return None
        elif depth == 0:
            kept.append(char)
        elif char in '@\\"':
            return None
    return "".join(kept).strip() if depth == 0 else None


def _mailbox(address: str) -> Destination | None:
    local, at, domain = address.partition("@")
    folded = fold(local)
    if not at or "@" in domain or folded is None or not _LOCAL.fullmatch(folded):
        return None
    base = folded.partition("+")[0]
    folded = base or folded
    host = _mail_host(domain)
    if host is None or not _LOCAL.fullmatch(folded) or "=?" in folded:
        return None
    shown = host
    if is_ip(host):
        shown = f"[ipv6:{host}]" if ":" in host else f"[{host}]"
    canonical = f"{folded}@{shown}"
    octets = len(canonical.encode("utf-8", "replace"))
    if octets > _ADDRESS_LIMIT or len(local.encode("utf-8", "replace")) > _LOCAL_LIMIT:
        return None
    if len(folded.encode("utf-8", "replace")) > _LOCAL_LIMIT:
        return None
    return Destination("mail", canonical, host)


def _mail_host(domain: str) -> str | None:
    if domain.startswith("[") and domain.endswith("]"):
        inner = domain[1:-1]
        return canonical_ip(inner[5:] if inner[:5].lower() == "ipv6:" else inner)
    return canonical_host(domain)


def mail_scheme(text: str) -> bool:
    """Return whether a text starts with ``mailto:``, ``sip:`` or ``sips:``."""
    return _SCHEME.match(text) is not None


def read_mail_uri(text: str) -> tuple[Destination, ...]:
    """Return the mailboxes of a ``mailto:`` or ``sip:`` URI, those of its header fields included.

    Anything percent-encoded in a recipient is malformed; lists have been split before.
    """
    scheme, _, rest = text.partition(":")
    address, _, query = rest.partition("?")
    if scheme.lower() != "mailto":
        return (malformed(text) if query else read_mailbox(_PORT.sub("", address)),)
    recipients = [address] if address else []
    for pair in query.split("&"):
        field, _, value = pair.partition("=")
        if "%" in field:
            return (malformed(text),)
        if field.lower() in _RECIPIENT_FIELDS:
            recipients.append(value)
    return tuple(read_mailbox(recipient) for recipient in recipients) or (malformed(text),)
