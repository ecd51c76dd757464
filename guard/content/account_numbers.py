"""Numbers of cards, accounts and wallets, and the words of wallets' seeds.  Pure: no I/O.

Where a form has a checksum, the checksum decides; a card must also have a prefix that some issuer
has, with the length that goes with it.
"""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import TYPE_CHECKING, Final

import re2
from stdnum.us import ssn

from guard.content.seed_words import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

CANDIDATES: Final = 1000
"""Numbers of each kind whose checksum is computed, per text."""
_PHONE: Final = 13
"""Digits of a phone number with its country (E.164), behind a plus sign; cards as short as that
are of the last century."""
FEWEST: Final = 12
"""Words that a seed has, or more."""
_NUMBERS: Final = re2.compile(r"\b(?:[0-9][ +-]?){12,18}[0-9]\b")
_ISSUERS: Final = re2.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|(?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}"
    r"|27[01][0-9]|2720)[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[689][0-9])[0-9]{11}"
    r"|6(?:011|4[4-9][0-9]|5[0-9]{2})[0-9]{12}|35(?:2[89]|[3-8][0-9])[0-9]{12}|62[0-9]{14,17}"
    r"|(?:50|5[6-8]|6[0-9])[0-9]{14}"
)
_IBAN: Final = re2.compile(
    r"(?i)\b[A-Z]{2}[0-9]{2}(?:[ +-]?[A-Z0-9]{4}){2,7}(?:[ +-]?[A-Z0-9]{1,4})?\b"
)
_LENGTHS: Final = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK",
        21: "CH CR HR LI LV",
        22: "BG BH DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}
"""Characters of an account number by country (IBAN registry of SWIFT, release 98)."""
_BASE58: Final = re2.compile(
    r"\b(?:[13LMD5K][1-9A-HJ-NP-Za-km-z]{24,51}|[xyz]p(?:rv|ub)[1-9A-HJ-NP-Za-km-z]{100,112})\b"
)
_WALLETS: Final = re2.compile(
    r"\b0x[0-9a-fA-F]{40}\b|(?i)\b(?:bc1|tb1|ltc1)[qp][02-9ac-hj-np-z]{38,58}\b|\baddr1[02-9ac-hj-np-z]{50,100}\b"
    r"|\b4[0-9AB][1-9A-HJ-NP-Za-km-z]{93}\b|\bT[1-9A-HJ-NP-Za-km-z]{33}\b"
)
_NAMED: Final = re2.compile(
    r"(?i)(?:\bsol\w*|wallet\w*|address|pubkey|recipient)[\"']?\s*[=:]\s*[\"']?"
    r"[1-9A-HJ-NP-Za-km-z]{43,44}\b"
    r"|(?:priv\w*|\beth\w*|wallet\w*|\bpk)[\"']?\s*[=:]\s*[\"']?(?:0x)?[0-9a-f]{64}\b"
    r"|\b(?:ssn|social[ _-]security)\b[^\n]{0,20}\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b"
)
"""Forms that say too little without what they are called."""
_SOCIAL: Final = re2.compile(r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b")
_SOCIAL_NAMED: Final = re2.compile(r"(?i)\bssns?\b|\bsocial[ _-]security\b")
"""What a text calls them: in a table the name stands far above."""
_ROUTING: Final = re2.compile(r"(?i)\b(?:routing|aba)\b[^\n0-9]{0,20}([0-9]{9})\b")
_WEIGHTS: Final = (3, 7, 1) * 3
_SEED_RUN: Final = re2.compile(
    r"(?i)(?:\b[a-z]{3,8}\b(?:[ ,;+\n\t_.|/-]|%20|[0-9]{1,2}[.)] ?){1,4}){11,}[a-z]{3,8}\b"
)
_WORD: Final = re2.compile(r"[a-z]+")
_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def has_account(text: str) -> bool:
    """Return whether the number of a card, an account or a wallet, or a seed, is in a text."""
    return any(_accounts(text))


def without_payment_numbers(text: str) -> str:
    """Return a text without the numbers of cards and of accounts at banks."""
    text = str(_NUMBERS.sub(lambda found: "" if is_card(_digits(found[0])) else found[0], text))
    return str(_IBAN.sub(lambda found: "" if is_iban(_alphanumeric(found[0])) else found[0], text))


def without_addresses(text: str) -> str:
    """Return a text without addresses on public chains; keys and seeds stay."""
    return str(_WALLETS.sub("", text))


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _alphanumeric(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _accounts(text: str) -> Iterator[bool]:
    """Yield whether each candidate is one."""
    yield bool(_WALLETS.search(text)) or bool(_NAMED.search(text))
    if _SOCIAL_NAMED.search(text):
        yield from (ssn.is_valid(found[0]) for found in islice(_SOCIAL.finditer(text), CANDIDATES))
    for match in islice(_ROUTING.finditer(text), CANDIDATES):
        yield sum(w * int(c) for w, c in zip(_WEIGHTS, match.group(1), strict=True)) % 10 == 0
    for match in islice(_NUMBERS.finditer(text), CANDIDATES):
        if text[: match.start()].endswith("+") and len(_digits(match.group())) <= _PHONE:
            continue
        yield is_card(_digits(match.group()))
        if text[match.end() : match.end() + 1] == "/":
            # The month until which it is valid looks like a group of it.
            yield is_card(_digits(match.group()[:-2]))
    for match in islice(_IBAN.finditer(text), CANDIDATES):
        letters = _alphanumeric(match.group())
        # The words behind it may look like groups of it.
        yield is_iban(letters[: _LENGTHS.get(letters[:2].upper(), 0)])
    for match in islice(_BASE58.finditer(text), CANDIDATES):
        yield is_base58(match.group())
    for match in islice(_SEED_RUN.finditer(text), CANDIDATES):
        yield has_seed(_WORD.findall(match.group().lower().replace("%20", " ")))


def is_card(digits: str) -> bool:
    """Luhn, over numbers that some issuer gives out."""
    if not _ISSUERS.fullmatch(digits) or len(set(digits)) == 1:
        return False
    numbers = [int(c) for c in digits]
    doubled = [sum(divmod(2 * d, 10)) for d in numbers[-2::-2]]
    return (sum(numbers[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """ISO 13616: as long as its country has it, and the rearranged number is 1 modulo 97."""
    if _LENGTHS.get(text[:2].upper()) != len(text):
        return False
    moved = text[4:] + text[:4]
    return int("".join(str(int(c, 36)) for c in moved)) % 97 == 1


def is_base58(text: str) -> bool:
    """Base58Check: the last four bytes are the head of a double sha256."""
    number = 0
    for letter in text:
        number = number * 58 + _ALPHABET.index(letter)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    raw = b"\0" * (len(text) - len(text.lstrip("1"))) + raw
    check = hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()[:4]
    return check == raw[-4:]


def has_seed(words: list[str]) -> bool:
    """Return whether words of BIP 39's list follow each other, as many as a seed has.

    Everyday text has an article or a preposition long before; the list has none of them.
    """
    run = 0
    for word in words:
        run = run + 1 if word in WORDS else 0
        if run >= FEWEST:
            return True
    return False
