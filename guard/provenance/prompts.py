"""Label records of a prompt.  Pure: no I/O.

Typed values (:mod:`guard.provenance.prompt_reader`) attest destinations.  The other words of the
user attest only reads and guarded arguments, and names that a directory resolves.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.labels import Channel, LabelRecord, LabelWrite, LabelWriteMode
from guard.core.model import Identity, Integrity, UserPrompt
from guard.core.policy import PolicyNeeds
from guard.provenance.actions import PROMPTED, named_objects, refused_values, requested_values
from guard.provenance.errands import ERRAND, errand_record
from guard.provenance.label_sets import CLAIM, DENIED, PROMPT, LabelSets
from guard.provenance.named_documents import names_in, sites_at, sites_in
from guard.provenance.prompt_reader import (
    ASIDE,
    SENTENCE_COUNT,
    PromptValues,
    own_sentences,
    own_text,
    read_prompt,
    without_values,
)
from guard.values.canonical import read_destinations
from guard.values.finding import SAID, find_numbers, handle_value, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guard.provenance.seal import Seal

MENTIONED: Final = "mentioned:"
"""Prefix of a typed value of a prompt that may be read."""
ANSWER: Final = "answer:"
"""Prefix of a typed value of a prompt that only answers or corrects an earlier one."""
REQUESTS: Final = f"{ANSWER}*"
"""Value recorded with a prompt that requests an action on its values."""
WORDS: Final = "words:"
"""Prefix of a run of words of a prompt."""
NAME_WORDS: Final = 6
"""Maximum number of words of a name (of a person, a channel, a subject)."""
NAME_LIMIT: Final = 4000
"""Maximum number of names taken from one prompt."""

_WORD: Final = re.compile(r"[\w@#][\w.@#:/+'’-]{0,126}")  # noqa: RUF001 - apostrophes as typed
_EDGE: Final = ".:'’/-"  # noqa: RUF001 - as above

SENTENCES: Final = 64
"""Maximum number of sentences of a prompt that can be saved as words of its user."""
SENTENCE_WORDS: Final = 3
"""Minimum number of words of a sentence that is a value by itself."""
SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
SENTENCE_EDGE: Final = " \t.!;:,\"'-"


def mentioned_value(value: str) -> str:
    """Return the value under which a typed value may be read."""
    return f"{MENTIONED}{value}"


def answer_value(value: str) -> str:
    """Return the value under which a typed value counts after an earlier request."""
    return f"{ANSWER}{value}"


def words_value(value: str) -> str:
    """Return the value of a run of words, of which a name or a guarded text may consist."""
    return f"{WORDS}{value}"


def names_given(words: str) -> list[str]:
    """Return the handle values of every short run of words: possible names."""
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
    own = [part for part in parts if not ASIDE.issuperset(_words(part.casefold()))]
    value = said_value(*own) if len(own) <= SENTENCES else ""
    return [value] if value else []


def said_value(*sentences: str) -> str:
    """Return the value of sentences in the user's words, empty where they say too little."""
    # Only this reading of them: the user did not say text hidden between the words.
    folded = [" ".join(one.split()).casefold().strip(SENTENCE_EDGE) for one in sentences]
    says = any(len(one.split()) >= SENTENCE_WORDS for one in folded)
    return SAID + "\n".join(folded) if says else ""


