"""Letters of a text as a reader sees them: look-alikes, hidden ones, spelt addresses.

:func:`fold` keeps the case and serves the search for content; :func:`skeleton` is in lower case and
serves the comparison of destinations.  :func:`respaced` writes out ``at``, ``dot`` and letters that
stand apart.  Pure: no I/O but the table of look-alikes.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache, lru_cache
from importlib.resources import files
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from guard.content.prefilter import Prefiltered, Present

if TYPE_CHECKING:
    from collections.abc import Iterator

SURROUNDING: Final = 72
"""Characters before and after such a place; an address and its spacing fit in."""
RUN_LIMIT: Final = 64
"""Runs of letters that are read per text."""
_MANY: Final = 16
"""Different letters from which on replacing one after the other takes longer."""


_HIDDEN: Final = dict.fromkeys(
    [
        *(0x00AD, 0x034F, 0x061C, 0x180E, 0x2800, 0x3164, 0xFEFF, 0xFFA0, 0x115F, 0x1160),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFE00, 0xFE10),
    ]
)


@cache
def _confusables() -> dict[int, str]:
    """Return the letters that look like one ASCII letter, as Unicode lists them.

    Left out is what Unicode itself folds to ASCII, and digits, which have their own value.
    """
    table = json.loads(
        files("confusable_homoglyphs").joinpath("confusables.json").read_text("utf-8")
    )
    found: dict[int, str] = {}
    for char, alike in table.items():
        if len(char) > 1 or char.isascii() or not char.isalpha():
            continue
        ascii_ones = [one["c"] for one in alike if one["c"].isascii() and one["c"].isalpha()]
        same_case = [one for one in ascii_ones if len(one) == 1 and one.islower() == char.islower()]
        if same_case and not unicodedata.normalize("NFKD", char)[0].isascii():
            found[ord(char)] = same_case[0]
    return found


_TAGS: Final = 0xE0000
"""Where Unicode has ASCII once more, as tags that nobody sees and that models read."""
_LETTERS: Final = "аеорсухіјѕһԁԛԝѵӏмтквнαορνικτυχηıɡɑℓ∙·․．。＠﹫"  # noqa: RUF001
_ASCII: Final = "aeopcyxijshdqwvlmtkbhaopviktuxnigal.....@@"
_SMALL: Final = "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ‐‑−﹣"  # noqa: RUF001
_PLAIN: Final = "abcdefghijklmnoprstuvwyz----"
_FOLDABLE: Final = "аеіорсухѕјԁһкмтвАЕІОРСУХЅЈНКМТВοαεικνρτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"
_FOLDED: Final = "aeiopcyxsjdhkmtbAEIOPCYXSJHKMTBoaeiknptuxABEZHIKMNOPTYX"


@cache
def _alike() -> dict[int, str]:
    """Return letters that look like ASCII ones in most fonts, lower case.

    Read when the first text asks that is not ASCII: the table of look-alikes is large.
    """
    found = {code: letter.lower() for code, letter in _confusables().items()}
    found |= {ord(a): b for a, b in zip(_LETTERS + _SMALL, _ASCII + _PLAIN, strict=True)}
    return (
        found
        | {_TAGS + code: chr(code).lower() for code in range(0x20, 0x7F)}
        | {zero + digit: str(digit) for zero in (0x660, 0x6F0, 0x966) for digit in range(10)}
    )


@cache
def _folded() -> dict[int, str]:
    """Return what look-alikes are folded to; read likewise."""
    alike = zip(_FOLDABLE, _FOLDED, strict=True)
    tags = {_TAGS + code: chr(code) for code in range(0x20, 0x7F)}
    return _confusables() | tags | {ord(letter): plain for letter, plain in alike}


_AT_WORDS: Final = r"(?:at(?:[ -]sign)?|arroba|arobase|klammeraffe|chiocciola)"
_DOT_WORDS: Final = r"(?:dot|period|punkt|point|punto)"
_BEFORE: Final = r"(?:[ \t]{1,4}|[_-])"
_OPEN: Final = r"[ \t]*[\[({<][ \t]*"
_CLOSE: Final = r"[ \t]*[\])}>][ \t]*"
_BRACKETED: Final = r"\[\](){}<> \ta-z?"
"""What stands in and around brackets, as a class."""
_AT: Final = Prefiltered(
    re.compile(rf"{_OPEN}(?:{_AT_WORDS}|@|a|ät|æ){_CLOSE}"),
    f"{_BRACKETED}@-",
    rf"{_OPEN}(?:{_AT_WORDS}|@|a|\?t?){_CLOSE}",
)
_DOT: Final = Prefiltered(
    re.compile(rf"{_OPEN}(?:{_DOT_WORDS}|\.){_CLOSE}"),
    f"{_BRACKETED}.",
    rf"{_OPEN}(?:{_DOT_WORDS}|\.){_CLOSE}",
)


def _word(before: str, words: str, after: str) -> Prefiltered:
    """Return the expression of a word that stands for a sign, between what it parts."""
    # The look-behind stands behind a character, so that the engine skips to that.
    first = rf"[ \t_-](?:(?<={before}[ \t])[ \t]{{0,3}}|(?<={before}[_-]))"
    exact = re.compile(rf"{first}{words}{_BEFORE}(?={after})")
    return Prefiltered(exact, r" \t_a-z-", rf"[ \t_-]{words}[ \t_-]")


_WORD_AT: Final = _word(r"[\w.+-]", _AT_WORDS, r"[\w-]")
_WORD_DOT: Final = _word(r"[\w-]", _DOT_WORDS, r"[\w-]")
_WORD_DASH: Final = re.compile(r"(?<=\w)[ \t]{1,4}(?:dash|hyphen|minus)[ \t]{1,4}(?=\w)")
_WORD_UNDERSCORE: Final = re.compile(r"(?<=\w)[ \t]{1,4}underscore[ \t]{1,4}(?=\w)")
_COMMENT: Final = re.compile(r"\((?:[^()@]{0,40}\)(?=@)|(?<=@\()[^()@]{0,40}\))")
_JOINED: Final = re.compile(r"[\"'`][ \t]*[+&.][ \t]*[\"'`]")
_BESIDE_AT: Final = r"\t-\r\x1c- \"'`+,;|*~&\\"
_GAP_AT: Final = Prefiltered(
    re.compile(r"(?<=[\w.+-])[\s\"'`+,;|*~&\\]{0,8}@[\s\"'`+,;|*~&\\]{0,8}(?=[\w-])"),
    f"{_BESIDE_AT}@?",
    f"[{_BESIDE_AT}?]@|@[{_BESIDE_AT}?]",
)
"""What has a gap; the sign alone stands for itself."""
_GAP_DOT: Final = re.compile(
    r"[ \t.](?:(?<=[\w-][ \t])[ \t]{0,3}\.[ \t]{0,4}|(?<=[\w-]\.)[ \t]{1,4})(?=[\w-])"
)
_GAP_BEHIND_DOT: Final = re.compile(r"\.(?<=[\w-]\.)[ \t]{1,4}(?=[\w-])")
"""What the former is in a text without blanks before dots; the engine skips to the dots."""
_OPENING: Final = ("[", "(", "{", "<")
_STEPS: Final = (
    ((")@", "@("), _COMMENT, ""),
    (_OPENING, _AT, "@"),
    (_OPENING, _DOT, "."),
    (("dash", "hyphen", "minus"), _WORD_DASH, "-"),
    (("dot", "period", "punkt", "point", "punto"), _WORD_DOT, "."),
    (("at", "arroba", "arobase", "klammeraffe", "chiocciola"), _WORD_AT, "@"),
)
"""One of the words is in every text that the pattern changes; what it writes instead; in order."""
_SIGN: Final = Prefiltered(
    re.compile(
        r"[@\[({< \t_\"'`-](?:(?<=@)(?:(?<![\w+]@)|(?![\w\[]))"
        rf"|(?<=[\[({{<])[ \t]*(?:{_AT_WORDS}|@|a|dot|\.)[ \t]*[\])}}>]"
        rf"|(?<=[ \t_-])(?:{_AT_WORDS}|dot)[ \t_-]|(?<=[\"'`])[ \t]*[+&][ \t]*[\"'`])"
    ),
    "",
    rf"@|[\[({{<][ \t]*(?:{_AT_WORDS}|@|a|dot|\.)[ \t]*[\])}}>]"
    rf"|[ \t_-](?:{_AT_WORDS}|dot)[ \t_-]|[\"'`][ \t]*[+&][ \t]*[\"'`]",
)
_SPELLED: Final = Prefiltered(
    re.compile(
        r"(?<![^\s\"'(])(?:(?:[^\W_]|[@.+])[\s,;\"'_*|-]{1,12}){5,80}(?:[^\W_]|[@.])(?![\w@])"
    ),
    r"A-Za-z0-9@.+\t-\r\x1c- ,;\"'_*|?-",
    r"(?:[A-Za-z0-9@.+?][\t-\r\x1c- ,;\"'_*|?-]{1,12}){5}[A-Za-z0-9@.?]",
)
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
_FEW: Final = 4
"""Words of a spelling alphabet from which on a text is read as one."""
_LETTER_BY_LETTER: Final = Prefiltered(
    re.compile(r"(?<!\w)(?:\w )?\w at \w (?:\w |dot )"),
    r"\w? ",
    r"[\w?] at [\w?] (?:[\w?] |dot )",
)
"""Letters that stand apart, around the word for the sign of a mailbox."""
_RESPACED: Final = Present(
    _SIGN.maybe,
    _SPELLED.maybe,
    rf"(?s)(?:\b(?:{'|'.join(_ALPHABET)})\b.*){{{_FEW}}}",
    _LETTER_BY_LETTER.maybe,
)
_SPELT_SIGNS, _LETTERS_APART, _RADIO_WORDS, _LETTERS_AT = range(4)
"""What a text may have that is written out, as :data:`_RESPACED` numbers it."""
_DIGITS: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SPOKEN: Final = {
    **_ALPHABET,
    **{word: str(digit) for digit, word in enumerate(_DIGITS)},
    **dict.fromkeys(("dot", "period", "point"), "."),
    **dict.fromkeys(("dash", "hyphen", "minus"), "-"),
    "underscore": "_",
    "at": "@",
}
_SIGNS: Final = frozenset("@.-_")
_WORD: Final = re.compile(r"x-ray|[a-z]+|[0-9.@_-]")


def skeleton(text: str) -> str:
    """Return a text in lower case, without hidden characters, look-alikes replaced by ASCII."""
    if text.isascii():
        return text.lower()
    lower = text.lower()
    # Letter by letter: what is done to one depends on no other, and few are different.
    letters = {char: _letter(char) for char in set(lower) if not char.isascii()}
    changed = {char: plain for char, plain in letters.items() if plain != char}
    if len(changed) > _MANY or not changed.keys().isdisjoint("".join(changed.values())):
        return lower.translate({ord(char): plain for char, plain in changed.items()})
    for char, plain in changed.items():
        lower = lower.replace(char, plain)
    return lower


@lru_cache(maxsize=8192)
def _letter(char: str) -> str:
    """Return what a lower-case character is in a skeleton: itself, other ones, or nothing."""
    if ord(char) in _HIDDEN:
        return ""
    parts = unicodedata.normalize("NFKD", char.translate(_alike()))
    bare = "".join(part for part in parts if not unicodedata.combining(part))
    return bare.lower().translate(_alike())


def fold(text: str) -> str:
    """Return the text in compatibility form, look-alikes as Latin letters, nothing invisible."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKC", text).translate(_folded())
    split = unicodedata.normalize("NFD", plain)
    return "".join(letter for letter in split if unicodedata.category(letter) not in {"Cf", "Mn"})


