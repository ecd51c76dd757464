"""Destinations in canonical form, one reading or none.  Pure: no I/O.

Hosts, mailboxes, URLs, the recipients of one argument.  Everything a policy compares is
compared here in canonical form, and canonicalising a canonical form gives itself.  A text that two
programs may read in two ways is ``malformed``, which no pattern matches.  Canonical forms are for
identity: the call is sent on as the agent wrote it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import unicodedata
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import idna

from guard.core.bounded_cache import bounded_cache
from guard.core.json_values import strings_in
from guard.core.model import Destination, Json

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    are both addresses and differ, the text is not a literal.
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
    """Return a host in canonical form, or None where the text is not a host.

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


URL_LIMIT: Final = 8192
"""Characters of a URL; a longer one is malformed."""

URL_START: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://")

REFUSED_SCHEMES: Final = frozenset(
    {"about", "blob", "data", "file", "filesystem", "javascript", "mailto", "sip", "sips"}
    | {"vbscript", "view-source"}
)
"""Schemes that name no receiver in a URL, or hide one (``mailto:`` is read as mail, not as URL)."""

WEB_SCHEMES: Final = frozenset({"ftp", "http", "https", "ws", "wss"})
"""Schemes whose clients forgive a missing ``//`` (URL standard: special schemes)."""

