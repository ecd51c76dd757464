"""Exfiltration channels in arguments of tools that do not send: URLs, shares, SQL.  Pure: no I/O.

To read a URL is to tell its host the path and the query, a share is a host, and some statements
of SQL run a program, write a file or open a connection.  A name in a search is none of that: for
tools that read, only what their server would connect to counts; others are asked for mailboxes too.
"""

from __future__ import annotations

import re
import tomllib
from html import unescape
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import re2

from guard.core.bounded_cache import bounded_cache
from guard.core.model import Destination, Json
from guard.values.canonical import (
    URL_LIMIT,
    canonical_host,
    is_ip,
    malformed,
    read_destinations,
    read_mail_uri,
    read_mailboxes,
    read_plain,
    unquoted,
)
from guard.values.capacity import registered
from guard.values.decoder import FILE_ENDINGS, Budget, destination_readings
from guard.values.finding import find_destinations, find_values
from guard.values.statements import statements_in, writes_values

if TYPE_CHECKING:
    from collections.abc import Iterator


_WORDS: Final[dict[str, frozenset[str]]] = {
    name: frozenset(words.split())
    for name, words in tomllib.loads(
        files(__package__).joinpath("argument_words.toml").read_text(encoding="utf-8")
    ).items()
}
"""Words by which arguments are read, by what they say."""
DECODED: Final = 4096
"""Characters of one word in which a disguised URL is looked for."""

_FILE_URL: Final = re.compile(
    r"\bfile:(?:[/\\]{4}|[/\\]{2})(?!localhost\b|[A-Za-z]:)([\w.-]{2,253})", re.IGNORECASE
)
_SHARE: Final = re.compile(
    r"(?:\A|[\s'\"=(,]|(?<!\bhttp)(?<!\bhttps):(?=\\))(?:\\{2,4}(?:[?.]\\{1,2}UNC\\{1,2})?|/{2,4})([\w-]{1,63}(?:\.[\w-]{1,63}){0,8})"
    r"(?:@\w{1,8}){0,2}[\\/]"
)
_MOUNTED: Final = re.compile(
    r"(?:\A|[\s'\"=(<>])/(?:dev/(?:tcp|udp)|net)/([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})(?=[/\s]|\Z)"
)
"""Paths by which a shell connects to a host, and an automounter mounts one."""
_COPY: Final = re.compile(r"[\w.-]{1,64}@([\w-]{1,63}(?:\.[\w-]{1,63}){1,8}):(?!//)(\S{0,512})")
_MODULE: Final = re.compile(
    r"([\w-]{1,63}(?:\.[\w-]{1,63}){0,7}\.[A-Za-z][\w-]{1,62}):(?::\S|/(?!/))\S*"
)
"""A host with a module (rsync) or an exported path (NFS) behind it."""
_QUERIED: Final = re.compile(r"\bdns:/{0,2}([\w-]{1,63}(?:\.[\w-]{1,63}){1,8})", re.IGNORECASE)
_CALLED: Final = re.compile(
    r"\b(?:sips?|xmpp|jabber|im|skype|callto|tel|sms|smsto|mms|matrix):(?!//)[\w+][\w.+@/:-]{2,255}",
    re.IGNORECASE,
)
"""Address of a call or message: a program that opens it calls or writes to a recipient."""
_SERVED: Final = re.compile(
    r"(?:www\.)((?:[\w-]{1,63}\.){1,8}[A-Za-z][\w-]{1,62})(?::\d{1,5})?(?:[/?]\S*)?"
    r"|((?:[\w-]{1,63}\.){1,8}[A-Za-z][\w-]{1,62}):\d{1,5}(?:[/?]\S*)?"
    r"|((?:[\w-]{1,63}\.){1,8}[A-Za-z][\w-]{1,62})/[^\s?]*\?\S*=\S*"
    r"|//((?:[\w-]{1,63}\.){1,8}[A-Za-z][\w-]{1,62})"
    r"|(\[[0-9a-f:.]{3,45}\])(?::\d{1,5})?(?:[/?]\S*)?",
    re.IGNORECASE,
)
"""A word that is a host with a port, a query or two slashes, or one that begins as those of web
sites do; a bracketed address."""
_MAILED: Final = re.compile(r"\bmailto:[^\s\"'<>]{3,512}", re.IGNORECASE)
_LOOSE: Final = re.compile(
    r"(?:https?|wss?|ftps?):(?!//)[/\\]*[\w\[]|(?:gopher|ldaps?|sftp|tftp|telnet):[/\\]?[\w-]+\.\w",
    re.IGNORECASE,
)
"""A URL that some clients forgive."""
_STRIPPED: Final = re.compile(r"[\t\r\n\x00]")
_SIGNS: Final = re.compile(r"[%\\&=+]|[^\x00-\x7f]")
"""Characters of a disguise in one word."""
_SHORTEST_CODED: Final = 16
"""Characters of a word that may be a coding of the shortest URL."""
_GRANTED: Final = re.compile(r"[:=]\s{0,4}([\w.+-]{1,64}@[A-Za-z][\w-]{0,62})\b(?![.@])")
"""A mailbox behind a role or a name, also where its host has no dot."""
_NO_DOMAIN: Final = tuple(
    ending for ending in FILE_ENDINGS if ending not in {".md", ".zip", ".py", ".sh", ".rs"}
)
"""Endings of files that are not top-level domains: hosts outside do not have them."""


