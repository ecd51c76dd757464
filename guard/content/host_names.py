"""Data in the labels of a host name, where every resolver on the way reads it.  Pure: no I/O."""

from __future__ import annotations

import base64
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

import re2

from guard.content.account_numbers import has_account
from guard.content.capacity import SHOWN, run_bits, shown_bytes
from guard.content.decoder import decoded_label
from guard.content.issued_names import is_issued
from guard.content.letters import fold
from guard.content.own_codings import is_turned_sentence
from guard.content.secret_forms import BITS, entropy, own_forms
from guard.core.bounded_cache import bounded_cache
from guard.core.network_addresses import address_kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from guard.core.model import Json

_ADDRESS: Final = re2.compile(r"(?:^|[.-])([0-9]{1,3}(?:[.-][0-9]{1,3}){3})[.-][a-z]")
"""An address as part of a name: wildcard zones resolve such names to it."""
_EXAMPLES: Final = ("192.0.2.", "198.51.100.", "203.0.113.")
"""Networks of documentation (RFC 5737): nobody is there."""
_REGISTERED: Final = 2
"""Labels at the end of a name that somebody had to register, where it is not three."""
_SECOND_LEVELS: Final = frozenset(
    {"co", "com", "org", "net", "gov", "gob", "ac", "edu", "or", "ne"}
)
"""Labels below a country's that names are registered under (`example.co.uk`)."""
_ASKED: Final = frozenset({"name", "host", "hostname", "domain", "fqdn", "qname"})
"""Parameters that name what a resolver is asked for."""
_RECORDS: Final = frozenset(
    {"A", "AAAA", "ANY", "CAA", "CNAME", "HTTPS", "MX", "NS", "NULL", "PTR", "SOA", "SRV", "TXT"}
)
"""Types of records of DNS."""
_NAME: Final = re2.compile(r"[\w-]{1,63}(?:\.[\w-]{1,63}){2,}\.?")
_DNS_HEAD: Final = 12
"""Bytes before the question of a message of DNS."""
_COUNTRY: Final = 2
"""Letters of a country's label."""
_HEX_RUN: Final = re2.compile(r"[0-9a-f]+")
_DRIPPED: Final = 4
_MANY_RUNS: Final = 3
_KEY_BITS: Final = 90
"""Of a key, told by drawn runs of two labels, or of three parts of one; ids of services have one
run, or are hexadecimal."""
_NUMBERED: Final = re2.compile("^_?([a-z]{3,})[0-9]{0,3}$")
"""A word with a number behind it, or the name of a service in the DNS (RFC 8552)."""
_LONG_LABEL: Final = 16
_LONG_PARTS: Final = 20
_CHANGES: Final = 4
_ROOM: Final = 60
"""Characters below the registered name that are more than a name's."""
_RUN_LABELS: Final = 8
"""Labels of which every run is read as one word of a coding."""
_HEX_LABEL: Final = re2.compile(r"(?:[0-9a-f]{2}){2,}")
_CODES: Final = re2.compile(r"[0-9]{2,3}(?:-[0-9]{2,3})+")
_THREES: Final = re2.compile(r"(?:[01][0-9]{2}){6,}")
_FEWEST_CODES: Final = 6
_CONTENT_ID: Final = 59
_DIGEST: Final = 32
_SHA256: Final = bytes((0x12, _DIGEST))
_SHOWN: Final = 0.7
"""Share of bytes that are shown characters from which a digest is a text; drawn ones have .37."""
_PERSONAL_CODE: Final = re2.compile(
    r"\b(?:pin|otp|cvv|cvc|passcode)[ _]?[0-9]{3,8}\b"
    r"|\b[0-9]{3,8}[ _](?:pin|otp|cvv|cvc|passcode)\b"
    r"|\b(?:pw|pwd|passwd|pass|password)[ _](?:is[ _])?(?:[a-z]+[0-9]|[0-9]+[a-z])"
    r"|(?:^|[\n ])[0-8][0-9]{2}-[0-9]{2}-[0-9]{4}(?:$|[\n ])"
)
"""What lets somebody in, beside what says so, or a label that is a social security number."""
_SENTENCE_WORDS: Final = 5
_GRAMMAR: Final = frozenset(
    {"the", "a", "an", "is", "are", "was", "were", "will", "has", "have", "had", "not", "no", "and"}
    | {"or", "of", "on", "at", "in", "to", "for", "from", "with", "by", "than", "that", "this"}
    | {"it", "he", "she", "we", "they", "our", "his", "her", "their", "be", "please", "does", "did"}
)
_LINKING: Final = frozenset(
    {"the", "a", "an", "and", "or", "of", "on", "at", "in", "to", "for", "from", "with", "by", "no"}
)
"""Those of them that names of sites have as well."""
_HEX_PARTS: Final = 12
"""Hexadecimal digits in several labels that are no numbers of something."""
_VOWELS: Final = frozenset("aeiouy")
_SPOKEN: Final = 0.17
"""Share of vowels below which a long run of letters is no word."""
_KEY_ID: Final = re2.compile(r"a(?:kia|sia)[a-z0-9]{16}")


