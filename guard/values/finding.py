"""Values that can be a destination or an amount, found anywhere in a text, in one comparable form.

Pure: no I/O.  :func:`find_destinations` finds addresses in arguments that the policy does not
declare.  A value is a short text ``kind:canonical``: :func:`keys_of` gives the values under which
a destination is looked up, :func:`find_values` those that a text contains, and both use the
canonical forms of :mod:`guard.values.canonical`, so a look-up can only miss what was never
written.  Every expression is anchored on a literal or guarded by a look-behind and has bounded or
possessive repetition: work is linear in the text and bounded per text; what is beyond a bound is
*overflow*.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import chain, filterfalse, islice
from typing import TYPE_CHECKING, Final

import re2
from stdnum import bitcoin, iban

from guard.core.bounded_cache import bounded_cache
from guard.core.model import Destination
from guard.core.work import STRING, spend
from guard.values.canonical import (
    CONVERSATION,
    REST_SIGN,
    URL_LIMIT,
    canonical_host,
    canonical_ip,
    encapsulates,
    is_ip,
    malformed,
    read_destinations,
    read_mailboxes,
    read_url,
    unslashed,
    untagged,
)
from guard.values.decoder import (
    FILE_ENDINGS,
    Budget,
    destination_readings,
    odd_words,
    skeleton,
    words_of,
    words_with,
)
from guard.values.prefilter import Prefiltered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
_CHANGED: Final = re2.compile(f"[{''.join(map(chr, _FOLDED))}]".encode())

_AT: Final = re.compile(r"@(?=\[|[\w-]{1,63}\.[\w-])")
_LOCAL: Final = re.compile(r"[\w.+-]*+")
_ROUTED_LOCAL: Final = re.compile(r"[\w.+=#-]*+")
_ASSIGNED: Final = re.compile(r"\A(?:\w+=)+")
_DOMAIN: Final = re.compile(r"\[[0-9A-Za-z:.]{2,64}\]|[\w-]{1,63}(?:\.[\w-]{1,63}){1,126}+")
_LOCAL_LIMIT: Final = 64
_DOT_INSIDE: Final = re.compile(r"\.\S")
_SCHEME_END: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}\Z")
_URL_REST: Final = re.compile(rf"[^\s\x00-\x1f\x7f<>\"`]{{1,{URL_LIMIT + 1}}}+")
_AUTHORITY: Final = re.compile(r"[^\s/?#<>\"`]{0,512}+")
_TRAILING: Final = ".,;:!?'\")]}*_|"
_OCTET: Final = r"(?:0[xX][0-9A-Fa-f]{1,8}|[0-9]{1,11})"
_MAYBE_IPV4: Final = re.compile(r"\.[0-9]")
_MAYBE_IPV6: Final = re.compile(r":(?::|(?:[0-9A-Fa-f.]{1,44}+:){5})")
"""Part of each literal that is quick to look for: the engine skips to the first letter."""
_IPV4: Final = Prefiltered(
    re.compile(rf"(?<![\w.])(?=[0-9])(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|\.\w)", re.ASCII),
    "0-9A-Fa-fxX.",
    r"(?:[0-9][0-9A-Fa-fxX]{0,10}\.){3}[0-9]",
)
_IPV6: Final = Prefiltered(
    re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]{0,4}:)[0-9A-Fa-f:.]{2,45}+(?![\w:])"),
    "0-9A-Fa-f:.",
    r":(?::|(?:[0-9A-Fa-f.]{1,44}:){5})",
)
"""Literals that may be addresses, and only those: see :func:`_maybe_ipv6`."""
_MANY_COLONS: Final = 3
_ALL_COLONS: Final = 7


def find_destinations(text: str) -> tuple[Destination, ...]:
    """Return the mail addresses, URLs and IP addresses that occur in a text, each once.

    Bare host names, handles and short forms of IP addresses are not looked for.  What has the
    shape of an address and cannot be read one way only is malformed.  At most FIND_LIMIT + 1;
    a text with more, or with more than CANDIDATE_LIMIT candidates, gets a malformed destination.
    """
    if "." not in text and ":" not in text and "@" not in text and text.isascii():
        return ()
    if not text.isascii() and _CHANGED.search(text.encode("utf-8", "replace")) is not None:
        text = text.translate(_FOLDED)
    if "@thread." in text or "@unq.gbl." in text:
        text = CONVERSATION.sub(" ", text)
    found: dict[Destination, None] = {}
    for count, candidate in enumerate(_candidates(text)):
        if count >= CANDIDATE_LIMIT or len(found) >= FIND_LIMIT:
            found[malformed("more destinations than the limit")] = None
            break
        if candidate is not None:
            found[candidate] = None
    return tuple(found)


def names_no_host(text: str) -> bool:
    """Return whether a text lacks every sign without which there is no host or mail address.

    A dot at the end of a sentence is none.
    """
    return (
        ":" not in text
        and "@" not in text
        and "//" not in text
        and "&#" not in text
        and text.isascii()
        and _DOT_INSIDE.search(text) is None
    )


def _candidates(text: str) -> Iterator[Destination | None]:
    spans: list[tuple[int, int]] = []
    if "://" in text:
        yield from _urls(text, spans)
    if "@" in text:
        yield from _mails(text, spans)
    if _MAYBE_IPV4.search(text) is not None or _MAYBE_IPV6.search(text) is not None:
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
        yield from _mail(text, position, domain[0])


def _mail(text: str, position: int, domain: str) -> tuple[Destination | None, ...]:
    head = text[max(0, position - _LOCAL_LIMIT - 2) : position]
    run = _LOCAL.match(head[::-1])
    local = run[0][::-1].lstrip(".-") if run else ""
    before = head[: len(head) - len(local)][-1:]
    if before in {"=", "#"}:
        whole = not text[position + 1 + len(domain) :].strip()
        if routed := _routed(head, domain, whole=whole):
            return routed
    if not local:
        # `"quoted"@host` is an address that is not read; `@host` after a space is a mention.
        return (malformed(f"{head}@{domain}") if before in {'"', ")", ">"} else None,)
    if before in {"%", "!"} or len(local) > _LOCAL_LIMIT:
        return (malformed(f"{head}@{domain}"),)
    return read_mailboxes(f"{local}@{domain.rstrip('-_')}")


def _routed(head: str, domain: str, *, whole: bool) -> tuple[Destination, ...]:
    """Return the mailboxes of an address with another one in its local part; else nothing.

    Args:
        head: the text before its `@`.
        domain: behind it.
        whole: whether the text ends with it; inside one, `name=` may be an assignment.
    """
    run = _ROUTED_LOCAL.match(head[::-1])
    local = run[0][::-1].lstrip(".-=#") if run else ""
    if not whole or len(local) < len(head.lstrip()):
        local = _ASSIGNED.sub("", local)
    if len(local) > _LOCAL_LIMIT:
        return (malformed(f"{local}@{domain}"),) if encapsulates(local.lower()) else ()
    found = read_mailboxes(f"{local}@{domain.rstrip('-_')}")
    return found if len(found) > 1 else ()


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
    """Return true unless it is a time of day or a name in a program such as ``ab::cd``."""
    if literal.count(":") >= _MANY_COLONS:
        return "::" in literal or literal.count(":") >= _ALL_COLONS - 1
    return "::" in literal and any(char.isdigit() for char in literal)


VALUE_LIMIT: Final = 2000
"""Values taken from one text."""
PIECE: Final = 32 * 1024
OVERLAP: Final = 512
"""A text is looked through in pieces, which overlap so that no value is cut in two unseen."""
VIEWED_LIMIT: Final = 64 * 1024
"""Characters of other readings that are looked through per text; as many as it has, of a longer."""
SAID: Final = "said:"
"""First part of the value that a sentence of a prompt is (see guard/provenance/saved_values.py)."""
LINK: Final = "link:"
"""First part of the value that one very link is."""
HANDLE: Final = "handle:"
"""First part of the value that an opaque handle is: a name, an account, a number, a channel."""
MESSAGE: Final = "message:"
"""First part of the value that a message's id is."""
LEAF_LIMIT: Final = 64
"""Characters of a whole string that counts as a handle (a name, a channel, an account)."""
URL_KEYS: Final = 8
"""Ancestor paths under which a URL is looked up."""

