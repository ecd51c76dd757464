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
from itertools import chain, islice, pairwise, repeat, zip_longest
from math import fsum, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import re2

from guard.content.decoder import fold
from guard.content.prefilter import is_in, replaced, spans_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from guard.core.model import Json

SENTENCES: Final = 400
"""Sentences of a text that are read."""
TOKENS: Final = 60
"""Tokens of a sentence that are read."""
NEAR: Final = 6
"""Tokens within which one class is said to follow another, in a sentence or into the next."""
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
PLACES: Final = (64, 4)
"""Places of a page that are read, of those that have a word of a gate."""
AROUND: Final = 400
"""Characters before such a place; twice as many behind it."""
GATES: Final = (frozenset({"model", "rules"}), frozenset({"you", "user"}))
"""Classes of which a page has a word where it is read; the second if none of the first."""
STEM: Final = "*"
"""Ends an entry that stands for every word which begins so."""
BIAS: Final = "bias"
NOTHING: Final = -100.0
"""Score of a definition that says nothing."""
STEERS: Final = 0.3
"""Score above which a definition is read as steering; a drawn honest one has 0.28."""
STEERS_PAGE: Final = 0.12
"""The same of a page; an order that a text quotes has 0.11."""
UNNAMED: Final = 2.0
"""How much more it takes in a page that names no model and none of its instructions."""
PROSE: Final = 6
"""Words that such a page has at least: a URL or an id is no page."""
HONEST: Final = -2.5
"""Score up to which a definition is honest even where a frame or a few signals stand in it."""
HONEST_PAGE: Final = -3.0
"""Score up to which a page is honest even where a frame stands in it."""
_DISCUSSED: Final = re2.compile(
    r"(?i)\b(?:phrases?|patterns?|examples?|such as|strings?|attacks?|injections?|prompts? like"
    r"|called|known as|e\.g\.|explain\w*|dangerous|malicious|jailbreak\w*|detect\w*|block\w*"
    r"|keywords?|poisoning)\b"
)
"""Words of a text that discusses wordings."""
_ADDRESSES: Final = re2.compile(
    r"(?i)\b(?:https?|wss?|ftp)://\S+|[\w.+-]+@[\w.-]+|\b[\w-]{2,}(?:\.[\w-]{2,})+(?:/\S*)?"
)
"""Where something is: what stands in it (`attacker.example`) discusses no wording."""
_BLANKS: Final = "\t\n\f\r "
"""As the expressions know them."""
_BLANK: Final = re.compile(f"[{_BLANKS}]")
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
_WORDS: Final = frozenset({"plain", "word"})
_STOP: Final = (".", (".",))
_NAME_PART: Final = re.compile(r"[\W\d_]+|(?<=[a-z])(?=[A-Z])")
_SENTENCE: Final = re.compile(
    r"(?<=[.!?\u3002\uff01\uff1f])\s+|\n\s*\n|\n(?=\s*[-*#>]|\s*:?\w+\s*[:(])|(?<=[\u3002\uff01\uff1f])"
)
_WIDE_STOPS: Final = ("\u3002", "\uff01", "\uff1f")
_PLAIN_SENTENCE: Final = re.compile(
    r"\s(?:(?<=[.!?]\s)\s*|(?<=\n)(?:\s*\n|(?=\s*[-*#>]|\s*:?\w+\s*[:(])))"
)
"""The same in a text without such stops; the engine skips to the blanks."""
_TOKEN: Final = re.compile(
    # Most are plain words; the same as `word`, found at once.
    r"(?P<plain>[a-z]+)(?=[ ,\n])"
    r"|(?P<where>(?:https?|wss?|ftp)://\S+|[\w.+-]+@[\w-]+\.\w+)"
    r"|(?P<path>(?:~|/etc|/proc|/home|/root|\$home)/[\w./-]+|(?<!\w)\.(?:env|ssh|aws|netrc|npmrc|kube|gnupg|git-credentials|docker)\b|\bid_(?:rsa|ed25519)\b|\bmcp\.json\b)"
    r"|(?P<code>`[^`\n]{1,40}`)"
    r"|(?P<account>\b[a-z]{2}\d{2}[a-z0-9]{11,28}\b|\b0x[0-9a-f]{40}\b)"
    r"|(?P<snake>\b[a-z]+(?:_[a-z0-9]+)+\b)"
    r"|(?P<number>\d+)"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff]+)"
    r"|(?P<word>[^\W\d_]+(?:['\u2019-][^\W\d_]+)*)"
    r"|(?P<mark>[:;()<>{}\[\]|])"
)
_IDEOGRAPH: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
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
        purpose: the classes of what the tool is for, or of what a page begins with.
        page: whether it is of a page, else of a definition.
    """

    said: tuple[str, ...]
    purpose: frozenset[str] = frozenset()
    page: bool = False


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
    ends = _SENTENCE if any(stop in text for stop in _WIDE_STOPS) else _PLAIN_SENTENCE
    return [one for one in ends.split(text) if one and one.strip()][:SENTENCES]


Classes = tuple[str, ...]
Token = tuple[str, Classes]
Feature = str | tuple[str, str] | tuple[str, None, str]


def _tokens(sentence: str) -> Sequence[Token]:
    """Return the tokens of a sentence, each with its classes."""
    said = fold(sentence).lower()
    if "`" in said or not (said.isascii() or _IDEOGRAPH.search(said) is None):
        return _read(said)
    # No other token has a space in it, and the same words come again and again.
    return list(chain.from_iterable(map(_in_word, said.split())))[:TOKENS]


@lru_cache(maxsize=16384)
def _in_word(word: str) -> Sequence[Token]:
    """Return the tokens of what stands between two spaces."""
    return _read(word)


def _read(said: str) -> Sequence[Token]:
    found: list[Token] = []
    for match in islice(_TOKEN.finditer(said), TOKENS):
        kind = match.lastgroup
        text = match[0]
        if kind in _WORDS:
            found.append((text, _meaning(text)))
        elif kind == "cjk":
            found += [(one, _classes()[one]) for one in _ideographs() if one in text]
        else:
            found.append(_kind(kind))
    return found


@cache
def _kind(name: str | None) -> Token:
    return f"<{name}>", (f"<{name}>",)


def features(passage: Passage) -> set[str]:
    """Return the features of a passage.

    They are ``w`` a word, ``v`` two that follow, ``s`` two with one between them, ``c`` a class and
    ``n`` two classes near each other in their order, ``i`` a class that is in the purpose of the
    tool, or in what a page begins with, and ``o`` one that is not.
    """
    said = passage.said
    found: set[str] = set()
    for one, following in zip_longest(said, said[1:]):
        found |= _features(one, following)
    return found | {_place(of[2:], passage.purpose) for of in found if of.startswith("c ")}


def _place(of: str, purpose: frozenset[str]) -> str:
    return f"i {of}" if of in purpose else f"o {of}"


def _features(sentence: str, following: str | None) -> set[str]:
    """Return the features of a sentence, and of its end with the beginning of the next."""
    own = (*_tokens(sentence), _STOP)
    read = (*own, *_tokens(following or "")[:NEAR])
    words = [word for word, _ in read]
    found = {f"w {word}" for word, _ in own}
    found.update(f"v {a} {b}" for (a, _), b in zip(own, words[1:], strict=False))
    found.update(f"s {a} {b}" for (a, _), b in zip(own, words[2:], strict=False))
    found.update(f"c {of}" for _, classes in own for of in classes)
    for classes, later in _neighbours(read, len(own)):
        found |= _near(classes, later)
    return found


@lru_cache(maxsize=8192)
def _near(first: tuple[str, ...], then: tuple[str, ...]) -> frozenset[str]:
    return frozenset(f"n {a} {b}" for a in first for b in then)


def classes_in(sentences: Iterable[str]) -> frozenset[str]:
    """Return the classes of words in some sentences."""
    return frozenset(of for one in sentences for _, classes in _tokens(one) for of in classes)


def definition_score(definition: Mapping[str, Json]) -> float:
    """Return the highest score of the passages of a definition; above ``STEERS`` it steers."""
    return max(_scores(*_read_of(definition)), default=NOTHING)


def page_score(text: str) -> float | None:
    """Return the highest score of the passages of a page; above ``STEERS_PAGE`` it steers.

    Only what stands around a word for a model or its instructions is read, else around one for the
    reader or a user: there an order has to be plainer (``UNNAMED``), and nothing is said to be
    honest.  None where nothing is said.
    """
    scores = chain.from_iterable(_scores(part, of) for part, of in _parts(text))
    if is_in(_gates()[0][0], text):
        return max(scores, default=None)
    if len(text.split(maxsplit=PROSE)) < PROSE:
        return None
    found = max(scores, default=NOTHING)
    return found if found > STEERS_PAGE + UNNAMED else None


def passages_of(definition: Mapping[str, Json]) -> Iterator[Passage]:
    """Yield the passages of a definition."""
    yield from _in_passages(*_read_of(definition))


def _read_of(definition: Mapping[str, Json]) -> tuple[list[str], Passage]:
    """Return the sentences of a definition, and a passage of it that says nothing."""
    read = of_definition(definition)
    name = _NAME_PART.sub(" ", str(definition["name"]))
    return read, Passage((), classes_in((name, *read[:1])))


def passages(text: str) -> Iterator[Passage]:
    """Yield each passage around a word for a model, its instructions, the reader or a user."""
    for part, of in _parts(text):
        yield from _in_passages(part, of)


def _parts(text: str) -> Iterator[tuple[list[str], Passage]]:
    """Yield the sentences that are read of a page, each time with a passage that says nothing."""
    begins = (one[:LONG] for one in sentences(text[:LONG])[:1])
    of = Passage((), classes_in(begins), page=True)
    return ((part, of) for part in addressed(text))


def _in_passages(read: Sequence[str], of: Passage) -> Iterator[Passage]:
    """Yield each eight sentences, and those from the middle of them on."""
    for start in _starts(read):
        yield of._replace(said=tuple(one[:LONG] for one in read[start : start + PASSAGE]))


def _starts(read: Sequence[str]) -> range:
    """Return with which of some sentences their passages begin."""
    step = PASSAGE // 2
    return range(0, max(1, len(read) - step) if read else 0, step)


def of_definition(definition: Mapping[str, Json]) -> list[str]:
    """Return the sentences of a definition: its members', then those of its parameters.

    Its own name is none of another tool.
    """
    name = str(definition["name"])
    found: list[str] = []
    for member, value in definition.items():
        # An agent card has examples of what to ask, in a list.
        texts = value if isinstance(value, list) else (value,)
        for text in texts if member != "name" else ():
            found += sentences(without_own_name(name, text)) if isinstance(text, str) else ()
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

    A text that speaks of neither is read around words for its reader and for users.  What stands in
    quotation marks is left out where the text discusses such phrases.
    """
    gate, places = next((one for one in _gates() if is_in(one[0], text)), (None, 0))
    if gate is None:
        return
    discussed = discusses(text)
    # A quotation ends with its line, so that what is left of the head does not depend on the rest.
    room = 4 * places * AROUND
    head = text[: text.find("\n", room) + 1] if len(text) > 2 * room else ""
    for part in filter(None, (head, text)):
        read = replaced(_QUOTED, '""', part) if discussed else part
        spans, is_enough = _spans(read, gate, places)
        if is_enough:
            break
    yield from (sentences(read[start:end]) for start, end in spans)