@bounded_cache(1024)
def host_hides_data(host: str) -> bool:
    """Return whether labels of a host name are data in a coding, or a private address, no name."""
    if is_issued(host.lower()):
        return False
    labels = _without_content_id(fold(host).lower().split("."))
    below = labels[: -_registered(labels)]
    if any(map(decoded_label, (*labels, *_runs(below)))):
        return True
    if any(map(_is_coded, below)) or _is_sentence(below):
        return True
    if any(_is_private(match.group(1)) for match in _ADDRESS.finditer(host)):
        return True
    if _fills(below) or _is_drip(below) or is_turned_sentence(" ".join(below)):
        return True
    drawn = [label for label in labels if _is_mixed(label)]
    in_parts = len(drawn) > 1 and sum(map(len, drawn)) >= _LONG_PARTS
    return in_parts or any(
        (len(label) >= _LONG_LABEL and entropy(label) >= BITS) for label in drawn
    )


def resolved_names(url: str) -> Iterator[str]:
    """Yield the host names that a URL asks a resolver for.

    In words, as resolvers with JSON answers take them, or as a message of DNS (RFC 8484, 4.1).
    """
    try:
        named = parse_qsl(urlsplit(url).query)
    except ValueError:
        return
    yield from _names(named)
    for name, value in named:
        if name == "dns":
            yield from _question(value)


def questions(arguments: Mapping[str, Json]) -> Iterator[str]:
    """Return the host names that the arguments of a call ask a resolver for.

    What is named so, and a `name` beside the type of a record.
    """
    typed = any(isinstance(v, str) and v.upper() in _RECORDS for v in arguments.values())
    said = ((member.lower(), value) for member, value in arguments.items())
    return _names((m, v) for m, v in said if isinstance(v, str) and (typed or m != "name"))