_HOST: Final = re.compile(
    r"(?:(?<![\w@./-])|(?<=[\s\"'(=]//))(?:[\w-]{1,63}\.){1,8}[^\W\d_][\w-]{1,62}(?![\w@])"
)
_PATH: Final = re.compile(rf"[/?][^\s\x00-\x1f\x7f<>\"`]{{1,{URL_LIMIT}}}+")
_NUMBER: Final = Prefiltered(
    re.compile(
        r"[\d+](?<![\w.][\d+])"
        r"(?:(?<=\+)\d[\d ().\u2010\u2011/-]{6,30}|(?<=\d)[\d ()/-]{4,30})\d(?!\w)"
    ),
    "0-9+ ().?/-",
    "[0-9?](?:[ ().?/-]*[0-9?]){5}",
)
"""Text with six digits."""
_ACCOUNT: Final = Prefiltered(
    re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}(?:[\s./|_-]?[A-Za-z0-9]{2,5}){2,9}(?![^\W_])"),
    r"A-Za-z0-9?\t-\r\x1c- ./|_-",
    "[A-Za-z]{2}[0-9?]{2}",
)
_ACCOUNT_START: Final = re.compile(r"(?<![^\W_])[A-Za-z]{2}\d{2}")
_SHORTEST_ACCOUNT: Final = 14
"""Letters and digits of the shortest account number that is written in groups (Norway has 15)."""
_ID: Final = re.compile(r"(?<![\w-])(?=[A-Za-z_-]{0,60}\d)[\w-]{6,128}(?![\w-])", re.ASCII)
_INNER_DOT: Final = re.compile(r"\..", re.DOTALL)
_HANDLE_SIGN: Final = re.compile(r"[#@]")
_HANDLE: Final = re.compile(r"[#@](?<![\w&/#@.][#@])\w[\w.-]{0,62}\w")
_REPOSITORY: Final = re.compile(
    r"(?<![^\W_]|[/.:-])[A-Za-z0-9][\w.-]{0,38}/[A-Za-z0-9][\w.-]{0,98}(?![\w/])"
)
_DIGIT: Final = re.compile(r"\d")
_SQUEEZED: Final = re.compile(r"[ ()/.\-]")
_BETWEEN: Final = re.compile(r"[\s./|_-]")
_BLANK: Final = re.compile(r"\s")
_GROUPED: Final = re.compile(r"\+?(?!-)[\d ()/.\-]{4,}|[a-z]{2}\d{2}[a-z0-9 -]{6,48}")
"""A number, or what may be one of an account; with a minus, it is another one."""
_DEFAULT_DIGITS: Final = 6
_PHONE: Final = re.compile(r"00[1-9]\d{6,14}")
_ETHEREUM: Final = re.compile(r"0x[0-9a-f]{40}")