def _spans(text: str, gate: re2._Regexp, places: int) -> tuple[list[tuple[int, int]], bool]:
    """Return what is read around the first places, and whether more text would change nothing."""
    spans: list[tuple[int, int]] = []
    others = spans_in(_NOBODY, text)
    first, last, behind = 0, -1, 0
    for _ in range(places):
        begin, end = next(spans_in(gate, text, behind), (-1, -1))
        if end < 0:
            return spans, False
        while last + 1 < end:
            first, last = next(others, (len(text) + 2, len(text)))
        if first - 1 <= begin:
            behind = end
            continue
        # What is found within `AROUND` of it has as much behind it as well.
        behind = end + AROUND
        start = max(0, begin - AROUND)
        if spans and start < spans[-1][1]:
            start = spans.pop()[0]
        spans.append((start, behind + AROUND))
    return spans, behind + AROUND < len(text)


@lru_cache(maxsize=4)
def discusses(text: str) -> bool:
    """Return whether the prose of a text discusses wordings, such as orders to models.

    No address has a blank in it: where a word for it stands, what is around up to the blanks says
    whether it is part of one.
    """
    start = behind = 0
    for begin, end in spans_in(_DISCUSSED, text):
        if end <= behind:
            continue
        before = max(text.rfind(blank, start, begin) for blank in _BLANKS)
        start = max(start, before + 1)
        blank = _BLANK.search(text, end)
        behind = len(text) if blank is None else blank.start()
        if is_in(_DISCUSSED, replaced(_ADDRESSES, " ", text[start:behind])):
            return True
    return False


