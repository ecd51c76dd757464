"""URLs in canonical form, for identity and never for fetching.  Pure: no I/O."""

from __future__ import annotations

import re
from typing import Final

from guard.core.model import Destination
from guard.destinations.hosts import canonical_host, has_hidden, malformed

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
_SECOND: Final = re.compile(r"[,;](?:[A-Za-z][A-Za-z0-9+.-]{0,31}:|[^,;/?#]*@)")
"""A separator and what may be another destination: one URL to some, a list of two to others."""
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})?|[^A-Za-z0-9._~!$&'()*+,;=:@/?-]")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HIDDEN_DOTS: Final = re.compile(r"(?:\A|/|%2F|%5C)\.\.?(?:\Z|/|;|%2F|%5C)")
_MAX_PORT: Final = 65535


def read_url(text: str) -> Destination:
    """Return the URL destination of a text that starts with ``scheme://``, or a malformed one.

    Canonical: scheme and host in lower case, host as by :func:`canonical_host`, no userinfo, no
    default port, no fragment, dot segments resolved, escapes of unreserved characters decoded
    and all others in upper case.  The query stays.  Malformed: backslashes, whitespace, hidden
    characters, two ``@`` in the authority, dot segments behind an encoded slash or a ``;``, and
    a separator followed by what may be a second destination.
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
        path = _resolved(_ESCAPE.sub(_escape, parts["path"]))
        query = _ESCAPE.sub(_escape, parts["query"] or "")
    except ValueError:
        return None
    if origin is None or scheme in REFUSED_SCHEMES or _HIDDEN_DOTS.search(path):
        return None
    canonical = f"{scheme}://{origin[0]}{path}{query}"
    return (canonical, origin[1]) if len(canonical) <= URL_LIMIT else None


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