_VERSIONED: Final = re.compile(r"[\w./@-]{1,128}@\d{1,9}(?:\.\d{1,9}){0,2}", re.ASCII)
"""A package with its version, which is not a host."""
_CONCATENATED: Final = re2.compile(r"'\s*(?:\|\||\+)\s*[NnEe]?'")


def is_address(text: str) -> bool:
    """Return whether a text says nothing but an address, or a list of mailboxes and URLs.

    A tool may fetch it, or notify it.  A sentence with an address in it is content.
    """
    text = text[:URL_LIMIT].strip()
    if _VERSIONED.fullmatch(text) is not None:
        return False
    if "@" not in text and ":" not in text and "//" not in text and "\\" not in text:
        return len(text) >= _SHORTEST_CODED and len(text.split()) == 1
    if len(text.split()) == 1:
        return True
    found = read_destinations(text)
    return bool(found) and all(one.kind in {"mail", "url"} for one in found)


def channels_in(text: str, *, mailboxes: bool, name: str = "") -> Iterator[Destination]:
    """Yield the destinations to which a text in an argument can carry data.

    Args:
        text: of one argument.
        mailboxes: whether a mailbox in it is one, as in every tool that does not only read; in one
            that reads it is where the argument says that somebody is to get something, and where
            the text writes values.
        name: of the argument.
    """
    if not mailboxes and writes_values(text):
        mailboxes, text = True, _CONCATENATED.sub("", text)
    mailboxes = mailboxes or hands_over(name)
    for reading in _readings(text):
        yield from _outside(reading, mailboxes=mailboxes and (reading is text or "@" not in text))
        yield from _places(reading)
    yield from statements_in(text, name)


def _outside(text: str, *, mailboxes: bool) -> Iterator[Destination]:
    """Yield the URLs of hosts in a network, and mailboxes.

    Of a reading they count only where the text has no ``@``: backwards, any mailbox is another one.
    """
    for found in find_destinations(text):
        is_mail = mailboxes and found.kind == "mail" and not found.host.endswith(_NO_DOMAIN)
        if is_mail or (found.kind == "url" and _is_remote(found)):
            yield found


def _readings(text: str) -> Iterator[str]:
    """Yield a text, and what a word is where it is read as an address."""
    yield text
    if len(text) > DECODED:
        return
    if _STRIPPED.search(text) is not None:
        # Clients drop these from an address.
        yield _STRIPPED.sub("", text)
    word = len(text.split()) == 1
    if word and (len(text) >= _SHORTEST_CODED or _SIGNS.search(text) is not None):
        yield from destination_readings(text, Budget(DECODED))


def _is_remote(url: Destination) -> bool:
    scheme = url.canonical.partition(":")[0].rpartition("+")[0] or url.canonical.partition(":")[0]
    return scheme in _WORDS["network_schemes"] or "." in url.host or ":" in url.host


def _hosts(name: str, *, but: tuple[str, ...] = ()) -> Iterator[Destination]:
    """Yield the host of a name that is one and has none of some endings."""
    host = canonical_host(name)
    if host is not None and not host.endswith(but):
        yield Destination("ip" if is_ip(host) else "host", host, host)


def _places(text: str) -> Iterator[Destination]:
    """Yield hosts of shares and of copies, and a word that is a URL to some clients."""
    if "//" in text or "\\" in text:
        for found in (*_FILE_URL.finditer(text), *_SHARE.finditer(text)):
            dotted = "." in found[1].strip(".") and not found[1].endswith(_NO_DOMAIN)
            if dotted or "\\" in found[0] or "file:" in found[0].lower():
                yield from _hosts(found[1])
    for found in _MOUNTED.finditer(text) if "/net/" in text or "/dev/" in text else ():
        yield from _hosts(found[1], but=_NO_DOMAIN)
    if ":" in text:
        yield from _asked_of(text)
    word = text.strip()
    if len(word) <= URL_LIMIT and len(word.split()) == 1:
        yield from _of_word(word)


