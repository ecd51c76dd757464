"""Data in the parts of a URL: its path, its query, what it is coded in.  Pure: no I/O."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import re2

from guard.content.decoder import decoded
from guard.content.fragment_joining import members
from guard.content.issued_names import (
    draws_what_it_is_told,
    is_click,
    is_own_parameter,
    only_delivers,
    without_own_ids,
)
from guard.content.own_codings import is_turned_sentence, respelt
from guard.content.protocol_parameters import without_protocols
from guard.content.secret_forms import entropy
from guard.core.argument_texts import argument_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from urllib.parse import SplitResult

_DIGEST64: Final = 43
_DIGESTS: Final = frozenset({"code_challenge", "sig", "sdata"})
"""PKCE (RFC 7636, 4.2), shared access signatures of Azure, Safe Links: 32 bytes, 3 more than the
longest id that passes under any name.  A ``capacity`` rule counts them."""
_ENDS: Final = frozenset({"e", "exp", "expire", "expires", "Expires", "expiry", "se", "until"})
_SIGNS: Final = frozenset({"t", "s", "sig", "signature", "hmac", "hash", "hm", "verify"})
_TIME: Final = re2.compile("1[6-9][0-9]{8}")
"""Until when a link is good, in seconds since 1970, and what signs one."""
_PROOF: Final = re2.compile(
    r"/(?:\.well-known/acme-challenge"
    r"|(?:[\w-]{1,40}/){0,4}(?:(?:re)?set|verify|confirm|activate|accept|magic|unsubscribe|recover|invitations?|invite|join)"
    r"(?:[_-](?:e?-?mail|password|account|link|address|registration))?)/([A-Za-z0-9_-]{43})/?"
)
"""Path whose end proves who holds a name (RFC 8555, 8.3) or a mailbox: as long as a digest."""
_URL_SAFE: Final = str.maketrans("+/-_", "xxxx")
_TOKEN: Final = re2.compile(r"[A-Za-z0-9+_=-]{24,}")
_ENDING: Final = re2.compile(r"\.[^.]{0,16}$")
"""What a file's name ends with."""
_DRAWN: Final = 40
"""Characters of a part of a URL that may be an id, drawn at random."""
_DRAWN_BITS: Final = 4.4
_LINK: Final = re2.compile(r"https?://[^\s<>\"'`)\]}|\\]{8,}")
_LINKS: Final = 64
"""Links of one text that are read."""
_CASES: Final = 64
"""Letters whose cases may be bits, where they change more often than words begin."""
_PARTING: Final = re2.compile(r"[_+-]")
_PART: Final = re2.compile(r"[A-Za-z]?[a-z]+|[A-Z]+|[0-9]+")
"""Words and numbers between hyphens, underscores and plus signs: those of a page's name."""
_WORDS: Final = re2.compile(r"[^\W\d_]{2,}[ ,;:.]+[^\W\d_]{2,}[ ,;:.]+[^\W\d_]{2,}")
_TWICE: Final = 16
"""Characters of a coding inside a coding, at least."""
_JSON_CODED: Final = ("ey", "Wy", "Wz")
"""How an object or a list begins in base 64."""
_CURSOR: Final = 160
"""Characters of the longest place in a list of pages that an API gives."""


def leads_on(url: str) -> bool:
    """Return whether all that a URL has coded twice are whole URLs, where somebody is led on.

    A login leads back to a page, whose own parameter names another page.
    """
    try:
        bare = urlsplit(url)._replace(query="").geturl()
        inner = [value for _, value in parse_qsl(urlsplit(url).query)]
        further = [value for one in inner for _, value in parse_qsl(urlsplit(one).query)]
        rest = [urlsplit(one)._replace(query="").geturl() for one in inner]
    except ValueError:
        return False
    led = [one for one in further if one.startswith(("https://", "http://"))]
    twice = [one for one in (bare, *rest) if "%" in one]
    return not twice and bool(led) and not any("%" in one for one in further)


