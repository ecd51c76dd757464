"""What a user names in a prompt in their own words, without what they pasted.  Pure: no I/O.

Pasted text was written by somebody else, so nothing in it is named by the user: code fences,
lines that quote (``>``), forwarded or answered mails from their header on, and long quotations.
A short quotation is how people dictate an address or a name, and counts as their own words.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelWrite, LabelWriteMode
from guard.core.model import Integrity
from guard.destinations.values import PIECE, SAID, find_numbers, find_values, handle_value
from guard.provenance.label_sets import CLAIM, PROMPT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.model import Identity
    from guard.provenance.label_sets import LabelSets
    from guard.provenance.seal import Seal

PROMPT_LIMIT: Final = 64 * 1024
"""Characters of a prompt that can name something."""
QUOTE_WORDS: Final = 12
QUOTE_LENGTH: Final = 120
"""A quotation with more words or characters, or a line break, is pasted."""
NAME_WORDS: Final = 6
"""Words of the longest name (of a person, a channel, a subject) that a prompt can give."""
NAME_LIMIT: Final = 4000
"""Names taken from one prompt."""

_FENCE: Final = re.compile(r"(```|~~~)")
_QUOTED_LINE: Final = re.compile(r"^[ \t]{0,8}>.*$", re.MULTILINE)
_FORWARD: Final = re.compile(
    r"^[ \t>]{0,8}(?:-{2,}[ \t]{0,4}(?:original message|forwarded message|begin forwarded"
    r"|weitergeleitete nachricht|ursprüngliche nachricht)"
    r"|begin forwarded message:"
    r"|on [^\n]{4,200} wrote:"
    r"|(?:from|von|sender):[^\n]{0,300}\n[ \t>]{0,8}(?:to|sent|date|subject|an|gesendet|betreff):)",
    re.IGNORECASE | re.MULTILINE,
)
_OPENING: Final = re.compile(r"[\"“«„]|(?<!\w)'|<(?P<tag>[A-Za-z]{1,20})>")
"""A sign that may begin a quotation."""
_CLOSING: Final = {
    '"': re.compile('"'),
    "“": re.compile("”"),
    "«": re.compile("»"),
    "„": re.compile("[“”]"),
    "'": re.compile(r"\n|'"),
}
"""By opening sign what ends the quotation; a line end is no end, but ends the search."""
_LETTER: Final = re.compile(r"\w")
_CLOSING_TAG: Final = re.compile("</([A-Za-z]{1,20})>")
_WORD: Final = re.compile(r"[\w@#][\w.@#:/+'’-]{0,126}")  # noqa: RUF001 - apostrophes as typed
_SPOKEN: Final = re.compile(
    r"(?<![\w.@-])[\w+-]{1,64}(?:(?: dot |\.)[\w+-]{1,64}){0,4}"
    r" at [\w-]{1,63}(?: dot [\w-]{1,63}){1,5}(?![\w@])",
    re.IGNORECASE,
)
_SAID_AT: Final = re.compile(" at ", re.IGNORECASE)
_SAID_DOT: Final = re.compile(" dot ", re.IGNORECASE)
SPOKEN_LIMIT: Final = 50
"""Dictated addresses read in one prompt."""
_RUN_ON: Final = re.compile(r"(\.[a-z]{2,24})\.(?=[A-Z])")
_EDGE: Final = ".:'’/-"  # noqa: RUF001 - as above

SENTENCES: Final = 64
"""Sentences of one prompt, or one saved text, that are told apart."""
SENTENCE_WORDS: Final = 3
"""Words of the shortest sentence that says anything by itself."""
SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_DOUBT: Final = re.compile(
    r"\b(?:not|\w+n[’']t"  # noqa: RUF001 - apostrophes as typed
    r"|dont|cannot|never|no (?:circumstance|way|one|longer|more|case|account)\w*|none"
    r"|nobody|nothing|without|unless|except|if|avoid|refuse[sd]?|ignor\w+|forb\w+|stop"
    r"|false|wrong|fakes?|untrue|incorrect|phish\w*|scam\w*|spam\w*|attack\w*|hack\w*"
    r"|malicious|suspicious|fraud\w*|wrote|writes|says?|said|claim\w*|told|tells|asks"
    r"|asked|examples?|instead|supposed\w*|pretend\w*|quot\w+|following|nicht|kein\w*"
    r"|nie|niemals|ohne|falls|wenn|falsch|sagt\w*|schrieb\w*|behauptet\w*|angeblich\w*"
    r"|folgend\w*|ne|pas|jamais|sans|si|faux|dit|écri\w+|nunca|jamás|sin|falso|dice|dijo"
    r"|escribió|non|mai|senza|se|scrive|scritto|não|sem|disse|niet|geen|nooit|zonder|als"
    r"|zei|nigdy|bez|inte|ikke|aldrig|aldri|не|никогда|нет|без"
    r")\b|^\W*no\W*$|[不没別别勿]|ない|ません|않|말",
    re.IGNORECASE,
)
"""Words that make what stands beside them something else than what the user says."""
SENTENCE_EDGE: Final = " \t.!?;:,\"'-"


def own_words(prompt: str) -> str:
    """Return a prompt without what its user pasted into it."""
    text = prompt[:PROMPT_LIMIT]
    parts = _FENCE.split(text)
    # Fences come in pairs; an open one hides the rest, as every renderer does.
    outside = [part for index, part in enumerate(parts) if index % 4 == 0]
    text = "\n".join(outside)
    forwarded = _FORWARD.search(text)
    if forwarded is not None:
        text = text[: forwarded.start()]
    text = _QUOTED_LINE.sub(" ", text)
    pieces: list[str] = []
    end = 0
    for start, stop, inner, tagged in _quotations(text):
        pieces.append(text[end:start])
        pasted = "\n" in inner or len(inner) > QUOTE_LENGTH or len(inner.split()) > QUOTE_WORDS
        pieces.append(" " if pasted or tagged else text[start:stop])
        end = stop
    return "".join((*pieces, text[end:]))


def _quotations(text: str) -> Iterator[tuple[int, int, str, bool]]:
    """Yield start, end and inner text of each quotation, and whether tags delimit it.

    Work is linear: what closes each kind of quotation is looked for once, from left to right, not
    anew from every sign that may open one.
    """
    signs = {sign: _Ends(closing.finditer(text)) for sign, closing in _CLOSING.items()}
    tags: dict[str, list[re.Match[str]]] = {}
    for found in _CLOSING_TAG.finditer(text):
        tags.setdefault(found[1], []).append(found)
    ends = {name: _Ends(iter(found)) for name, found in tags.items()}
    end = 0
    for opening in _OPENING.finditer(text):
        inside, tag = opening.end(), opening["tag"]
        kind = ends.get(tag) if tag else signs[opening[0]]
        if opening.start() < end or kind is None:
            continue
        # A quotation has something in it; a tag that closes at once is no end of this one.
        closing = kind.first_from(inside + 1 if tag else inside)
        if closing is None or closing.start() == inside or closing[0] == "\n":
            continue
        if opening[0] == "'" and _LETTER.match(text, closing.end()) is not None:
            continue
        end = closing.end()
        yield opening.start(), end, text[inside : closing.start()], bool(tag)


class _Ends:
    """Places in a text, asked for from left to right: every one is passed once."""

    def __init__(self, found: Iterator[re.Match[str]]) -> None:
        self._found = found
        self._next = next(found, None)

    def first_from(self, position: int) -> re.Match[str] | None:
        """Return the first place that does not begin before a position."""
        while self._next is not None and self._next.start() < position:
            self._next = next(self._found, None)
        return self._next


def addresses_named(words: str) -> list[str]:
    """Return the values (addresses, URLs, accounts, handles) that a user's own words name.

    People dictate addresses (``jane at example dot org``) and forget the space behind a full
    stop; both are read.  No encoding is undone: nobody means an address by its base64.
    """
    piece = words[:PIECE]
    found = dict(find_values(piece, disguised=False).plain)
    spoken = " ".join(_written(run[0]) for run in islice(_SPOKEN.finditer(piece), SPOKEN_LIMIT))
    apart = _RUN_ON.sub(r"\1. ", piece)
    for reading in (spoken, apart if apart != piece else ""):
        found.update(find_values(reading, disguised=False).plain)
    return [value for value in found if _names(value)]


def _written(spoken: str) -> str:
    return _SAID_AT.sub("@", _SAID_DOT.sub(".", spoken))


def _names(value: str) -> bool:
    return not value.startswith("any:")


def names_given(words: str) -> list[str]:
    """Return handle values of every short run of words: what an opaque handle may be called."""
    return list(dict.fromkeys(islice(_runs(words), NAME_LIMIT)))


def _runs(words: str) -> Iterator[str]:
    for line in words.splitlines():
        tokens = [found[0].strip(_EDGE) for found in _WORD.finditer(line)]
        tokens = [token.removesuffix("'s").removesuffix("’s") for token in tokens if token]  # noqa: RUF001
        for length in range(1, NAME_WORDS + 1):
            for start in range(len(tokens) - length + 1):
                yield handle_value(" ".join(tokens[start : start + length]))


def sentences_said(words: str) -> list[str]:
    """Return the values of the sentences in a user's own words."""
    parts = [part for part in SENTENCE_END.split(words) if part.strip(SENTENCE_EDGE)]
    doubts = [_DOUBT.search(part) is not None for part in parts]
    # A sentence that others negate, report or doubt is not said alone: it could be cut out of them.
    found = (
        said_value(part)
        for part, own in zip(parts, doubts, strict=True)
        if not part.rstrip().endswith("?") and sum(doubts) == own
    )
    return list(dict.fromkeys(islice((value for value in found if value), SENTENCES)))