def without_mentions(text: str) -> str:
    """Return a text without what stands in quotation marks, where it discusses such phrases."""
    return replaced(_QUOTED, '""', text) if discusses(text) else text


_BOUGHT: Final = frozenset({"order", "orders"})
"""What is given and what is bought: in a name that goes on (``order_id``) it is bought."""


@cache
def _gates() -> tuple[tuple[re2._Regexp, int], ...]:
    """Return the expressions for words of the gates, each with how many places are read.

    Programs that read are a model too.
    """
    return tuple(
        (re2.compile(rf"(?i)(?:^|[^a-z])(?:{plain}{reader})(?:[^a-z]|$)|{other}"), places)
        for (plain, other), reader, places in zip(
            map(_words_of, GATES), (f"|{_READER}", ""), PLACES, strict=True
        )
    )


def _words_of(gate: frozenset[str]) -> tuple[str, str]:
    """Return the forms of a gate's words, of those that have spaces around them and of others."""
    words = [word for word, names in _classes().items() if gate & set(names)]
    plain, other = (
        [_formed(word) for word in words if word.isascii() is way] for way in (True, False)
    )
    return "|".join(plain), "|".join(other)


def _formed(word: str) -> str:
    """Return the expression for a word, or for every word with its beginning."""
    plain: str = re2.escape(word.removesuffix(STEM))
    if word in _BOUGHT:
        return rf"{plain}\b"
    return f"{plain}[a-z]*" if word.endswith(STEM) else plain