@dataclass(slots=True)
class Found:
    """The values of a text."""

    plain: dict[str, None] = field(default_factory=dict)
    """Values as they stand; in order of occurrence."""
    disguised: dict[str, None] = field(default_factory=dict)
    """Found only in another reading of the text: they can taint, never attest."""
    overflow: bool = False
    """True if a bound cut something off."""


def handle_value(text: str) -> str:
    """Return the value of an opaque handle: in one case, accounts and phone numbers without gaps.

    INVARIANT (letters that look alike differ): an accent, or another script, is another handle.
    """
    folded = text.lower()
    if not folded.isascii():
        folded = unicodedata.normalize("NFC", folded)
    if _BLANK.search(folded) is not None:
        folded = " ".join(folded.split())
    if _GROUPED.fullmatch(folded) is not None:
        folded = _SQUEEZED.sub("", folded)
        if folded[:1] == "+":
            # The two ways to write a number of another country.
            folded = f"00{folded[1:]}"
    return f"{HANDLE}{folded.lstrip('#@')}"


def look_alikes(value: str) -> tuple[str, ...]:
    """Return the value of a handle as it looks, where that is another one: it can only taint."""
    if value.isascii():
        return ()
    found = handle_value(skeleton(value.removeprefix(HANDLE)))
    return (found,) if found != value else ()