_DEFAULT_PORTS: Final = {"ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}
_PARTS: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,31})://(?P<authority>[^/?#]*)"
    r"(?P<path>[^?#]*)(?P<query>\?[^#]*)?"
)
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\[\]@]*\]|[^\[\]:@]+)(?::(?P<port>[0-9]{0,10}))?")
_FORBIDDEN: Final = re.compile(r"[\s\\]")
_SECOND: Final = re.compile(
    r"[,;](?:[A-Za-z][A-Za-z0-9+.-]{0,31}:|[^,;/?#]*@(?!\d{1,7}(?:\.\.\d{1,7})?(?:[,;&]|\Z)))",
    re.ASCII,
)
"""A separator and what may be another destination: one URL to some, a list of two to others.

A short number behind the `@` (`wght@0,200..900`) is not a host: as an address it is in 0.0.0.0/8.
"""
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})?|[^A-Za-z0-9._~!$&'()*+,;=:@/?-]")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HIDDEN_DOTS: Final = re.compile(r"(?:\A|[/\\]|%2F|%5C)\.\.?(?:\Z|[/\\;]|%2F|%5C)")
_DECODINGS: Final = 8
"""Layers of percent-encoding that are undone; a text with more of them is not read."""
_MAX_PORT: Final = 65535
_ASCII_END: Final = 0x7F


def read_url(text: str) -> Destination:
    """Return the URL destination of a text that starts with ``scheme://``, or a malformed one.

    Canonical: scheme and host in lower case, host as by :func:`canonical_host`, no userinfo, no
    default port, no fragment, dot segments resolved, escapes of unreserved characters decoded
    and all others in upper case.  The query stays.  What is left out so and can tell the host
    something (userinfo, fragment, dot segments, odd escapes) is part of identity by its digest:
    ``#~`` and 16 hex digits at the end.  Malformed: backslashes, whitespace, hidden characters,
    two ``@`` in the authority, dot segments behind an encoded slash or a ``;``, and a separator
    followed by what may be a second destination.
    """
    canonical = _canonical(text)
    if canonical is None or _SECOND.search(canonical[0]) or canonical[0].endswith((",", ";")):
        return malformed(text)
    return Destination("url", canonical[0], canonical[1])


def _canonical(text: str) -> tuple[str, str] | None:
    if len(text) > URL_LIMIT or _FORBIDDEN.search(text) or has_hidden(text):
        return None
    parts = _PARTS.match(text)
    if parts is None or _SECOND.search(text):
        return None
    scheme = parts["scheme"].lower()
    origin = _origin(scheme, parts["authority"])
    try:
        written = _ESCAPE.sub(_escape, parts["path"])
        path = _resolved(written)
        query = _ESCAPE.sub(_escape, parts["query"] or "")
    except ValueError:
        return None
    if origin is None or scheme in REFUSED_SCHEMES or _hides_dots(path):
        return None
    canonical = f"{scheme}://{origin[0]}{path}{query}"
    if len(canonical) > URL_LIMIT:
        return None
    left = "" if written in {path, ""} and "%" not in text else _left_out(parts, written, path)
    if left or "@" in parts["authority"] or parts.end() < len(text):
        canonical += _rest(parts["authority"], left, text[parts.end() + 1 :])
    return canonical, origin[1]


def unquoted(text: str) -> Iterator[str]:
    """Yield a text and its percent-decodings up to the fixed point.

    Servers and the gateways before them decode once each, so each layer is some program's reading.

    Raises:
        ValueError: the text has more layers than are undone.
    """
    for _ in range(_DECODINGS):
        yield text
        decoded = unquote(text) if "%" in text else text
        if decoded == text:
            return
        text = decoded
    message = "more layers of percent-encoding than are undone"
    raise ValueError(message)


def _hides_dots(path: str) -> bool:
    """Return whether a path has dot segments behind an encoded sign, in any decoding of it."""
    try:
        return any(_HIDDEN_DOTS.search(reading) is not None for reading in unquoted(path))
    except ValueError:
        return True


_NEEDLESS: Final = re.compile(r"%(?:2[DEde]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff])")
"""A letter, digit or sign that nobody has to escape; old programs escape a tilde."""
_ESCAPED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_REST: Final = re.compile(r"~[0-9a-f]{16}")
REST_SIGN: Final = "#"
"""Sign before the digest of the rest of a URL."""
_ENDED: Final = frozenset({"?", REST_SIGN})


def _left_out(parts: re.Match[str], written: str, path: str) -> str:
    """Return path and query as they stand, where their canonical form says less."""
    spelt = parts["path"] + (parts["query"] or "")
    return spelt if written not in {path, ""} or _is_odd(spelt) else ""


def _is_odd(spelt: str) -> bool:
    """Return whether no program escapes so: a choice at each character is a code."""
    digits = _ESCAPED.findall(spelt)
    joined = "".join(digits)
    if _NEEDLESS.search(spelt) or joined not in {joined.lower(), joined.upper()}:
        return True
    return not spelt.isascii() and any(int(one, 16) > _ASCII_END for one in digits)


def _rest(authority: str, spelt: str, fragment: str) -> str:
    """Return the end of a canonical form that stands for what it leaves out; it may be nothing."""
    user = authority.rpartition("@")[0]
    if not (user or spelt) and (not fragment or _REST.fullmatch(fragment)):
        return fragment and REST_SIGN + fragment
    told = f"{user}\0{spelt}\0{fragment}".encode("utf-8", "surrogatepass")
    return f"{REST_SIGN}~{hashlib.sha256(told).hexdigest()[:16]}"


def _origin(scheme: str, authority: str) -> tuple[str, str] | None:
    """Return ``host[:port]`` as it stands in a URL, and the host alone."""
    userinfo, _, rest = authority.rpartition("@")
    parts = _AUTHORITY.fullmatch(rest)
    if "@" in userinfo or parts is None:
        return None
    host = canonical_host(parts["host"])
    port = (parts["port"] or "").lstrip("0") or ("0" if parts["port"] else "")
    if host is None or (port and int(port) > _MAX_PORT):
        return None
    shown = f"[{host}]" if ":" in host else host
    if port and port != _DEFAULT_PORTS.get(scheme):
        shown = f"{shown}:{port}"
    return shown, host


def _escape(found: re.Match[str]) -> str:
    digits: str | None = found[1]
    if digits is not None:
        char = chr(int(digits, 16))
        return char if char in _UNRESERVED else f"%{digits.upper()}"
    if found[0] == "%":
        message = "a percent sign without two hex digits"
        raise ValueError(message)
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8"))


def _resolved(path: str) -> str:
    """Return an absolute path without dot segments (RFC 3986, 5.2.4)."""
    kept: list[str] = []
    segments = path.split("/")[1:] or [""]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


TEXT_LIMIT: Final = 1024
"""Characters of one recipient with its display name; a longer one is malformed."""

_LOCAL_LIMIT: Final = 64
_ADDRESS_LIMIT: Final = 254
"""Octets of a local part and of an address (RFC 5321, 4.5.3.1 with erratum 1690)."""

_PLAIN: Final = re.compile(
    r"([A-Za-z0-9_+-]++(?:\.[A-Za-z0-9_+-]++)*+)@"
    r"((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)++[A-Za-z]{2,63})"
)
_LOCAL: Final = re.compile(r"[\w#$&'*=?^{}~+-]++(?:\.[\w#$&'*=?^{}~+-]++)*+")
"""RFC 5322 atoms, without what a relay may route on: ``!`` ``%`` ``/`` ``|`` and the backtick."""
_ANGLE: Final = re.compile(r"(?P<name>[^<>]*)<(?P<address>[^<>]*)>(?P<rest>[^<>]*)")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_NAME_REFUSED: Final = re.compile(r'[@"\\:,;\[\]]')
_STRUCTURE: Final = '@<>"(),;:/\\[]%'
_MAIL_SCHEME: Final = re.compile(r"(mailto|sips?):", re.IGNORECASE)
_PORT: Final = re.compile(r":[0-9]{1,5}\Z")
_RECIPIENT_FIELDS: Final = frozenset({"to", "cc", "bcc"})


def same_structure(text: str, folded: str) -> bool:
    """Return whether folding a text made no ``@``, separator, bracket or slash out of another."""
    return text.isascii() or all(text.count(char) == folded.count(char) for char in _STRUCTURE)


def read_mailbox(text: str) -> Destination:
    """Return the one mailbox that a text with an ``@`` names, or a malformed destination.

    Takes ``local@domain``, ``<local@domain>``, a display name before it and comments around it.
    Canonical: local part folded, domain as by :func:`canonical_host`, IP domains in brackets.
    Dots and a ``+tag`` of the local part stay: to some receivers they choose the account.
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


_ENCAPSULATED: Final = re.compile(r"\A(?:imcea\w*-|srs[01][=+-])|#ext#\Z|[=+][0-9a-f]{2}|[=#]")
"""Signs of a local part in which another address may be written."""
_ALWAYS: Final = len("=40")
"""Characters of the longest of these signs that an ordinary local part may have, too."""
_HEX: Final = re.compile(r"\+([0-9a-f]{2})")
_ANY_HEX: Final = re.compile(r"[=+]([0-9a-f]{2})")
_HOST_INSIDE: Final = re.compile(r"[=#](?:[^=#]*[^\W_])?\.[^\W_]|[^\W_]\.[^\W_][^=#]*[=#]")
"""The name of a host before or behind a sign that joins it to something."""
_MAIL_INSIDE: Final = re.compile(r"@[\w-]+\.\w")
_INSIDE: Final = (
    re.compile(r"imceasmtp-(?P<local>[^@]+)@(?P<host>[^@]+)"),
    re.compile(r"srs0[=+-][^=]+=[^=]+=(?P<host>[^=]+)=(?P<local>.+)"),
    re.compile(r"srs1[=+-][^=]+=[^=]+=[=+-][^=]+=[^=]+=(?P<host>[^=]+)=(?P<local>.+)"),
    re.compile(r"(?P<local>.+)_(?P<host>[^_]+)#ext#"),
)
"""Encapsulations with one reading: IMCEA (hex escapes undone), the Sender Rewriting Scheme, guests
of a directory."""


def read_mailboxes(text: str) -> tuple[Destination, ...]:
    """Return the mailbox of a text, and behind it the one that is encapsulated in its local part.

    A gateway at the outer host passes such a mail on, so the address inside receives it as well.
    Where that cannot be read, the same mailbox without a host stands for it: in nobody's domain.
    """
    outer = read_mailbox(text)
    local = outer.canonical.rpartition("@")[0] if outer.kind == "mail" else ""
    if not local or (sign := _ENCAPSULATED.search(local)) is None:
        return (outer,)
    if len(sign[0]) <= _ALWAYS and not encapsulates(local):
        return (outer,)
    decoded = _HEX.sub(_decoded, local)
    found = next((m for form in _INSIDE if (m := form.fullmatch(decoded)) is not None), None)
    inner = read_mailboxes(f"{found['local']}@{found['host']}") if found is not None else ()
    if not inner or inner[0].kind != "mail":
        inner = (Destination("mail", outer.canonical),)
    return (outer, *inner)


def encapsulates(local: str) -> bool:
    """Return whether a local part has the name of a host, or an escaped mailbox, in it."""
    if _HOST_INSIDE.search(local) is not None:
        return True
    return _MAIL_INSIDE.search(_ANY_HEX.sub(_decoded, local)) is not None


def _decoded(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def untagged(mailbox: str) -> str:
    """Return a canonical mailbox without its ``+tag``; itself where it has none."""
    local, _, domain = mailbox.rpartition("@")
    return f"{local.partition('+')[0] or local}@{domain}"


def _mail_host(domain: str) -> str | None:
    if domain.startswith("[") and domain.endswith("]"):
        inner = domain[1:-1]
        return canonical_ip(inner[5:] if inner[:5].lower() == "ipv6:" else inner)
    return canonical_host(domain)


def mail_scheme(text: str) -> bool:
    """Return whether a text starts with ``mailto:``, ``sip:`` or ``sips:``."""
    return _MAIL_SCHEME.match(text) is not None


def read_mail_uri(text: str) -> tuple[Destination, ...]:
    """Return the mailboxes of a ``mailto:`` or ``sip:`` URI, those of its header fields included.

    Anything percent-encoded in a recipient is malformed; lists have been split before.
    """
    scheme, _, rest = text.partition(":")
    address, _, query = rest.partition("?")
    if scheme.lower() != "mailto":
        return (malformed(text),) if query else read_mailboxes(_PORT.sub("", address))
    recipients = [address] if address else []
    for pair in query.split("&"):
        field, _, value = pair.partition("=")
        if "%" in field:
            return (malformed(text),)
        if field.lower() in _RECIPIENT_FIELDS:
            recipients.append(value)
    found = [one for recipient in recipients for one in read_mailboxes(recipient)]
    return tuple(found) or (malformed(text),)


QUOTED: Final = re.compile(r'"[^"\\\r\n]*+(?:\\[^\r\n][^"\\\r\n]*+)*+"')
"""A quoted string (RFC 5322, 3.2.4) on one line."""

_ANY_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]{0,31}):")
_HOST_AND_MORE: Final = re.compile(r"([^\s/:?#\\]+)(:[0-9]{1,5})?(?:[/?#]\S*)?")
_BRACKETED: Final = re.compile(r"(\[[^\[\]]*\])(?::[0-9]{1,5})?")
_DIGITS: Final = re.compile(r"[0-9]+")
_FOUR_NUMBERS: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)(?:\.(?:[0-9]+|0x[0-9a-f]*)){3}")
_IBAN: Final = re.compile(r"[a-z]{2}[0-9]{2}(?: [a-z0-9]{4}){2,7}(?: [a-z0-9]{1,3})?")
_PHONE: Final = re.compile(r"\+?[0-9(][0-9 ()/-]{3,}")


CONVERSATION: Final = re.compile(
    r"(?:19|48):[A-Za-z0-9_-]{1,160}@(?:thread\.(?:tacv2|v2|skype)|unq\.gbl\.spaces)"
)
"""A channel or chat of Teams: no mailbox has a colon, and no domain such an end."""

EMPTY_PAGE: Final = "about:blank"
"""A browser's page of nobody's."""


def read_recipient(text: str) -> tuple[Destination, ...]:
    """Return the destinations of one recipient.

    More than one only of a ``mailto:`` URI and of an address with another one in it.
    """
    text = text.strip()
    if not text or text == EMPTY_PAGE:
        return ()
    if URL_START.match(text):
        return (read_url(text),)
    if len(text) > TEXT_LIMIT:
        return (malformed(text),)
    if mail_scheme(text):
        return read_mail_uri(text)
    if "@" in text:
        chat = CONVERSATION.fullmatch(text)
        return (Destination("handle", text.lower()),) if chat else read_mailboxes(text)
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
    scheme = _ANY_SCHEME.match(folded)
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
    if host is not None and is_ip(host):
        return Destination("ip", host, host)
    if host is not None:
        return _place(text, host)
    ambiguous = not text.isascii() or _FOUR_NUMBERS.fullmatch(parts[1].lower())
    return malformed(text) if ambiguous else None


def _place(text: str, host: str) -> Destination:
    """Return a host with the port, path and query that are written behind it, where there are any.

    They are part of what is meant, as in a URL: two paths of one host are two places.
    """
    if len(text.rstrip(".")) == len(host):
        return Destination("host", host, host)
    url = read_url(f"https://{text}")
    if url.kind != "url":
        return malformed(text)
    return Destination("host", unslashed(url.canonical).partition("//")[2], host)


def unslashed(place: str) -> str:
    """Return a canonical URL or host without the one slash that ends its path.

    More than one slash, and a slash of the query, are part of identity.
    """
    bare = place.removesuffix("/")
    return place if bare.endswith("/") or not _ENDED.isdisjoint(place) else bare


def _handle(text: str, folded: str) -> Destination:
    handle = " ".join(folded.split())
    if _IBAN.fullmatch(handle) or _PHONE.fullmatch(handle):
        handle = handle.replace(" ", "")
    return Destination("handle", handle) if handle else malformed(text)


MISSING: Final = Destination("missing", "", "")
"""Destination of a send that names none where the policy says destinations are."""

READ_LIMIT: Final = 1000
"""Destinations read from one argument; where there are more, the last one is malformed."""

TEXT_LIST_LIMIT: Final = 1 << 18
"""Characters of one declared string; a longer one is malformed."""

_CACHED_LENGTH: Final = 256
_CACHE_SIZE: Final = 1024
_INT_LIMIT: Final = 1 << 128
"""Integers from here on are malformed: no account number is as long, and printing them costs."""

_EMPTY: Final = re.compile(r"[ \t\r\n,;]*+")
_STOP: Final = re.compile(r'[",;\r\n]')
_SEPARATORS: Final = (", ", "; ", "\n", "\r\n", ",\n", ";\n", ",", ";")
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


def read_receivers(value: Json) -> tuple[Destination, ...]:
    """Return the destinations of an argument that a client may take for one URL as it stands.

    It would tell the URL's host what stands around the URL as well, such as blanks: a text with
    more of that than a list needs is malformed besides.
    """
    found = read_destinations(value)
    for one in found:
        if one.host and one.kind != "mail":
            odd = next((text for text in strings_in(value) if not _is_plain_list(text)), None)
            return found if odd is None else (*found, malformed(odd))
    return found


def _is_plain_list(text: str) -> bool:
    """Return whether a text is its items, each once, with one separator between them."""
    if len(text) > TEXT_LIST_LIMIT:
        return False
    whole = text.strip()
    items = [item for item, _ in _split(text)]
    separators = _SEPARATORS if len(items) > 1 else ("",)
    return (
        len(text) - len(whole) <= 1
        and len(set(items)) == len(items)
        and any(whole == separator.join(items) for separator in separators)
    )


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
    if _PLAIN.fullmatch(text) is not None:
        # One mailbox and nothing around it.
        return read_mailboxes(text)
    found: dict[Destination, None] = {}
    group = False
    for item, separator in _split(text):
        piece = item
        grouped = "@" in piece and not mail_scheme(piece) and not CONVERSATION.fullmatch(piece)
        name = _GROUP.match(piece) if grouped else None
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
