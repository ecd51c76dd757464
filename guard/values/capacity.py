"""Upper bounds, in bits, on the data that a URL carries to its host.  Pure: no I/O.

A host reads the labels in front of its registered name, the path and the query. A random character
carries the bits of its alphabet; a letter of a word carries about two (Shannon, "Prediction and
entropy of printed English", 1951, gives 1.3 in long texts and more in short ones). The bound holds
for every coding, except a code book that gives words another meaning.
"""

from __future__ import annotations

import math
import re
from typing import Final
from urllib.parse import unquote

WORD_BITS: Final = 2
"""Bits of a letter of a word."""
LIMIT: Final = 64 * 1024
"""Maximum characters of a URL that are read; further ones count in full."""
_REGISTERED: Final = 2
"""Labels at the end of a name that somebody had to register."""
_RUN: Final = re.compile(r"[^\W_]+")
_VOWELS: Final = frozenset("aeiouy")
_FEWEST_VOWELS: Final = 0.2
_ALPHABETS: Final = (
    (re.compile(r"[0-9]+"), math.log2(10)),
    (re.compile(r"[0-9a-f]+|[0-9A-F]+"), 4.0),
    (re.compile(r"[a-z]+|[A-Z]+"), math.log2(26)),
    (re.compile(r"[0-9a-z]+|[0-9A-Z]+"), math.log2(36)),
)


def registered(host: str) -> str:
    """Return the part of a host name under which one owner keeps a counter: its last two labels.

    Owners who share such a part share a counter, which only makes it stricter.
    """
    return ".".join(host.rstrip(".").split(".")[-_REGISTERED:])


def carried_bits(url: str) -> int:
    """Return an upper bound, in bits, on the data that a URL carries to its host.

    Args:
        url: with a scheme, or a host alone.
    """
    text = unquote(url[:LIMIT].partition("://")[2] or url[:LIMIT])
    host, slash, rest = text.partition("/")
    labels = ".".join(host.rpartition("@")[2].partition(":")[0].split(".")[:-_REGISTERED])
    bits = sum(run_bits(run) for run in _RUN.findall(f"{labels}{slash}{rest}"))
    return math.ceil(bits) + 6 * max(len(url) - LIMIT, 0)


def run_bits(run: str) -> float:
    """Return an upper bound, in bits, on the data in an unbroken run of letters and digits."""
    vowels = sum(char in _VOWELS for char in run.lower())
    if run.isalpha() and vowels >= _FEWEST_VOWELS * len(run) and run[1:] == run[1:].lower():
        return float(WORD_BITS * len(run))
    per_letter = next((bits for form, bits in _ALPHABETS if form.fullmatch(run)), 6.0)
    return per_letter * len(run)