def message_value(identifier: str) -> str:
    """Return the value of a message's id."""
    return f"{MESSAGE}{' '.join(identifier.split())}"


def link_values(destination: Destination) -> tuple[str, ...]:
    """Return the values of one very link, word for word: as written, and without ``https://``.

    Nothing but a URL or a host is one.
    """
    if destination.kind == "url":
        whole = LINK + unslashed(destination.canonical)
        return tuple(dict.fromkeys((whole, LINK + without_https(destination))))
    return (LINK + destination.canonical,) if destination.kind in {"host", "ip"} else ()


def keys_of(destination: Destination) -> tuple[str, ...]:
    """Return the values that would attest a destination, the exact one first.

    A URL with nothing behind its path is also attested by one above it: same scheme, host and
    port, and a path that is not empty; one of https by itself without the scheme.  A query may
    choose the account, and a mailbox's tag as well: each is attested by itself only.
    """
    kind, canonical = destination.kind, destination.canonical
    if kind == "mail":
        return (f"mail:{canonical}",)
    if kind in {"host", "ip"}:
        return (f"host:{canonical}",)
    if kind == "url":
        return _url_keys(destination)
    make = _MAKE_KEYS.get(kind)
    return () if make is None else make(canonical)


def _object_keys(text: str) -> tuple[str, ...]:
    """Return the values of an object in results: its whole text, and the values in it."""
    value = leaf_value(text)
    return () if value is None else (value, *find_values(text, disguised=False).plain)


_MAKE_KEYS: Final[Mapping[str, Callable[[str], tuple[str, ...]]]] = {
    "handle": lambda canonical: (handle_value(canonical),),
    "reply": lambda canonical: (message_value(canonical),),
    "object": _object_keys,
    "text": lambda canonical: (canonical,),
    "number": lambda canonical: (canonical,),
}
"""Functions from a canonical form to its values, by kind."""


