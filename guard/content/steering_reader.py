"""A learned reader of text that orders a model about.  Pure: no I/O but its own data.

Patterns know wordings; this knows what is spoken of together.  A sentence becomes the set of its
classes of words (who, what data, which act, what duty; ``steering_words.txt``, several languages),
of their neighbours in order and of the pairs that it holds, and a linear model that was trained on
written and generated orders and honest documentation gives a passage a score
(``steering_weights.txt``, a feature per line; ``guard lab train-steering``, card in
``models/steering.card.json``): an order is odd where it stands.  Of a definition it is also read
whether what a sentence speaks of is what the tool is for, by its name and its first sentence.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice, pairwise
from math import fsum, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import re2

from guard.content.letters import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guard.core.model import Json

SENTENCES: Final = 400
"""Sentences of a text that are read."""
TOKENS: Final = 60
"""Tokens of a sentence that are read; of it and the next together half as many more."""
NEAR: Final = 6
"""Tokens within which one class is said to follow another."""
WINDOW: Final = 2
"""Sentences that are read together."""
PASSAGE: Final = 8
"""Sentences that have one score; the next ones begin in the middle of them."""
LEAST: Final = 24
"""Known features that a passage counts as having at least: a few words prove little."""
LONG: Final = 1000
"""Characters of a sentence of a passage that are read."""
SCHEMAS: Final = ("inputSchema", "input_schema", "parameters", "outputSchema")
"""Members of which a definition has one."""
PARAMETERS: Final = 256
"""Parameters that are looked at on their own, nested ones included."""
PLACES: Final = 64
"""Places of a page that are read, of those that speak of a model."""
AROUND: Final = 400
"""Characters before and after such a place."""
GATE: Final = frozenset({"model", "rules"})
"""Classes of which a page has a word that is read at all."""
STEM: Final = "*"
"""Ends an entry that stands for every word which begins so."""
BIAS: Final = "bias"
NOTHING: Final = -100.0
"""Score of a definition that says nothing."""
STEERS: Final = 0.3
"""Score above which a definition is read as steering; a drawn honest one has 0.28."""
STEERS_PAGE: Final = 0.25
"""The same of a page: recipes among the answers of honest recorded runs have a score of 0.06."""
HONEST: Final = -2.5
"""Score up to which a definition is honest even where a frame or a few signals stand in it."""
HONEST_PAGE: Final = -3.0
"""Score up to which a page is honest even where a frame stands in it."""
DISCUSSED: Final = re2.compile(
    r"(?i)\b(?:phrases?|patterns?|examples?|such as|strings?|attacks?|injections?|prompts? like"
    r"|called|known as|e\.g\.|explain\w*|dangerous|malicious|jailbreak\w*|detect\w*|block\w*"
    r"|keywords?|poisoning)\b"
)
"""Words of a text that discusses wordings."""
_QUOTED: Final = re2.compile(
    r"(?:\B|\b[rbfuRBFU])[\"'`][^\n\"`]{1,300}?[\"'`]\B|[\x{201C}\x{2018}\x{AB}\x{201E}][^\n]{1,300}?[\x{201D}\x{2019}\x{BB}\x{201C}]"
)
_NOBODY: Final = re2.compile(
    r"(?i)https?://[^\s?#<>\"']{1,300}|\b(?:ssh|gpg|user|mail|transfer)-agents?\b"
    r"|\bassistants?\s(?:manager|professor|director|coach|principal|editor|secretary)s?\b"
)
"""A URL up to its query, programs that are called agents, and people: no model is spoken to."""
_READER: Final = (
    r"(?:machine|software|program|system|service|tool|who(?:ever|soever)?|any(?:one|thing)|what(?:ever)?)s?"
    r"\s+(?:(?:that|which|who|is|are|may be)\s+){0,2}"
    r"(?:read|handl|process|summari|pars|index|crawl|scan|answer)[a-z]*"
)
"""A reader who is named by what is done with the text: `the software that reads this`."""
_STOP: Final = (".", (".",))
_NAME_PART: Final = re.compile(r"[\W\d_]+|(?<=[a-z])(?=[A-Z])")
_SENTENCE: Final = re.compile(
    r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n\s*\n|\n(?=\s*[-*#>]|\s*:?\w+\s*[:(])|(?<=[\u3002\uff01\uff1f])"
)
_TOKEN: Final = re.compile(
    r"(?P<where>(?:https?|wss?|ftp)://\S+|[\w.+-]+@[\w-]+\.\w+)"
    r"|(?P<path>(?:~|/etc|/proc|/home|/root|\$home)/[\w./-]+|(?<!\w)\.(?:env|ssh|aws|netrc|npmrc|kube|gnupg|git-credentials|docker)\b|\bid_(?:rsa|ed25519)\b|\bmcp\.json\b)"
    r"|(?P<code>`[^`\n]{1,40}`)"
    r"|(?P<account>\b[a-z]{2}\d{2}[a-z0-9]{11,28}\b|\b0x[0-9a-f]{40}\b)"
    r"|(?P<snake>\b[a-z]+(?:_[a-z0-9]+)+\b)"
    r"|(?P<number>\d+)"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff]+)"
    r"|(?P<word>[^\W\d_]+(?:['\u2019-][^\W\d_]+)*)"
    r"|(?P<mark>[:;()<>{}\[\]|])"
)
_ENDINGS: Final = (
    ("ies", "y"),
    ("sses", "ss"),
    ("es", "e"),
    ("es", ""),
    ("'s", ""),
    ("s", ""),
    ("ed", "e"),
    ("ed", ""),
    ("ing", ""),
    ("ing", "e"),
    ("d", ""),
)


class Passage(NamedTuple):
    """What has one score.

    Attributes:
        said: its sentences.
        purpose: the classes of what the tool is for; None of a page.
    """

    said: tuple[str, ...]
    purpose: frozenset[str] | None = None


@cache
def _classes() -> dict[str, tuple[str, ...]]:
    """Return the classes of each word."""
    found: dict[str, list[str]] = {}
    text = files("guard.content").joinpath("steering_words.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        name, *words = line.split()
        for word in dict.fromkeys(words):
            # A page is searched for words of a model before its letters are folded.
            for spelling in dict.fromkeys((word, fold(word))):
                found.setdefault(spelling, []).append(name)
    return {word: tuple(dict.fromkeys(names)) for word, names in found.items()}


@cache
def _ideographs() -> tuple[str, ...]:
    return tuple(word for word in _classes() if not word.isascii() and not word[0].islower())


@cache
def _stems() -> dict[str, tuple[str, ...]]:
    """Return the classes of each beginning, of languages that inflect or add particles."""
    return {word[:-1]: names for word, names in _classes().items() if word.endswith(STEM)}


@lru_cache(maxsize=8192)
def _meaning(word: str) -> tuple[str, ...]:
    """Return the classes of a word in any of its forms."""
    known = _classes()
    word = word.replace("\u2019", "'")
    if word in known:
        return known[word]
    for ending, instead in _ENDINGS:
        if word.endswith(ending):
            stem = word[: len(word) - len(ending)] + instead
            if stem in known:
                return known[stem]
            if not instead and stem[-1:] == stem[-2:-1] and stem[:-1] in known:
                return known[stem[:-1]]
    stems = (word[:end] for end in range(len(word), 0, -1))
    return next((_stems()[stem] for stem in stems if stem in _stems()), ())


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, as many as are read."""
    return [one for one in _SENTENCE.split(text) if one and one.strip()][:SENTENCES]