def _asked_of(text: str) -> Iterator[Destination]:
    """Yield whose names a text has looked up, and to whom it opens a mail."""
    folded = text.lower()
    for found in _QUERIED.finditer(text) if "dns:" in folded else ():
        yield from _hosts(found[1])
    for found in _CALLED.finditer(text):
        yield Destination("handle", found[0].lower())
    for found in _MAILED.finditer(text) if "mailto:" in folded else ():
        yield from read_mail_uri(unquote(found[0]))


def _of_word(word: str) -> Iterator[Destination]:
    """Yield the host of a copy, and a word that is a URL to some clients."""
    if (module := _MODULE.fullmatch(word)) is not None and not module[1].endswith(_NO_DOMAIN):
        yield from _hosts(module[1])
    if (served := _SERVED.fullmatch(word)) is not None:
        # ``main.rs:12`` is a line of a file; no line has a path behind it.
        files = _NO_DOMAIN if "/" in word else FILE_ENDINGS
        yield from _hosts(next(filter(None, served.groups())), but=files)
    if (copied := _COPY.fullmatch(word)) is not None:
        yield read_plain(f"{copied[1]}/{copied[2].lstrip('/')}")
    if _LOOSE.match(word) is not None:
        yield malformed(word)
    scheme = word.partition("://")[0].lower()
    if scheme in _WORDS["network_schemes"] and "://" in word:
        yield from (d for d in find_destinations(word) if d.kind == "malformed")


_PICTURE: Final = re2.compile(
    r"(?ims)!\[[^\]]*\]\s*\(\s*<?([^\s)>]+)|^[ \t]{0,3}\[[^\]]+\]:\s*<?([^\s>]+)"
)
"""A picture of Markdown, and where it is named when it stands elsewhere."""
_ELEMENT: Final = re2.compile(
    r"(?is)<(?:img|image|picture|source|iframe|frame|embed|object|video|audio|track|link|script"
    r"|input|body|table|td|th|tr|div|span|svg|use|style|base|meta)\b([^>]*)"
)
_LOADS: Final = re2.compile(
    r"(?is)\b(?:src|srcset|href|data|poster|background|xlink:href|lowsrc|dynsrc|content)\s*=\s*"
    r"(?:\"([^\"]*)|'([^']*)|([^\s\"'>]+))"
)
_STYLE: Final = re2.compile(r"(?is)(?:\burl\(|@import)\s*[\"']?\s*([^\s\"')]+)")


def loaded_in(text: str) -> Iterator[Destination]:
    """Yield what a program that shows a text loads by itself: pictures, frames, style sheets.

    Whoever reads it tells their hosts the path and the query, without a click.
    """
    plain = unescape(text) if "&" in text else text
    found: list[str] = []
    if "![" in plain:
        found += ["".join(parts) for parts in _PICTURE.findall(plain)]
    if "<" in plain:
        for attributes in _ELEMENT.findall(plain):
            found += ["".join(parts) for parts in _LOADS.findall(attributes)]
        found += _STYLE.findall(plain)
    for place in dict.fromkeys(part for one in found for part in one.replace(",", " ").split()):
        url = f"https:{place}" if place.startswith("//") else place
        yield from (d for d in find_destinations(url) if d.kind == "url")


_LABELLED: Final = re.compile(r"<([^<>|\s]{1,2048})\|([^<>|]{0,2048})>")
"""A link with its label, as chat services write it."""


def linked_in(text: str) -> Iterator[Destination]:
    """Yield what a service loads for the previews of the links in a text.

    A name without scheme, path and query counts only below the name that somebody registered: what
    is registered carries no data of the text, and ``setup.py`` is not a link.
    """
    plain = _LABELLED.sub(r"<\1> \2", unescape(text) if "&" in text else text)
    yield from (d for d in find_destinations(plain) if d.kind == "url")
    for value in find_values(plain, disguised=False).plain:
        kind, _, place = value.partition(":")
        host = re.split("[:/?#]", place, maxsplit=1)[0]
        if kind == "host" and (place != host or registered(host) != host):
            yield Destination("host", place, host)


def receivers_in(text: str) -> Iterator[Destination]:
    """Yield the mailboxes and URLs in a text that is said to name none, disguised ones as well."""
    for reading in _readings(text):
        yield from _outside(reading, mailboxes=reading is text or "@" not in text)
        for granted in _GRANTED.finditer(reading):
            yield from read_mailboxes(granted[1])
    if (climbed := climbing(text)) is not None:
        yield climbed