def said_value(sentence: str) -> str:
    """Return the value of a sentence in the user's words, empty where it says too little."""
    # No other reading of it: what hides between the words was not said.
    folded = " ".join(sentence.split()).casefold().strip(SENTENCE_EDGE)
    return f"{SAID}{folded}" if len(folded.split()) >= SENTENCE_WORDS else ""


def prompt_writes(
    seal: Seal, sets: LabelSets, identity: Identity, text: str, at: float
) -> list[LabelWrite]:
    """Return the records of what a user names in a prompt, outside what they pasted."""
    words = own_words(text)
    named = addresses_named(words)
    record = LabelRecord(
        Integrity.TRUSTED, Channel.PROMPT, -1, at, seal.session(identity), "prompt"
    )
    session = sets.session(identity)
    said = (*named, *names_given(words), *find_numbers(words), *sentences_said(words))
    entries = [
        seal.write(session, seal.fingerprint(value) + PROMPT, record)
        for value in dict.fromkeys(said)
    ]
    writes = [LabelWrite(session, LabelWriteMode.RAISE, tuple(entries))]
    # A name such as "Alice" means somebody else tomorrow; an address does not.
    lasting = replace(record, principal=seal.principal(identity), until=sets.until(at))
    for value in named:
        mark = seal.fingerprint(value)
        area = sets.own(identity, mark)
        entry = seal.write(area, mark + PROMPT, lasting)
        writes.append(LabelWrite(area, LabelWriteMode.REPLACE, (entry,)))
    return writes


def claim_writes(
    seal: Seal, sets: LabelSets, identity: Identity, values: Iterable[str], at: float
) -> list[LabelWrite]:
    """Return the records of what an agent says that its user named, for this session."""
    area = sets.session(identity)
    record = LabelRecord(Integrity.ADVISORY, Channel.CLAIM, -1, at, seal.session(identity), "user")
    entries = [seal.write(area, seal.fingerprint(value) + CLAIM, record) for value in values]
    return [LabelWrite(area, LabelWriteMode.KEEP, tuple(entries))]
