"""What of a prompt is kept: label records of what its user names.  Pure: no I/O.

Receivers, names and messages to answer, by the position in which they stand
(:mod:`guard.provenance.mentions`), vouch for destinations.  Whatever else the user's own words
contain vouches only where nothing is sent to: for a page that is read and for guarded arguments.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelWrite, LabelWriteMode
from guard.core.model import Integrity
from guard.destinations.values import SAID, find_numbers, handle_value
from guard.provenance.label_sets import CLAIM, DENIED, PROMPT
from guard.provenance.mentions import mentions_in, own_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.model import Identity
    from guard.provenance.label_sets import LabelSets
    from guard.provenance.mentions import Mentions
    from guard.provenance.seal import Seal

MENTIONED: Final = "mentioned:"
"""First part of a typed value wherever it stands in a prompt: named to be read or passed on."""
HOLDER: Final = "holder:"
"""First part of a page of which the user says that somebody's address stands on it."""
WORDS: Final = "words:"
"""First part of a few words that stand somewhere in a prompt."""
NAME_WORDS: Final = 6
"""Words of the longest name (of a person, a channel, a subject) that a prompt can give."""
NAME_LIMIT: Final = 4000
"""Names taken from one prompt."""

_WORD: Final = re.compile(r"[\w@#][\w.@#:/+'’-]{0,126}")  # noqa: RUF001 - apostrophes as typed
_EDGE: Final = ".:'’/-"  # noqa: RUF001 - as above

SENTENCES: Final = 64
"""Sentences of the longest prompt that can be saved as its user's words."""
SENTENCE_WORDS: Final = 3
"""Words of the shortest sentence that says anything by itself."""
SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_ASIDE_WORDS: Final = (
    "please kindly remember memorize memorise note save store keep this that it these those both "
    "all them in mind memory to for me us later down yes yeah ok okay hi hello thanks thank you "
    "very much bitte merk merke dir das dies notiere speichere ja hallo danke souviens retiens "
    "ceci merci oui bonjour recuerda guarda esto gracias hola ricorda questo grazie ciao"
)
"""Words of sentences that say no more than that another one is to be remembered."""
_ASIDE: Final = frozenset(_ASIDE_WORDS.split())
SENTENCE_EDGE: Final = " \t.!;:,\"'-"


def mentioned_value(value: str) -> str:
    """Return under which value a prompt keeps a typed value, whatever it is named as."""
    return f"{MENTIONED}{value}"


def holder_value(page: str, name: str = "") -> str:
    """Return under which value a prompt keeps a page on which somebody's address stands.

    Args:
        page: a link value.
        name: one word of what the page's owner is called, where only his own address is meant.
    """
    return f"{HOLDER}{page} {handle_value(name)}" if name else f"{HOLDER}{page}"


def words_value(value: str) -> str:
    """Return under which value a prompt keeps the words that a guarded text may consist of."""
    return f"{WORDS}{value}"


def names_given(words: str) -> list[str]:
    """Return handle values of every short run of words: what an opaque handle may be called."""
    return list(dict.fromkeys(islice(_runs(words), NAME_LIMIT)))


def _words(line: str) -> list[str]:
    return [found[0].strip(_EDGE) for found in _WORD.finditer(line)]


def _runs(words: str) -> Iterator[str]:
    for line in words.splitlines():
        tokens = [token.removesuffix("'s").removesuffix("’s") for token in _words(line) if token]  # noqa: RUF001
        for length in range(1, NAME_WORDS + 1):
            for start in range(len(tokens) - length + 1):
                yield handle_value(" ".join(tokens[start : start + length]))


def sentences_said(words: str) -> list[str]:
    """Return the value of a user's own words as a whole, without what only asks to remember them.

    INVARIANT (nothing is cut out): a part of a prompt has no value of its own.  What stands beside
    it can negate, report, doubt or take it back in any words of any language.
    """
    parts = [part for part in SENTENCE_END.split(words) if part.strip(SENTENCE_EDGE)]
    own = [part for part in parts if not _ASIDE.issuperset(_words(part.casefold()))]
    value = said_value(*own) if len(own) <= SENTENCES else ""
    return [value] if value else []