class _Lexicon:
    """The weights of a kind, by what a text is looked up by.

    Attributes:
        bias: of a passage.
        weights: by the number of a feature.
        number: gives that of a feature: of a word, a pair of two that follow, one of two with None
            between them; of a class, or two classes, by name.  None where it weighs nothing.
        near: the numbers of two classes near each other, by those of two words.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.bias = weights.get(BIAS, 0.0)
        known = {_key(name): weight for name, weight in weights.items() if name != BIAS}
        self.weights: dict[int | None, float] = dict(enumerate(known.values()))
        self.number = {feature: number for number, feature in enumerate(known)}.get
        self.near = _Near(self.number)


class _Near(dict[tuple[Classes, Classes], tuple[int, ...]]):
    """The known features of the classes of a word and those of a later one: words have few.

    Args:
        number: as that of a lexicon.
    """

    def __init__(self, number: Callable[[Feature], int | None]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, both: tuple[Classes, Classes]) -> tuple[int, ...]:
        """Return the features, and keep them."""
        numbers = map(self._number, _near(*both))
        found = self[both] = tuple(number for number in numbers if number is not None)
        return found


def _key(name: str) -> Feature:
    kind, *of = name.split(" ")
    if kind == "w":
        return of[0]
    if kind == "v":
        return of[0], of[1]
    return (of[0], None, of[1]) if kind == "s" else name


@cache
def _lexicon(page: bool) -> _Lexicon:  # noqa: FBT001
    return _Lexicon({name: found[page] for name, found in _model().items() if found[page]})


@cache
def _model() -> dict[str, tuple[float, float]]:
    """Return the weights of each feature: in a definition and in a page."""
    text = files("guard.content").joinpath("steering_weights.txt").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {feature: (float(first), float(second)) for feature, first, second in rows}


def _scores(read: Sequence[str], of: Passage) -> Iterator[float]:
    """Yield the score of each passage: the sum of its weights, in the scale of how much it says.

    Each sentence is looked through once, although most are in two passages.

    Args:
        read: the sentences.
        of: a passage of theirs, whatever it says.
    """
    known = _lexicon(of.page)
    words: list[str] = []
    told: list[tuple[int, int, Classes]] = []
    ends, present = [0], []
    place = 0
    for number, one in enumerate(read):
        tokens = (*_tokens(one[:LONG]), _STOP)
        # One without words parts those around it.
        words += [word for word, _ in tokens] if len(tokens) > 1 else ("", "", tokens[0][0])
        ends.append(len(words))
        told += [(at, number, of) for at, (_, of) in enumerate(tokens, place) if of]
        place += len(tokens)
        present.append({name for _, classes in tokens for name in classes})
    near, linked = _together(told, len(read), known)
    behind = zip(words, repeat(None), words[2:], strict=False)
    alone, followed, apart = (
        list(map(known.number, one)) for one in (words, pairwise(words), behind)
    )
    placed = {
        name: (known.number(f"c {name}"), known.number(_place(name, of.purpose)))
        for name in set[str]().union(*present)
    }
    for start in _starts(read):
        end = min(start + PASSAGE, len(read))
        first, last = ends[start], ends[end]
        found = {*alone[first:last], *followed[first : last - 1], *apart[first : last - 2]}
        classes = set[str]().union(*present[start:end])
        found.update(*near[start:end], *linked[start : end - 1], *map(placed.__getitem__, classes))
        found.discard(None)
        # Exact, as the order of a set may be another in each process.
        weight = fsum(map(known.weights.__getitem__, found))
        yield weight / sqrt(max(LEAST, len(found))) + known.bias


def _together(
    told: Sequence[tuple[int, int, Classes]], sentences: int, known: _Lexicon
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the known features of two classes in each sentence, and across its end.

    Args:
        told: place, sentence and classes of each word that has any.
        sentences: how many there are.
        known: weights.
    """
    near: list[list[int]] = [[] for _ in range(sentences)]
    linked: list[list[int]] = [[] for _ in range(sentences)]
    for index, (place, number, first) in enumerate(told, start=1):
        for other, where, then in told[index : index + NEAR]:
            is_next = where != number
            # No further than into the next sentence, whose end is not looked at.
            if other - place > NEAR or (is_next and then is _STOP[1]):
                break
            (linked if is_next else near)[number] += known.near[first, then]
    return near, linked


def _neighbours(read: Sequence[Token], last: int) -> list[tuple[Classes, Classes]]:
    """Return the classes of each two words near each other, the first of them before a place."""
    told = [(place, classes) for place, (_, classes) in enumerate(read) if classes]
    return [
        (classes, later)
        for index, (place, classes) in enumerate(told, start=1)
        if place < last
        for other, later in told[index : index + NEAR]
        if other - place <= NEAR
    ]