def _tokens(sentence: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the tokens of a sentence, each with its classes."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for match in _TOKEN.finditer(fold(sentence).lower()):
        kind = match.lastgroup or ""
        text = match.group()
        if kind == "word":
            found.append((text, _meaning(text)))
        elif kind == "cjk":
            found += [(one, _classes()[one]) for one in _ideographs() if one in text]
        else:
            found.append((f"<{kind}>", (f"<{kind}>",)))
        if len(found) >= TOKENS:
            break
    return found


def windows(read: Sequence[str]) -> list[tuple[str, ...]]:
    """Return each sentence with the one behind it; orders are spread over two."""
    if len(read) < WINDOW:
        return [tuple(read)] if read else []
    return [tuple(read[start : start + WINDOW]) for start in range(len(read) - WINDOW + 1)]


def features(said: Iterable[str], purpose: frozenset[str] | None = None) -> set[str]:
    """Return the features of some sentences.

    They are ``w`` a word, ``v`` two that follow, ``s`` two with one between them, ``c`` a class and
    ``n`` two classes near each other in their order; of a definition also ``i`` a class that is in
    the purpose of the tool and ``o`` one that is not.
    """
    read = [token for sentence in said for token in (*_tokens(sentence), _STOP)][: TOKENS * 3 // 2]
    found = {f"w {word}" for word, _ in read}
    found |= {f"v {a[0]} {b[0]}" for a, b in pairwise(read)}
    found |= {f"s {a[0]} {b[0]}" for a, b in zip(read, read[2:], strict=False)}
    told = [(place, classes) for place, (_, classes) in enumerate(read) if classes]
    present: set[str] = set()
    for index, (place, classes) in enumerate(told):
        present.update(classes)
        for other, later in told[index + 1 : index + 1 + NEAR]:
            if other - place > NEAR:
                break
            found.update(f"n {a} {b}" for a in classes for b in later)
    found.update(f"c {a}" for a in present)
    if purpose is not None:
        found.update(f"i {a}" if a in purpose else f"o {a}" for a in present)
    return found


def definition_score(definition: Mapping[str, Json]) -> float:
    """Return the highest score of the passages of a definition; above ``STEERS`` it steers."""
    return max(map(_score, passages_of(definition)), default=NOTHING)


def page_score(text: str) -> float | None:
    """Return the highest score of the passages of a page; above ``STEERS_PAGE`` it steers.

    Only what stands around a word for a model or its instructions is read, so most texts cost one
    search; None where no such word is.
    """
    return max(map(_score, passages(text)), default=None)


def passages_of(definition: Mapping[str, Json]) -> Iterator[Passage]:
    """Yield the passages of a definition."""
    read = of_definition(definition)
    name = _NAME_PART.sub(" ", str(definition["name"]))
    told = (*_tokens(name), *_tokens(" ".join(read[:1])))
    yield from in_passages(read, frozenset(of for _, classes in told for of in classes))


def passages(text: str) -> Iterator[Passage]:
    """Yield each passage around a word for a model or its instructions."""
    for part in addressed(text):
        yield from in_passages(part)


def in_passages(read: Sequence[str], purpose: frozenset[str] | None = None) -> Iterator[Passage]:
    """Yield each eight sentences, and those from the middle of them on."""
    step = PASSAGE // 2
    if read:
        for start in range(0, max(1, len(read) - step), step):
            yield Passage(tuple(one[:LONG] for one in read[start : start + PASSAGE]), purpose)


def of_definition(definition: Mapping[str, Json]) -> list[str]:
    """Return the sentences of a definition: its description's, then those of its parameters.

    Its own name is none of another tool.
    """
    name = str(definition["name"])
    found: list[str] = []
    for member, value in definition.items():
        if isinstance(value, str) and member != "name":
            found += sentences(without_own_name(name, value))
    for key, schema in parameters(definition):
        said = schema.get("description")
        if isinstance(said, str) and said.lower() != key.lower():
            found += [f"`{key}` : {one}" for one in sentences(without_own_name(name, said))]
    return found[:SENTENCES]


def without_own_name(name: str, text: str) -> str:
    """Return what a tool of this name says, with "this one" for its name."""
    return re.sub(rf"(?<![\w@./-]){re.escape(name)}(?!\w|[@/-]|\.\w)", "this one", text)


def parameters(definition: Mapping[str, Json]) -> list[tuple[str, Mapping[str, Json]]]:
    """Return name and schema of the parameters, nested ones too."""
    found: list[tuple[str, Mapping[str, Json]]] = []
    waiting: list[Json] = [definition.get(member) for member in SCHEMAS]
    while waiting and len(found) < PARAMETERS:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        properties = schema.get("properties")
        items = properties.items() if isinstance(properties, dict) else ()
        named = [(key, value) for key, value in items if isinstance(value, dict)]
        found += named
        waiting += [value for _, value in named]
        waiting.append(schema.get("items"))
    return found[:PARAMETERS]


def addressed(text: str) -> Iterator[list[str]]:
    """Yield the sentences around each place where a text speaks of a model or its instructions.

    What stands in quotation marks is left out where the text discusses such phrases.
    """
    if _gate().search(text) is None:
        return
    text = without_mentions(text)
    spans: list[tuple[int, int]] = []
    others = [found.span() for found in _NOBODY.finditer(text)]
    for match in islice(_gate().finditer(text), PLACES):
        if any(first - 1 <= match.start() and match.end() <= last + 1 for first, last in others):
            continue
        start = max(0, match.start() - AROUND)
        if spans and start < spans[-1][1]:
            start = spans.pop()[0]
        spans.append((start, match.end() + AROUND))
    yield from (sentences(text[start:end]) for start, end in spans)


def without_mentions(text: str) -> str:
    """Return a text without what stands in quotation marks, where it discusses such phrases."""
    left: str = _QUOTED.sub('""', text) if DISCUSSED.search(text) else text
    return left


_BOUGHT: Final = frozenset({"order", "orders"})
"""What is given and what is bought: in a name that goes on (``order_id``) it is bought."""


@cache
def _gate() -> re2._Regexp:
    """Return the expression for words of a model and its instructions."""
    words = [word for word, names in _classes().items() if GATE & set(names)]
    plain = "|".join(_formed(word) for word in words if word.isascii())
    other = "|".join(_formed(word) for word in words if not word.isascii())
    return re2.compile(rf"(?i)(?:^|[^a-z])(?:{plain}|{_READER})(?:[^a-z]|$)|{other}")


def _formed(word: str) -> str:
    """Return the expression for a word, or for every word with its beginning."""
    plain: str = re2.escape(word.removesuffix(STEM))
    if word in _BOUGHT:
        return rf"{plain}\b"
    return f"{plain}[a-z]*" if word.endswith(STEM) else plain


@cache
def _model() -> dict[str, tuple[float, float]]:
    """Return the weights of each feature: in a definition and in a page."""
    text = files("guard.content").joinpath("steering_weights.txt").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {feature: (float(first), float(second)) for feature, first, second in rows}


def _score(passage: Passage) -> float:
    """Return the score of a passage: the sum of its weights, in the scale of how much it says."""
    found: dict[str, float] = {}
    for one in windows(passage.said):
        found.update(_weights(one, passage.purpose))
    # Exact, as the order of a set is another in each process.
    said = fsum(found.values()) / sqrt(max(LEAST, len(found)))
    return said + _model()[BIAS][passage.purpose is None]


@lru_cache(maxsize=256)
def _weights(said: tuple[str, ...], purpose: frozenset[str] | None) -> dict[str, float]:
    """Return the weights of what some sentences say, as far as the model knows it.

    A text is read in several readings, which share most of their sentences.
    """
    model, column = _model(), int(purpose is None)
    known = (f for f in features(said, purpose) if f in model)
    return {f: weight for f in known if (weight := model[f][column])}
