"""Readings of a text with spelt addresses written out: at, dot, letter by letter.  Pure: no I/O."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.content.text_places import places

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN_LIMIT: Final = 64
"""Runs of letters that are read per text."""

_AT_WORDS: Final = r"(?:at(?:[ -]sign)?|arroba|arobase|klammeraffe|chiocciola)"
_DOT_WORDS: Final = r"(?:dot|period|punkt|point|punto)"
_BEFORE: Final = r"(?:[ \t]{1,4}|[_-])"
_OPEN: Final = r"[ \t]*[\[({<][ \t]*"
_CLOSE: Final = r"[ \t]*[\])}>][ \t]*"
_AT: Final = re.compile(rf"{_OPEN}(?:{_AT_WORDS}|@|a|ät|æ){_CLOSE}")
_DOT: Final = re.compile(rf"{_OPEN}(?:{_DOT_WORDS}|\.){_CLOSE}")
_WORD_AT: Final = re.compile(rf"(?<=[\w.+-]){_BEFORE}{_AT_WORDS}{_BEFORE}(?=[\w-])")
_WORD_DOT: Final = re.compile(rf"(?<=[\w-]){_BEFORE}{_DOT_WORDS}{_BEFORE}(?=[\w-])")
_WORD_DASH: Final = re.compile(r"(?<=\w)[ \t]{1,4}(?:dash|hyphen|minus)[ \t]{1,4}(?=\w)")
_WORD_UNDERSCORE: Final = re.compile(r"(?<=\w)[ \t]{1,4}underscore[ \t]{1,4}(?=\w)")
_COMMENT: Final = re.compile(r"\([^()@]{0,40}\)(?=@)|(?<=@)\([^()@]{0,40}\)")
_JOINED: Final = re.compile(r"[\"'`][ \t]*[+&.][ \t]*[\"'`]")
_GAP_AT: Final = re.compile(r"(?<=[\w.+-])[\s\"'`+,;|*~&\\]{0,8}@[\s\"'`+,;|*~&\\]{0,8}(?=[\w-])")
_GAP_DOT: Final = re.compile(
    r"(?<=[\w-])(?:[ \t]{1,4}\.[ \t]{0,4}|[ \t]{0,4}\.[ \t]{1,4})(?=[\w-])"
)
_GAP: Final = re.compile(r"[\s\"'`+,;|*~&\\]@|@[\s\"'`+,;|*~&\\]")
_OPENING: Final = ("[", "(", "{", "<")
_STEPS: Final = (
    (("(",), _COMMENT, ""),
    (_OPENING, _AT, "@"),
    (_OPENING, _DOT, "."),
    (("dash", "hyphen", "minus"), _WORD_DASH, "-"),
    (("dot", "period", "punkt", "point", "punto"), _WORD_DOT, "."),
    (("at", "arroba", "arobase", "klammeraffe", "chiocciola"), _WORD_AT, "@"),
)
"""One of the words is in every text that the pattern changes; what it writes instead; in order."""
_SIGN: Final = re.compile(
    r"[@\[({< \t_\"'`-](?:(?<=@)(?:(?<![\w+]@)|(?![\w\[]))"
    rf"|(?<=[\[({{<])[ \t]*(?:{_AT_WORDS}|@|a|dot|\.)[ \t]*[\])}}>]"
    rf"|(?<=[ \t_-])(?:{_AT_WORDS}|dot)[ \t_-]|(?<=[\"'`])[ \t]*[+&][ \t]*[\"'`])"
)
_SPELLED: Final = re.compile(
    r"(?<![^\s\"'(])(?:(?:[^\W_]|[@.+])[\s,;\"'_*|-]{1,12}){5,80}(?:[^\W_]|[@.])(?![\w@])"
)
_MAYBE_SPELLED: Final = re.compile(r"[\s,;\"'_*|-](?:(?:[^\W_]|[@.+])[\s,;\"'_*|-]{1,12}){3}")
_BLANKS: Final = re.compile(r"[\s,;\"'_*|]+")
_ALPHABET: Final = {
    word: word[0]
    for word in (
        *("alfa", "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"),
        *("india", "juliett", "juliet", "kilo", "lima", "mike", "november", "oscar", "papa"),
        *("quebec", "romeo", "sierra", "tango", "uniform", "victor", "whiskey", "xray", "x-ray"),
        *("yankee", "zulu"),
    )
}
"""Words of the radio alphabet."""
_DIGITS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SPOKEN: Final = {
    **_ALPHABET,
    **{word: str(digit) for digit, word in enumerate(_DIGITS)},
    **dict.fromkeys(("dot", "period", "point"), "."),
    **dict.fromkeys(("dash", "hyphen", "minus"), "-"),
    "underscore": "_",
    "at": "@",
}
_FEW: Final = 4
"""Words of a spelling alphabet from which on a text is read as one."""
_WORD: Final = re.compile(r"x-ray|[a-z]+|[0-9.@_-]")


def respaced(text: str) -> Iterator[str]:
    """Yield the places that may hold an address with its signs spelt or spaced out.

    Args:
        text: in lower case.
    """
    found = places(text, _SIGN)
    if found:
        spoken = _written(found)
        closed = _closed(_JOINED.sub("", spoken))
        yield from dict.fromkeys((_WORD_UNDERSCORE.sub("_", spoken), closed))
    runs: list[str] = []
    if _MAYBE_SPELLED.search(text) is not None:
        runs = [match[0] for match in islice(_SPELLED.finditer(text), RUN_LIMIT)]
    if runs:
        together = "\n".join(map(_together, runs))
        yield from dict.fromkeys((together, _closed(together)))
    if len(_ALPHABET.keys() & set(text.split())) >= _FEW:
        yield "".join(_letter(word) for word in _WORD.findall(text))


def _written(text: str) -> str:
    """Return a text with signs for the words that stand for them."""
    for words, pattern, sign in _STEPS:
        if any(word in text for word in words):
            text = pattern.sub(sign, text)
    return text


def _closed(text: str) -> str:
    """Return a text without what stands around its signs."""
    if _GAP.search(text) is not None:
        text = _GAP_AT.sub("@", text)
    return _GAP_DOT.sub(".", text)


def _together(run: str) -> str:
    """Return letters without what parts them: blanks if there are any, else one sign each."""
    bare = _BLANKS.sub("", run)
    # `a-b---c` has a hyphen of its own between the two that part.
    return bare if bare != run else run.replace("---", "\0").replace("-", "").replace("\0", "-")


def _letter(word: str) -> str:
    return _SPOKEN.get(word) or (word if len(word) == 1 else f" {word} ")
