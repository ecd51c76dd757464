"""Numbers of cards, bank accounts and wallets, and seeds of wallets.  Pure: no I/O but its data.

A checksum decides wherever the form has one, by python-stdnum. Numbers without a checksum count
only beside their name. The words of seeds are those of BIP 39.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final

import re2
from stdnum import bitcoin, iban, luhn
from stdnum.exceptions import ValidationError
from stdnum.us import rtn, ssn

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT: Final = "account_found"
"""Reason code of a number that this module finds."""
CANDIDATES: Final = 1000
"""Maximum numbers of each kind whose checksum is computed, per text."""
WORDS: Final = frozenset(
    files("guard.values").joinpath("seed_words.txt").read_text(encoding="ascii").split()
)
"""Words of BIP 39 in English."""
FEWEST: Final = 12
"""Minimum number of words of a seed."""
_PHONE: Final = 13
"""Maximum digits of a phone number with its country (E.164), after a plus sign."""
_CARD: Final = re2.compile(r"\b(?:[0-9]{13,19}|[0-9]{3,6}(?:[ -][0-9]{3,6}){2,4})\b")
_CARD_DIGITS: Final = range(13, 20)
_ISSUERS: Final = re2.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}"
    r"|27[01][0-9]|2720)[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[689][0-9])[0-9]{11}"
    r"|6(?:011|4[4-9][0-9]|5[0-9]{2})[0-9]{12}|35(?:2[89]|[3-8][0-9])[0-9]{12}|62[0-9]{14,17}"
    r"|(?:50|5[6-8]|6[0-9])[0-9]{14}"
)
"""Ranges of card numbers in use (ISO/IEC 7812)."""
_DECIMAL_BEFORE: Final = re.compile(r"(?:^|[0-9\s,;=:(\[-])\.$")
_DECIMAL_AFTER: Final = re.compile(r"\.[0-9]")
_IBAN: Final = re2.compile(
    r"(?i)\b[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,4})?\b"
)
_BETWEEN: Final = re.compile("[ -]")
_BASE58: Final = re2.compile(
    r"\b(?:[13LMDTK5][1-9A-HJ-NP-Za-km-z]{24,51}|[xyz]p(?:rv|ub)[1-9A-HJ-NP-Za-km-z]{100,112})\b"
)
_BECH32: Final = re2.compile(r"(?i)\bbc1[02-9ac-hj-np-z]{11,71}\b")
_ETHEREUM: Final = re2.compile(r"\b0x[0-9a-fA-F]{40}\b")
_SOCIAL: Final = re2.compile(r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b")
_SOCIAL_NAME: Final = re2.compile(r"(?i)\bssns?\b|\bsocial[ _-]security\b")
_ROUTING: Final = re2.compile(r"(?i)\b(?:routing|aba)\b[^\n0-9]{0,20}([0-9]{9})\b")
_SEED: Final = re2.compile(
    r"(?i)(?:\b[a-z]{3,8}\b(?:[ ,;\n\t_.|/-]|[0-9]{1,2}[.)] ?){1,4}){11,}[a-z]{3,8}\b"
)
_WORD: Final = re.compile(r"[a-z]+")
_CHECK: Final = 4
"""Bytes of a checksum in Base58Check."""


def has_account(text: str) -> bool:
    """Return whether a text contains a number of a card, account or wallet, or a seed."""
    return any(_accounts(text))


def _accounts(text: str) -> Iterator[bool]:
    """Yield whether each candidate is such a number."""
    yield _ETHEREUM.search(text) is not None
    for match in islice(_CARD.finditer(text), CANDIDATES):
        yield _is_whole(text, *match.span()) and any(map(is_card, _grouped(match[0])))
    for match in islice(_IBAN.finditer(text), CANDIDATES):
        yield any(map(iban.is_valid, _grouped(match[0])))
    for match in islice(_BASE58.finditer(text), CANDIDATES):
        yield is_base58(match[0])
    yield from map(bitcoin.is_valid, islice(_BECH32.findall(text), CANDIDATES))
    yield from map(rtn.is_valid, islice(_ROUTING.findall(text), CANDIDATES))
    if _SOCIAL_NAME.search(text) is not None:
        yield from map(ssn.is_valid, islice(_SOCIAL.findall(text), CANDIDATES))
    for match in islice(_SEED.finditer(text), CANDIDATES):
        yield has_seed(_WORD.findall(match[0].lower()))


def _grouped(candidate: str) -> Iterator[str]:
    """Yield a number without gaps up to the end of each group: words behind it look like groups."""
    return accumulate(_BETWEEN.split(candidate))


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether digits are a number by themselves: no part of a decimal, not a phone."""
    before = text[max(start - 2, 0) : start]
    if _DECIMAL_BEFORE.search(before) or _DECIMAL_AFTER.match(text, end):
        return False
    return not before.endswith("+") or sum(map(str.isdigit, text[start:end])) > _PHONE


def is_card(digits: str) -> bool:
    """Return whether digits have an issuer and a valid checksum (Luhn)."""
    return (
        len(digits) in _CARD_DIGITS
        and _ISSUERS.fullmatch(digits) is not None
        and len(set(digits)) > 1
        and bool(luhn.is_valid(digits))
    )


def is_base58(text: str) -> bool:
    """Return whether a text has a valid checksum of Base58Check."""
    try:
        raw = bitcoin.b58decode(text)
    except (ValidationError, ValueError):
        return False
    digest = hashlib.sha256(hashlib.sha256(raw[:-_CHECK]).digest()).digest()
    return bool(digest[:_CHECK] == raw[-_CHECK:])


def has_seed(words: list[str]) -> bool:
    """Return whether as many words of BIP 39 follow each other as a seed has.

    Everyday text interrupts such a run: the list has neither articles nor prepositions.
    """
    run = 0
    for word in words:
        run = run + 1 if word in WORDS else 0
        if run >= FEWEST:
            return True
    return False
