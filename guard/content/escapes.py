r"""Readings of a text with its escapes undone: HTML, URLs, programs, mail.  Pure: no I/O.

``&commat;``, ``%40``, ``\u0040``, ``=40``, ``+AEA-``, ``\.`` of Markdown, tags and comments of HTML
inside an address, the folded lines of mail headers and calendars.  Every expression is linear.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from guard.content.text_places import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ENTITY: Final = re.compile(r"&(?:#|[A-Za-z]{2,8};)")
_PERCENT: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_ESCAPE: Final = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([0-3][0-7]{2})"
    r"|(40|2[Ee]) ?|([nrt])|([^\w\s\\]))"
)
_PRINTABLE: Final = re.compile(r"=(?:40|2[Ee])|(?:=[0-9A-F]{2}){3}")
_PRINTED: Final = re.compile(r"=([0-9A-Fa-f]{2})|=\r?\n")
_UTF7: Final = re.compile(r"\+([A-Za-z0-9/]{3,200})-")
_TAG: Final = r"(?:<[^<>]{0,80}>){1,4}"
_TAGGED: Final = re.compile(
    rf"[\w.+-]{_TAG}[\w.+-]{{0,40}}@|@[\w.-]{{0,40}}{_TAG}[\w.-]|{_TAG}@|@{_TAG}"
)
_HIDDEN_TAG: Final = re.compile(
    r"<([a-z]{1,8})[^<>]{0,60}(?:display: ?none|font-size: ?0|visibility: ?hidden| hidden)"
    r"[^<>]{0,20}>[^<>]{0,80}</\1>"
)
_ANY_TAG: Final = re.compile(r"<[^<>]{0,80}>")
_FOLDED: Final = re.compile(r"\r\n[ \t](?=\S)")
_LAST: Final = 0x10FFFF
_HOST_CUT: Final = re.compile(
    r"://(?:[^\s/@]{1,64}@)?([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})(?=[^\s/?#:\"'<>)\]\w.,;!*_|}@-])"
)
"""A host in a URL that something follows which no URL has: an escape, mostly."""


def unescaped(text: str) -> Iterator[str]:
    """Yield the places of a text that escapes stand in, as they read without."""
    for sign, pattern, decode in _KINDS:
        if sign in text:
            found = places(text, pattern)
            if found:
                yield decode(found)
    if "://" in text:
        hosts = _HOST_CUT.findall(text)
        if hosts:
            yield " ".join(hosts)


def _escape(found: re.Match[str]) -> str:
    braces, four, two, octal, css, space, sign = found.groups()
    if space:
        return " " if space == "t" else "\n"
    if sign:
        return str(sign)
    point = int(octal, 8) if octal else int(braces or four or two or css, 16)
    return chr(point) if point <= _LAST else ""


def _printed(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else ""


def _utf7(found: re.Match[str]) -> str:
    bare = found[1] + "=" * (-len(found[1]) % 4)
    try:
        return base64.b64decode(bare).decode("utf-16-be", "ignore")
    except (binascii.Error, ValueError):
        return found[0]


def _untagged(text: str) -> str:
    return _ANY_TAG.sub("", _HIDDEN_TAG.sub("", text))


_KINDS: Final[tuple[tuple[str, re.Pattern[str], Callable[[str], str]], ...]] = (
    ("&", _ENTITY, html.unescape),
    ("%", _PERCENT, lambda run: unquote(unquote(run))),
    ("\\", _ESCAPE, lambda run: _ESCAPE.sub(_escape, run)),
    ("=", _PRINTABLE, lambda run: _PRINTED.sub(_printed, run)),
    ("+", _UTF7, lambda run: _UTF7.sub(_utf7, run)),
    ("<", _TAGGED, _untagged),
    ("\r\n", _FOLDED, lambda run: _FOLDED.sub("", run)),
)
"""A sign without which there is none, where they are, and how they are undone."""