def places(text: str, pattern: re.Pattern[str] | Prefiltered) -> str:
    """Return the surroundings of what a pattern finds, each on a line of its own.

    They are no longer than the text but for the line ends: what two of them share is given once.
    """
    spans: list[tuple[int, int]] = []
    for found in pattern.finditer(text):
        start = max(found.start() - SURROUNDING, 0)
        if spans and start < spans[-1][1]:
            start = spans.pop()[0]
        spans.append((start, found.end() + SURROUNDING))
    around: list[str] = []
    for start, end in spans:
        around.append(text[start:end])
    return "\n".join(around)


def respaced(text: str) -> Iterator[str]:
    """Yield the places that may hold an address with its signs spelt or spaced out.

    Args:
        text: in lower case.
    """
    present = _RESPACED.of(text)
    if _SPELT_SIGNS in present:
        found = places(text, _SIGN)
        spoken = _written(found)
        closed = _closed(_JOINED.sub("", spoken))
        if "underscore" in spoken:
            spoken = _WORD_UNDERSCORE.sub("_", spoken)
        yield from dict.fromkeys((spoken, closed))
    if _LETTERS_APART in present:
        runs = [match[0] for match in islice(_SPELLED.finditer(text), RUN_LIMIT)]
        together = "\n".join(map(_together, runs))
        yield from filter(None, dict.fromkeys((together, _closed(together))))
    apart = _LETTERS_AT in present and _LETTER_BY_LETTER.search(text) is not None
    if apart or _RADIO_WORDS in present:
        words = _WORD.findall(text)
        if apart or len(_ALPHABET.keys() & set(words)) >= _FEW:
            yield "\n".join(_spelt_in_words(words))