def _names(said: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the host names in members that are called as what a resolver is asked for."""
    for member, value in said:
        if member in _ASKED and _NAME.fullmatch(value):
            yield value.rstrip(".")


def _question(value: str) -> Iterator[str]:
    """Yield the name in the question of a message of DNS (RFC 1035, 4.1.2)."""
    try:
        message = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))[_DNS_HEAD:]
    except ValueError:
        return
    labels = []
    while message and 0 < message[0] < len(message):
        labels.append(message[1 : 1 + message[0]].decode("latin-1"))
        message = message[1 + message[0] :]
    if labels:
        yield ".".join(labels)


def _registered(labels: list[str]) -> int:
    """Return how many labels at the end somebody had to register before anybody could ask."""
    under = len(labels) > _REGISTERED and len(labels[-1]) == _COUNTRY
    return _REGISTERED + (under and labels[-2] in _SECOND_LEVELS)


def _without_content_id(labels: list[str]) -> list[str]:
    """Return the labels of a name without the digest that names what an IPFS gateway is asked for.

    It says no more than a path of as many drawn characters, which `url_hides_data` lets pass as an
    id; digests that are text stay.  A ``capacity`` rule counts both.
    """
    gateway = len(labels) > _REGISTERED + 1 and labels[1] in {"ipfs", "ipns"}
    return labels[2:] if gateway and _is_content_id(labels[0]) else labels


def _is_content_id(label: str) -> bool:
    """Return whether a label is a CID of version 1 in base 32, of a SHA-256 (multiformats.io)."""
    if len(label) != _CONTENT_ID or not label.startswith("b"):
        return False
    try:
        raw = base64.b32decode(label[1:].upper() + "=" * (-len(label[1:]) % 8))
    except ValueError:
        return False
    digest = raw[-_DIGEST:]
    return raw[0] == 1 and raw[2:4] == _SHA256 and shown_bytes(digest) <= _SHOWN * _DIGEST


def _is_coded(label: str) -> bool:
    """Return whether a label is text in a coding behind what parts it, counts it or turns it."""
    bare = label.removeprefix("xn--")
    pieces = bare.split("-")
    spelt = {bare, "".join(pieces), "".join(pieces[1:]), bare[::-1]}
    return any(map(decoded_label, spelt - {label})) or _is_spelt_in_codes(pieces, bare)


def _is_spelt_in_codes(pieces: list[str], label: str) -> bool:
    """Return whether a label spells letters by their numbers, parted or in threes."""
    if not _CODES.fullmatch(label) and not _THREES.fullmatch(label):
        return False
    codes = pieces if len(pieces) > 1 else [label[at : at + 3] for at in range(0, len(label), 3)]
    return len(codes) >= _FEWEST_CODES and all(int(code) in SHOWN for code in codes)


def _is_sentence(labels: list[str]) -> bool:
    """Return whether labels read as a sentence: names of hosts have hardly a word of grammar."""
    words = [word for label in labels for word in label.split("-")]
    grammar = _GRAMMAR.intersection(words)
    return len(words) >= _SENTENCE_WORDS and len(grammar) > 1 and not grammar <= _LINKING


def _runs(labels: list[str]) -> Iterator[str]:
    """Yield labels that follow each other, joined."""
    few = labels[:_RUN_LABELS]
    for begin, end in combinations(range(len(few) + 1), 2):
        if end - begin > 1:
            yield "".join(few[begin:end])


def _fills(labels: list[str]) -> bool:
    """Return whether labels below a registered name are coded in parts, numbers, or too much."""
    coded = "".join(label for label in labels if _HEX_LABEL.fullmatch(label))
    parts = sum(map(bool, map(_HEX_LABEL.fullmatch, labels)))
    in_hex = parts > 1 and len(coded) >= _HEX_PARTS and not (coded.isdigit() or coded.isalpha())
    return (
        (parts > 0 and decoded_label(coded))
        or in_hex
        or sum(map(len, labels)) >= _ROOM
        or any(map(_is_unspoken, labels))
        or _speaks(" ".join(labels))
    )


def _speaks(words: str) -> bool:
    """Return whether the labels of a name, as words, are a secret or the number of an account."""
    spelt = "\n".join((words, words.replace("-", " "), words.replace("-", "_")))
    return (
        has_account(spelt)
        or _PERSONAL_CODE.search(spelt) is not None
        or any(True for _ in own_forms().spans(spelt))
    )


def _is_drip(labels: list[str]) -> bool:
    """Return whether several runs of labels look drawn, and together could tell a key."""
    parts = (_NUMBERED.sub(r"\1", run) for label in labels for run in label.split("-"))
    drawn = [run for run in parts if run_bits(run) > len(run) * 3]
    told = [run for run in drawn if len(run) >= _DRIPPED and not _HEX_RUN.fullmatch(run)]
    if any(len(run) >= _DIGEST and not _HEX_RUN.fullmatch(run) for run in drawn):
        return True
    several = len({label for label in labels if any(run in label for run in told)})
    return (several > 1 or len(told) >= _MANY_RUNS) and sum(map(run_bits, told)) >= _KEY_BITS


def _is_unspoken(label: str) -> bool:
    """Return whether a long run of letters has hardly a vowel, so that it is no word."""
    vowels = sum(char in _VOWELS for char in label)
    return len(label) >= _LONG_LABEL and label.isalpha() and vowels < _SPOKEN * len(label)


def _is_mixed(label: str) -> bool:
    """Return whether letters and digits change places as they do in no name, or it is a key id."""
    changes = sum(a.isdigit() != b.isdigit() for a, b in pairwise(label))
    return bool(_KEY_ID.fullmatch(label)) or (label.isalnum() and changes >= _CHANGES)


def _is_private(spelt: str) -> bool:
    try:
        kind = address_kind(spelt.replace("-", "."))
    except ValueError:
        return False
    return kind not in {"public", "reserved"} and not spelt.replace("-", ".").startswith(_EXAMPLES)