def prompt_writes(
    seal: Seal,
    sets: LabelSets,
    identity: Identity,
    prompt: UserPrompt,
    at: float,
    needs: PolicyNeeds | None = None,
) -> list[LabelWrite]:
    """Return the records of the values that a user types in a prompt, for this session.

    Names have the label ``trusted`` only in clear sentences: those alone resolve in a directory.
    """
    needs, text = needs or PolicyNeeds(), prompt.text
    actions = outside_values(needs.actions.words)
    found = read_prompt(text, needs.actions.reaches)
    _add_structure(found, prompt)
    session = sets.session(identity)
    record = LabelRecord(
        Integrity.TRUSTED, Channel.PROMPT, -1, at, seal.session(identity), "prompt"
    )
    words = own_text(text)
    values = [
        *found.attested,
        *map(mentioned_value, found.mentioned),
        *map(answer_value, found.answers),
        *([REQUESTS] if found.requests else ()),
        *_locations([*found.clear, *prompt.attachments], prompt.hosts, needs),
        *find_numbers(words),
        *sentences_said(words),
        *(requested_values(found.clear, actions) if actions is not None else ()),
        *named_objects(found.clear),
    ]
    names = names_given("\n".join(found.clear))
    sentences = "\n".join(islice(own_sentences(text), SENTENCE_COUNT))
    others = names_given(sentences)[: NAME_LIMIT - len(names)]
    labels = dict.fromkeys(map(words_value, others), replace(record, label=Integrity.AUTHENTICATED))
    if actions is not None:
        tentative = requested_values(found.tentative, actions)
        labels |= dict.fromkeys(tentative, replace(record, label=Integrity.ADVISORY))
    labels |= dict.fromkeys([*values, *map(words_value, names)], record)
    entries = [
        seal.write(session, seal.fingerprint(value) + PROMPT, one) for value, one in labels.items()
    ]
    writes = [LabelWrite(session, LabelWriteMode.RAISE, tuple(entries))]
    lasts = replace(record, principal=seal.principal(identity), until=sets.until(at))
    kept = [seal.write(session, seal.fingerprint(value) + PROMPT, lasts) for value in found.kept]
    if kept:
        writes.append(LabelWrite(session, LabelWriteMode.REPLACE, tuple(kept)))
    # The newest prompt counts: a denied value is not attested by an earlier prompt.
    refused = replace(record, label=Integrity.UNTRUSTED)
    denied = [
        seal.write(session, seal.fingerprint(value) + PROMPT, refused)
        for value in (
            *found.denied,
            *map(answer_value, found.denied),
            *_locations(found.negated, (), needs),
            *named_objects(found.negated),
            *(refused_values(found.negated, actions) if actions else ()),
        )
    ]
    begins = seal.write(session, seal.fingerprint(ERRAND) + PROMPT, errand_record(record))
    writes.append(LabelWrite(session, LabelWriteMode.REPLACE, (*denied, begins)))
    return [*writes, *_restriction_writes(seal, sets, identity, found, refused)]


def outside_values(
    words: Callable[[str], tuple[str, ...]] | None,
) -> Callable[[str], tuple[str, ...]] | None:
    """Return a reader of actions that takes no word of an address or a URL for a request."""
    return None if words is None else lambda sentence: words(without_values(sentence))


def _add_structure(found: PromptValues, prompt: UserPrompt) -> None:
    """Add the recipients and hosts that a form states.

    INVARIANT (a no counts): a value that the text denies stays denied.
    """
    stated = [value for one in (*prompt.recipients, *prompt.hosts) for value in _stated(one)]
    found.attested.update((value, None) for value in stated if value not in found.denied)


def _locations(sentences: Sequence[str], hosts: Sequence[str], needs: PolicyNeeds) -> Iterator[str]:
    """Yield the values of the documents and sites that sentences name, as far as rules use them."""
    if needs.delegated and needs.actions.words is not None:
        yield from names_in(sentences, needs.actions.words)
    if needs.shared_hosts is not None:
        yield from sites_in(sentences, needs.shared_hosts)
        for host in hosts:
            yield from sites_at(host, needs.shared_hosts)


def _stated(text: str) -> tuple[str, ...]:
    """Return the values of a destination in a field of a form; empty if it is not exactly one."""
    destinations = read_destinations(text)
    return keys_of(destinations[0])[:1] if len(destinations) == 1 else ()


def _restriction_writes(
    seal: Seal, sets: LabelSets, identity: Identity, found: PromptValues, refused: LabelRecord
) -> Iterator[LabelWrite]:
    """Yield the denials that hold in every session of the principal; a new request lifts one."""
    area = sets.restrictions(identity.tenant, identity.principal)
    lifted = tuple((seal.fingerprint(value) + DENIED, b"") for value in found.attested)
    if lifted:
        yield LabelWrite(area, LabelWriteMode.LIFT, lifted)
    record = replace(refused, principal=seal.principal(identity), until=sets.until(refused.at))
    # A principal with a prompt channel has one in each of its sessions.
    denied = [
        seal.write(area, seal.fingerprint(value) + DENIED, record)
        for value in (*found.denied, PROMPTED)
    ]
    yield LabelWrite(area, LabelWriteMode.REPLACE, tuple(denied))


def claim_writes(
    seal: Seal, sets: LabelSets, identity: Identity, values: Iterable[str], at: float
) -> list[LabelWrite]:
    """Return the records of values that an agent claims its user named, for this session."""
    area = sets.session(identity)
    record = LabelRecord(Integrity.ADVISORY, Channel.CLAIM, -1, at, seal.session(identity), "user")
    entries = [seal.write(area, seal.fingerprint(value) + CLAIM, record) for value in values]
    return [LabelWrite(area, LabelWriteMode.KEEP, tuple(entries))]