def _written(text: str) -> str:
    """Return a text with signs for the words that stand for them."""
    for words, pattern, sign in _STEPS:
        if any(word in text for word in words):
            text = pattern.sub(sign, text)
    return text


def _closed(text: str) -> str:
    """Return a text without what stands around its signs."""
    if "@" in text:
        text = _GAP_AT.sub("@", text)
    has_blank_before = " ." in text or "\t." in text
    return (_GAP_DOT if has_blank_before else _GAP_BEHIND_DOT).sub(".", text)


def _together(run: str) -> str:
    """Return letters without what parts them: blanks if there are any, else one sign each."""
    bare = _BLANKS.sub("", run)
    # `a-b---c` has a hyphen of its own between the two that part.
    return bare if bare != run else run.replace("---", "\0").replace("-", "").replace("\0", "-")


def _spelt_in_words(words: list[str]) -> Iterator[str]:
    """Yield what runs of words spell that stand for letters and signs; plain words around them end.

    A plain word beside a sign belongs to the run (``drop at echo ...``), or only looks as if it did
    (``meet at delta ...``): both are given.
    """
    signs = [_SPOKEN.get(word, "")[-1:] in _SIGNS for word in words]
    beside = map(any, zip(signs, [*signs[1:], False], [False, *signs[:-1]], strict=True))
    belongs = [
        near or word in _SPOKEN or len(word) == 1 for word, near in zip(words, beside, strict=True)
    ]
    for spelt, run in groupby(range(len(words)), belongs.__getitem__):
        places = list(run)
        letters = [place for place in places if words[place] in _ALPHABET]
        letters = letters or [place for place in places if len(words[place]) == 1]
        if spelt and letters:
            yield _written_out(words[places[0] : places[-1] + 1])
            yield _written_out(words[letters[0] : letters[-1] + 1])


def _written_out(words: list[str]) -> str:
    return "".join(_SPOKEN.get(word, word) for word in words)