EVERYBODY: Final = Destination("handle", "everybody")
"""Everybody who has the link, or looks."""
_OPEN_LENGTH: Final = 64
_WORD: Final = re.compile(r"[A-Za-z]+")
_ORDERS: Final = re.compile(r"make|set|share|allow|enable")
_OPENS: Final = re.compile(
    r"(?:is|make|set|share|allow|enable)?(?:public|publicly|anonymous|anyone|everyone|linksharing|withlink|linkaccess|world|link"
    r"|external|externally|unlisted)"
    r"(?:access|link|read|readable|view|viewable|share|sharing|canview|canedit|canread)*"
)
_CLOSES: Final = re.compile(
    r"(?:is|requires?|needs?)?(?:private|restrict|restricted|signin|login|internal)(?:only|required)?"
)
_EVERYBODY: Final = re.compile(r"(?:anyone|anybody|everyone|everybody|world)(?:access|role|can)?")
"""Names of members that say for whom, and have what for."""
_WIDE_WORDS: Final = 4
_SHARES: Final = re.compile(
    r"(?:is|link|general|default)?(?:shared?|sharing|visibility|visible|access|audience|exposure)(?:with|to|by|level|type|scope)?"
)
_SENT: Final = re.compile(
    r"(?:auto|also|and|then|do|should|is|to|be|scheduled?|delayed){0,4}"
    r"(?:send|sent|sending|submit|publish|post|dispatch|deliver|transmit|scheduled?|queued?|release)"
    r"(?:now|it|mail|email|message|draft|immediately|directly|instantly|mode|on|save|saved|saving|create"
    r"|creation|created|and|when|as|upon|reply|aftersave|aftersaving|aftercreation){0,4}"
    r"((?:after|at|for|time|date|later|on){1,2})?"
)
"""Names of members by which a draft is sent as well, and of those that say when."""
_KEPT: Final = re.compile(
    r"(?:is|as|save|keep|create|only|just|a){0,4}(?:drafts?|unsent)(?:only|mode)?"
)
"""Names of members by which it is not, where they are on."""
_NAME_LENGTH: Final = 64
"""Characters of the longest name of a member that is read."""
_CONNECTED: Final = _WORDS["hosts"] - {"url", "uri", "href"}
"""Names that a saved text has no reason to have."""
_DOMAIN: Final = re.compile(r"\bdomain\s?[:=]\s?([\w.-]{4,253})", re.IGNORECASE)
"""Everybody at a host, as services of documents and clouds write who may see something."""
_NAME_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def opened_to_everybody(text: str, *, whole: bool) -> bool:
    """Return whether an argument says that something is for everybody.

    Args:
        text: the argument.
        whole: whether nothing else may be in it: text of any kind can stand in the argument.
    """
    if len(text) > _OPEN_LENGTH:
        return False
    spelt = [word.lower() for word in _WORD.findall(text)]
    words = {*spelt, "".join(spelt)}
    return not _WORDS["open"].isdisjoint(words) and (
        not whole or {*spelt} <= _WORDS["open"] | _WORDS["beside_open"]
    )


def opens(name: str, *, value: bool | str) -> bool:
    """Return whether a switch makes something public: ``public`` on, ``private`` off.

    A text may stand for a switch, or say among whom something is shared (``visibility: internet``).
    """
    if isinstance(value, str) and len(value) > _OPEN_LENGTH:
        return False
    squeezed = "".join(_WORD.findall(name)).lower()
    if isinstance(value, str):
        said = value.strip().lower()
        if said in _WORDS["yes"] and (_OPENS.fullmatch(squeezed) or _SHARES.fullmatch(squeezed)):
            return True
        for_all = _EVERYBODY.fullmatch(squeezed) is not None and said not in _WORDS["no"] | {""}
        return for_all or _is_wide(name, said)
    return (_OPENS if value else _CLOSES).fullmatch(squeezed) is not None


def orders(name: str) -> bool:
    """Return whether a switch's name says that its call opens something: `make_public`."""
    return _ORDERS.match("".join(_WORD.findall(name)).lower()) is not None


def _is_wide(name: str, said: str) -> bool:
    words = {*_WORD.findall(said)}
    if _WORDS["wide"].isdisjoint(words) or len(words) > _WIDE_WORDS:
        return False
    parts = {part.lower() for part in _NAME_PART.findall(name)}
    return not (_WORDS["access"] | _WORDS["sharing"]).isdisjoint(parts)