def taints_of(destination: Destination) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return further values that taint a destination, and those that only make it suspicious.

    The former are its host, its look-alike in ASCII, and the mailbox with any other tag; the latter
    count where nothing else is known of it: the bare host of a mailbox.
    """
    if destination.kind in {"url", "host", "ip"}:
        return (f"any:{destination.host}",), ()
    if destination.kind in {"handle", "text"}:
        return look_alikes(keys_of(destination)[0]), ()
    if destination.kind != "mail":
        return (), ()
    mailbox, tagged = destination.canonical, "+" in destination.canonical
    base = untagged(mailbox) if tagged else mailbox
    plain = mailbox.isascii() and mailbox == mailbox.lower() and "xn--" not in destination.host
    alike = () if plain else _alike(destination)
    untags = (f"mail:{base}",) if base != mailbox else ()
    return (f"any:{base}", *untags, *alike), (f"any:{destination.host}",)


def _alike(destination: Destination) -> tuple[str, ...]:
    """Return the mailbox as it looks, where that is another one."""
    local = skeleton(destination.canonical.rpartition("@")[0])
    hosts = [destination.host]
    if "xn--" in destination.host:
        hosts.append(skeleton(_shown(destination.host)))
    exact = f"mail:{destination.canonical}"
    return tuple(v for v in (f"mail:{local}@{host}" for host in hosts) if v != exact)


def _shown(host: str) -> str:
    try:
        return host.encode("ascii").decode("idna")
    except UnicodeError:
        return host


def _url_keys(destination: Destination) -> tuple[str, ...]:
    exact = unslashed(destination.canonical)
    bare = exact.partition(REST_SIGN)[0].partition("?")[0]
    scheme, _, rest = bare.partition("://")
    authority, slash, path = rest.partition("/")
    origin = f"url:{scheme}://{authority}/"
    parts = path.split("/")
    steps = range(len(parts) - 1, 0, -1) if bare == exact else range(0)
    above = ["/".join(parts[:count]) for count in steps]
    found = [f"url:{exact}" if slash else origin]
    found += [f"{origin}{place}" for place in above if place.strip("/")]
    plain = (f"host:{without_https(destination)}",) if scheme == "https" else ()
    return (*found[:URL_KEYS], *plain)


def without_https(destination: Destination) -> str:
    """Return a URL as it is written where its scheme is left out."""
    return unslashed(destination.canonical).removeprefix("https://")


@bounded_cache(64)
def find_values(text: str, *, disguised: bool = True) -> Found:
    """Return the values in a text; whoever asks again is given the same object, not to be changed.

    Args:
        text: anything.
        disguised: whether other readings are looked through as well.
    """
    found = Found()
    if "@thread." in text or "@unq.gbl." in text:
        # One word, of which no reading is a mailbox.
        found.plain.update((handle_value(chat[0]), None) for chat in CONVERSATION.finditer(text))
        text = CONVERSATION.sub(" ", text)
    budget = Budget(max(VIEWED_LIMIT, len(text)))
    for start in range(0, len(text), PIECE - OVERLAP):
        piece = text[start : start + PIECE]
        spend(STRING + (2 * len(piece) if disguised else len(piece)))
        known: set[str] = set()
        _scan(piece, found.plain, found, known)
        if disguised:
            for reading in destination_readings(piece, budget):
                _scan(reading, found.disguised, found, known)
        if len(found.plain) + len(found.disguised) > VALUE_LIMIT:
            found.overflow = True
            break
    for value in found.plain:
        found.disguised.pop(value, None)
    found.overflow = found.overflow or budget.exceeded
    for values in (found.plain, found.disguised):
        while len(values) > VALUE_LIMIT:
            values.popitem()
    return found


def suspected_destinations(found: Found) -> Iterator[Destination]:
    """Yield what in a text may be a destination although it does not stand there as one.

    Left out is what stands in clear text as a mail address or a URL: that is a destination.  Left
    out as well are names of files, which look like hosts, and identifiers, which every result has.
    """
    for value in (*found.plain, *found.disguised):
        kind, _, canonical = value.partition(":")
        if kind == "mail" and value in found.disguised:
            yield from read_mailboxes(canonical)
        elif kind == "url" and value in found.disguised:
            yield read_url(canonical)
        elif kind == "host" and not canonical.endswith(FILE_ENDINGS):
            host = canonical.partition("/")[0]
            yield Destination("ip" if is_ip(host) else "host", canonical, host)
        elif kind == "handle" and _receives(canonical):
            yield Destination("handle", canonical)


def _receives(handle: str) -> bool:
    """Return whether a handle is a phone number with its country, an account or a wallet."""
    wallet = _ETHEREUM.fullmatch(handle) is not None or bitcoin.is_valid(handle)
    return wallet or is_phone(HANDLE + handle) or iban.is_valid(handle)


def is_phone(value: str) -> bool:
    """Return whether a value is a phone number with its country."""
    return _PHONE.fullmatch(value.removeprefix(HANDLE)) is not None


def leaf_value(text: str) -> str | None:
    """Return the handle that a whole string of a structured result may be, or None."""
    stripped = text.strip()
    if not 0 < len(stripped) <= LEAF_LIMIT or "\n" in stripped:
        return None
    return handle_value(stripped)


def _scan(text: str, into: dict[str, None], found: Found, known: set[str]) -> None:
    """Take the values of a text, those left out that the words have which are known.

    Args:
        text: a reading.
        into: gets the values.
        found: what they belong to.
        known: words that were looked at before, in this reading or another: a word that is the
            same letter by letter has the same values.  Those of this reading are added.
    """
    odd = odd_words(text)
    words = list(filterfalse(known.__contains__, odd))
    known.update(words)
    joined = " ".join(words)
    if into is found.disguised or len(words_of(text)) > 1:
        # An address does not end the text: what is before `=` in it is a name.
        joined += " ,"
    # An address has no space in it.
    for destination in find_destinations(joined):
        if destination.kind == "malformed":
            found.overflow = True
            continue
        # It stands for itself, and not for what is above it.
        into.update(dict.fromkeys(keys_of(destination)[:1]))
        # A destination below a host makes the host itself known, too.
        if destination.host and destination.kind != "mail":
            into[f"any:{destination.host}"] = None
        elif "+" in destination.canonical:
            into[f"any:{untagged(destination.canonical)}"] = None
    for value in chain(_of_words(words), _numbered(text, odd)):
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


def _of_words(words: list[str]) -> Iterator[str]:
    """Yield the values of some words that are not destinations by themselves."""
    # The start of a text is as good as a space for the host in `//host/path`.
    # Words with a dot only at the end of a sentence do not name a host.
    dotted = f" {' '.join(filter(_INNER_DOT.search, words))}"
    for match in _HOST.finditer(dotted):
        host = canonical_host(match[0])
        if host is not None:
            yield f"host:{_with_path(dotted, match, host)}"
            yield f"any:{host}"
    numbered = " ".join(filter(_DIGIT.search, words))
    for found in _ID.finditer(numbered):
        yield handle_value(found[0])
    named = filter(_HANDLE_SIGN.search, words)
    yield from map(handle_value, _HANDLE.findall(" ".join(named)))
    for name in _REPOSITORY.findall(words_with("/", words)):
        yield from map(handle_value, _bare_names(name))


def _bare_names(name: str) -> tuple[str, ...]:
    """Return a name, and the same without what ends a sentence or closes emphasis behind it."""
    return tuple(dict.fromkeys((name, name.rstrip(_TRAILING))))


def _with_path(text: str, found: re.Match[str], host: str) -> str:
    """Return a host that was found in a text, with the path that is written behind it."""
    rest = _PATH.match(text, found.end())
    place = rest and read_url(f"https://{host}{rest[0].rstrip(_TRAILING)}")
    return host if not place or place.kind != "url" else without_https(place)


def _numbered(text: str, words: list[str]) -> Iterator[str]:
    """Yield the numbers of a text that may have spaces in them.

    Args:
        text: a reading.
        words: of it, those that are odd.
    """
    numbered = " ".join(filter(_DIGIT.search, words))
    if not numbered:
        return
    for match in _NUMBER.finditer(text):
        if len(_DIGIT.findall(match[0])) >= _DEFAULT_DIGITS:
            yield handle_value(match[0])
    if _ACCOUNT_START.search(numbered) is None:
        return
    for match in _ACCOUNT.finditer(text):
        if len(_DIGIT.findall(match[0])) >= _DEFAULT_DIGITS:
            yield from _accounts(match[0])


NUMBER_LIMIT: Final = 300
"""Numbers taken from one text."""
NUMBER_DIGITS: Final = 24

_AMOUNT: Final = re.compile(r"\d(?<![\w.,-]\d)[\d,]{0,15}(?:\.\d{1,8})?(?![\w-])")
_MONEY: Final = re.compile(
    r"(?:[A-Z]{3}\s?|[$\u20ac\u00a3]\s?)?(-?(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,24})(?:\.\d{1,12})?)"
    r"(?:\s?[A-Z]{3}|\s?[$\u20ac\u00a3])?"
)


def number_value(text: str) -> str | None:
    """Return the value of a number, the same for ``10``, ``10.00`` and ``$10``; None for no number.

    Currencies and commas between thousands are how models write amounts.
    """
    money = _MONEY.fullmatch(text.strip())
    try:
        number = Decimal(money[1].replace(",", "") if money else text.strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) > NUMBER_DIGITS:
        return None
    return f"number:{number.normalize():f}"


def find_numbers(text: str) -> dict[str, None]:
    """Return the numbers in a text that are not too common to say where one came from."""
    found: dict[str, None] = {}
    for match in islice(_AMOUNT.finditer(text), NUMBER_LIMIT):
        value = number_value(match[0].replace(",", ""))
        if value is not None and ("." in value or len(value) > len("number:9")):
            found[value] = None
    return found


WHOLE_LENGTH: Final = 320
"""Characters of the longest mailbox with its name."""


def whole_values(text: str) -> tuple[str, ...]:
    """Return the values that a whole field is, nothing where there is more in it than that."""
    if len(text) > WHOLE_LENGTH or "\n" in text.strip():
        return ()
    found = read_destinations(text)
    if len(found) > 1 and any(destination.kind != "mail" for destination in found):
        return ()
    return tuple(key for d in found if d.kind != "handle" for key in keys_of(d)[:1])