def said_value(*sentences: str) -> str:
    """Return the value of sentences in the user's words, empty where they say too little."""
    # No other reading of them: what hides between the words was not said.
    folded = [" ".join(one.split()).casefold().strip(SENTENCE_EDGE) for one in sentences]
    says = any(len(one.split()) >= SENTENCE_WORDS for one in folded)
    return SAID + "\n".join(folded) if says else ""


def prompt_writes(
    seal: Seal, sets: LabelSets, identity: Identity, text: str, at: float
) -> list[LabelWrite]:
    """Return the records of what a user names in a prompt, outside what they pasted."""
    words, named = own_words(text), mentions_in(text)
    record = LabelRecord(
        Integrity.TRUSTED, Channel.PROMPT, -1, at, seal.session(identity), "prompt"
    )
    session = sets.session(identity)
    vouched = (*named.receivers, *named.names, *named.messages)
    typed = (*named.receivers, *named.sources, *named.names, *named.places, *named.pages)
    said = (
        *vouched,
        *map(mentioned_value, typed),
        *map(holder_value, named.holders),
        *(holder_value(page, name) for page, name in named.homes),
        *map(words_value, names_given(words)),
        *find_numbers(words),
        *sentences_said(words),
    )
    entries = [
        seal.write(session, seal.fingerprint(value) + PROMPT, record)
        for value in dict.fromkeys(said)
    ]
    writes = [LabelWrite(session, LabelWriteMode.RAISE, tuple(entries))]
    # A request holds in its session; what is to be remembered, for its user until labels end.
    lasts = replace(record, principal=seal.principal(identity), until=sets.until(at))
    kept = [
        seal.write(session, seal.fingerprint(value) + PROMPT, lasts)
        for value in named.kept
        if value in named.receivers
    ]
    if kept:
        writes.append(LabelWrite(session, LabelWriteMode.REPLACE, tuple(kept)))
    # The newest word counts: what is refused now vouches no more, whatever was said before.
    refused = replace(record, label=Integrity.UNTRUSTED)
    taken_back = [
        seal.write(session, seal.fingerprint(value) + PROMPT, refused) for value in named.refused
    ]
    if taken_back:
        writes.append(LabelWrite(session, LabelWriteMode.REPLACE, tuple(taken_back)))
    return [*writes, *_restriction_writes(seal, sets, identity, named, refused)]


def _restriction_writes(
    seal: Seal, sets: LabelSets, identity: Identity, named: Mentions, refused: LabelRecord
) -> Iterator[LabelWrite]:
    """Yield the denials that hold in every session of the principal; a new request lifts one."""
    area = sets.restrictions(identity.tenant, identity.principal)
    lifted = tuple((seal.fingerprint(value) + DENIED, b"") for value in named.receivers)
    if lifted:
        yield LabelWrite(area, LabelWriteMode.LIFT, lifted)
    record = replace(refused, principal=seal.principal(identity), until=sets.until(refused.at))
    denied = [seal.write(area, seal.fingerprint(value) + DENIED, record) for value in named.refused]
    if denied:
        yield LabelWrite(area, LabelWriteMode.REPLACE, tuple(denied))


def claim_writes(
    seal: Seal, sets: LabelSets, identity: Identity, values: Iterable[str], at: float
) -> list[LabelWrite]:
    """Return the records of what an agent says that its user named, for this session."""
    area = sets.session(identity)
    record = LabelRecord(Integrity.ADVISORY, Channel.CLAIM, -1, at, seal.session(identity), "user")
    entries = [seal.write(area, seal.fingerprint(value) + CLAIM, record) for value in values]
    return [LabelWrite(area, LabelWriteMode.KEEP, tuple(entries))]