def opens_to_all(name: str, text: str) -> bool:
    """Return whether a text opens what it is about, by its member's name or by its own words."""
    return opens(name, value=text) or opened_to_everybody(text, whole=True)


def named_in(name: str, text: str, *, receivers: bool) -> tuple[Destination, ...]:
    """Return whom an argument names whose own name says that it names somebody.

    A name makes nothing harmless; it can only make more of a text a destination: a name in a
    ``bcc_list``, a bare host in a ``webhook``, ``domain:HOST`` in a ``grant``.

    Args:
        name: of the member.
        text: its value, in which no address stands in clear.
        receivers: whether names of people count, as in a send.
    """
    parts = {part.lower() for part in _NAME_PART.findall(name)}
    if receivers and (
        not _WORDS["receivers"].isdisjoint(parts) or len(_WORDS["gives"] & parts) > 1
    ):
        return read_destinations(text)
    if not _WORDS["access"].isdisjoint(parts) and (found := _DOMAIN.search(text)) is not None:
        text = found[1]
    elif len(text.split()) != 1 or len(text) > URL_LIMIT:
        return ()
    elif _WORDS["hosts"].isdisjoint(parts) and not (
        receivers and not _WORDS["relays"].isdisjoint(parts)
    ):
        if not hands_over(name):
            return ()
        named = read_destinations(text)
        return tuple(d for d in named if d.kind in {"host", "ip"} or d.canonical[:1] == "+")
    return tuple(d for d in read_destinations(text) if d.kind in {"host", "ip"})


def hands_over(name: str) -> bool:
    """Return whether an argument's name says that whoever it names is to get something."""
    parts = [part.lower() for part in _NAME_PART.findall(name)]
    if not _WORDS["hands_over"].isdisjoint(parts):
        return True
    if len(parts) == 1:
        return False
    return any(
        (second in _WORDS["towards"] and first in _WORDS["giving"])
        or (first in _WORDS["adding"] and second in _WORDS["receivers"])
        for first, second in pairwise(parts)
    )


@bounded_cache(1024)
def tells(name: str) -> bool:
    """Return whether an argument's name says that its value leaves with, or opens, what is saved.

    A webhook beside a note is told of it, and a share is no longer inside; the text of a note may
    be about anybody.
    """
    if len(name) > _NAME_LENGTH or hands_over(name):
        return len(name) <= _NAME_LENGTH
    parts = [part.lower() for part in _NAME_PART.findall(name)]
    squeezed = "".join(_WORD.findall(name)).lower()
    return (
        not (_WORDS["access"] | _CONNECTED | _WORDS["sharing"]).isdisjoint(parts)
        or any(
            verb in _WORDS["giving"] and place in _WORDS["places"]
            for verb, place in pairwise(parts)
        )
        or len(_WORDS["gives"].intersection(parts)) > 1
        or any(form.fullmatch(squeezed) for form in (_OPENS, _CLOSES, _SHARES, _EVERYBODY))
    )


def sends(name: str, value: Json) -> bool:
    """Return whether a member of a draft says that it is sent: ``send: true``, ``draft: no``."""
    if len(name) > _NAME_LENGTH:
        return False
    squeezed = "".join(_WORD.findall(name)).lower()
    said = value.strip().lower() if isinstance(value, str) else value
    if _KEPT.fullmatch(squeezed) is not None:
        return said in _WORDS["no"] if isinstance(said, str) else said is False or said == 0
    if (sent := _SENT.fullmatch(squeezed)) is not None:
        if isinstance(said, dict):
            return bool(said)
        is_time = sent[1] is not None and bool(said) and said not in _WORDS["no"]
        return is_time or (
            said in _WORDS["now"] if isinstance(said, str) else said is True or said == 1
        )
    does = squeezed in _WORDS["does"] and isinstance(said, str) and len(said) <= _OPEN_LENGTH
    return does and not _WORDS["sends"].isdisjoint(_WORD.findall(said))


def climbing(text: str) -> Destination | None:
    """Return the target of a relative path that leaves its base directory (``..``); else None."""
    try:
        *_, path = unquoted(text)
    except ValueError:
        return malformed(text)
    if ".." not in (path := path.replace("\\", "/")) or "://" in path:
        return None
    if len(path) > DECODED or len(path.split()) > 1:
        return None
    kept: list[str] = []
    for part in path.split("/"):
        if part == ".." and (not kept or kept[-1] == ".."):
            kept.append(part)
        elif part == "..":
            kept.pop()
        elif part not in {"", "."}:
            kept.append(part)
    return Destination("handle", "/".join(kept).lower()) if kept[:1] == [".."] else None
