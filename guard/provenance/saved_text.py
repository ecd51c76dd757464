"""What a text that is about to be saved is made of: labels of its values, words of its user.  Pure.

The label of a saved text is the minimum over the values in it and what its session has read.  A
text is its user's own only where every sentence of it was said on the authenticated prompt
channel, word for word; such a text keeps its label whatever the session has read.  No I/O.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.labels import Rung, SavedText
from guard.core.model import Integrity
from guard.destinations.values import SAID, find_values, leaf_value
from guard.provenance.ladder import attest_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.labels import Context, LabelRecord
    from guard.provenance.label_query import LabelQuery

SENTENCES: Final = 64
"""Sentences of one prompt, or one saved text, that are told apart."""
SENTENCE_WORDS: Final = 3
"""Words of the shortest sentence that says anything by itself."""
TELLING: Final = 16
"""Characters of the shortest whole text of which it can be said where it came from."""
_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD: Final = re.compile(r"[^\W_]+")
_EDGE: Final = " \t.!?;:,\"'-"


def sentences_said(words: str) -> list[str]:
    """Return the values of the sentences in a user's own words."""
    found = (_said(sentence) for sentence in _END.split(words))
    return list(dict.fromkeys(islice((value for value in found if value), SENTENCES)))


def _said(sentence: str) -> str:
    # No other reading of it: what hides between the words was not said.
    folded = " ".join(sentence.split()).casefold().strip(_EDGE)
    return f"{SAID}{folded}" if len(folded.split()) >= SENTENCE_WORDS else ""


def _all_said(texts: Sequence[str]) -> list[str]:
    """Return the values of every sentence of some texts, nothing where one cannot be told apart.

    A text that is no sentence (a key, a title) must be made of words of the others.
    """
    parts = [part for text in texts for part in _END.split(text) if part.strip(_EDGE)]
    values = [value for part in parts if (value := _said(part))]
    words = {word for value in values for word in _WORD.findall(value.removeprefix(SAID))}
    rest = [part for part in parts if not _said(part)]
    told = all(words.issuperset(_WORD.findall(part.casefold())) for part in rest)
    plain = all(part.isascii() and part.isprintable() for part in rest)
    return values if told and plain and len(values) <= SENTENCES else []


def ask_saved(question: LabelQuery, texts: Sequence[str]) -> None:
    """Ask about everything in a text that is about to be saved."""
    for text in texts:
        found = find_values(text)
        further = (*found.disguised, *_whole(text))
        question.add(found.plain)
        question.add(further, taint_only=True)
        question.saved += (*found.plain, *further)
        question.complete = question.complete and not found.overflow
    question.said = tuple(_all_said(texts))
    question.add(question.said)


def saved_text(question: LabelQuery, context: Context, *, unsure: bool) -> SavedText:
    """Return the label of a text from the answer to :func:`ask_saved`.

    Args:
        question: what was asked.
        context: what is known of the values.
        unsure: whether a value without a label may be anybody's.
    """
    if question.said and all(
        attest_values((value,), (), context).rung is Rung.PROMPTED for value in question.said
    ):
        return SavedText(Integrity.TRUSTED, prompted=True)
    lowest = Integrity.ADVISORY
    origins: set[bytes] = set()
    for value in question.saved:
        label, origin = label_of(value, context)
        if label is Integrity.UNTRUSTED:
            lowest = label
            if origin is not None and origin.origin:
                origins.add(origin.origin)
    if (unsure and question.saved) or context.read_untrusted is not None:
        lowest = Integrity.UNTRUSTED
    return SavedText(lowest, frozenset(origins))


def _whole(text: str) -> tuple[str, ...]:
    value = leaf_value(text) if len(text.strip()) >= TELLING else None
    return () if value is None else (value,)


def label_of(value: str, context: Context) -> tuple[Integrity, LabelRecord | None]:
    """Return the label a value is saved with, and the record that decided it if one did."""
    attested = attest_values((value,), (), context)
    if attested.rung <= Rung.REMEMBERED:
        return Integrity.AUTHENTICATED, attested.record
    if attested.rung >= Rung.TAINTED:
        return Integrity.UNTRUSTED, attested.record
    if context.read_untrusted is not None:
        return Integrity.UNTRUSTED, context.read_untrusted
    return Integrity.ADVISORY, None