def url_hides_data(url: str) -> bool:
    """Return whether a part of a URL is a sentence in a coding, or longer than any id.

    What a destination can be told in a coding of one's own is bounded by a ``capacity`` rule.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    whole = parse_qsl(parts.query, keep_blank_values=True)
    named = without_protocols(parts, whole)
    if len(named) < len(whole):
        parts = parts._replace(query=urlencode(named))
        url = parts.geturl()
    host = parts.hostname or ""
    if draws_what_it_is_told(host):
        return False
    if _tells(url, parts):
        return True
    digests = _digests(dict(whole))
    named = [one for one in named if not (is_own_parameter(host, *one) or is_click(*one))]
    values = [value for _, value in named]
    drawn = [value for name, value in named if not (name in digests and _is_digest(value))]
    # What a service issued it tells nobody else.
    path = without_own_ids(parts, [unquote(part) for part in parts.path.split("/") if part])
    if _PROOF.fullmatch(parts.path):
        path = path[:-1]
    tokens = [
        token
        for piece in (*path, *drawn)
        for token in _TOKEN.findall(_ENDING.sub("", piece) if piece.count(".") == 1 else piece)
    ]
    leaves = [leaf for token in tokens for leaf in _leaves(token)]
    long = not only_delivers(host) and any(map(_is_drawn, leaves))
    return long or _is_coded_sentence((*tokens, *leaves, *values))


def _leaves(token: str) -> Iterator[str]:
    """Yield names and values of the JSON in base 64 that a token is, as cursors of pages are.

    A token of another kind is its own leaf, and so is JSON with more in it than a cursor has.
    """
    coded = token.startswith(_JSON_CODED) and len(token) <= _CURSOR
    texts = [text for text in decoded(token) if text[:1] in "{["] if coded else []
    try:
        documents = [json.loads(text) for text in texts]
    except ValueError:
        documents = []
    if not documents:
        yield token
    for document in documents:
        yield from (item.text for item in argument_texts(document))


def links_hide_data(text: str) -> bool:
    """Return whether a URL inside a text says a sentence in a coding, to whoever serves it.

    How long its parts are says nothing here: links that people pass on have long ids.
    """
    if "://" not in text:
        return False
    for link in islice((found.group() for found in _LINK.finditer(text)), _LINKS):
        try:
            parts = urlsplit(link)
            values = [value for _, value in parse_qsl(parts.query)]
        except ValueError:
            continue
        if _tells(link, parts) or _is_coded_sentence((*parts.path.split("/"), *values)):
            return True
    return False


def _is_coded_sentence(words: tuple[str, ...]) -> bool:
    """Return whether one of some words is a sentence in a coding that programs exchange.

    What is coded twice need not be one: no program does that to its own ids.
    """
    read = [text for word in words for text in decoded(word)]
    return any(_WORDS.search(text) or _is_coded_again(text) for text in read)


def _is_coded_again(text: str) -> bool:
    return len(text) >= _TWICE and _TOKEN.fullmatch(text) is not None and any(decoded(text))


def _tells(url: str, parts: SplitResult) -> bool:
    """Return whether the parts of a URL, each or joined, say a sentence that somebody disguised."""
    segments = [unquote(part) for part in parts.path.split("/") if part]
    named = parse_qsl(parts.query, keep_blank_values=True)
    rows = (segments, [value for _, value in named], [name for name, _ in named])
    whole = ["".join(row) for row in rows if len(row) > 1]
    pieces = dict.fromkeys((*members(url), *whole, unquote(parts.path)))
    return any(
        is_turned_sentence(text) or any(_says(spelt) for spelt in respelt(text)) for text in pieces
    )


def _says(text: str) -> bool:
    return _WORDS.search(text) is not None or is_turned_sentence(text)


def _digests(said: dict[str, str]) -> frozenset[str]:
    """Return the parameters of a query that may be as long as a SHA-256, given all that it has.

    What a request of OAuth and its answer draw once (RFC 6749, 4.1; OpenID Connect, 3.1) as well,
    and what signs a link that ends.
    """
    names = said.keys()
    asks, answers = names >= {"response_type", "client_id"}, names >= {"code", "state"}
    ends = any(_TIME.fullmatch(said[name]) for name in _ENDS & names)
    drawn = {"state", "nonce"} if asks else {"state"} if answers else set()
    return _DIGESTS | drawn | (_SIGNS if ends else set())


def _is_digest(value: str) -> bool:
    """Return whether a value is as long as a SHA-256 in base 64."""
    bare = value.rstrip("=").translate(_URL_SAFE)
    return len(bare) == _DIGEST64 and bare.isascii() and bare.isalnum()


def _is_drawn(token: str) -> bool:
    kinds = (
        any(map(str.isupper, token)),
        any(map(str.islower, token)),
        any(map(str.isdigit, token)),
    )
    drawn = "".join(part for part in _PARTING.split(token) if not _PART.fullmatch(part))
    cases = [letter.isupper() for letter in drawn if letter.isalpha()]
    turns = sum(a != b for a, b in pairwise(cases))
    if len(cases) >= _CASES and turns * 3 >= len(cases):
        return True
    return len(drawn) >= _DRAWN and all(kinds) and entropy(drawn) >= _DRAWN_BITS
