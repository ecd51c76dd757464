"""Reader of the prompt: the typed values that it attests, mentions and denies.  Pure: no I/O.

The reader uses punctuation, layout and closed lists of function words (``prompt_words.toml``).
It has no grammar of verbs and prepositions.  A typed value attests itself unless its sentence is
negated, a question, a condition or a report, or unless it lies in text of somebody else (quoted,
fenced, forwarded, pasted).  INVARIANT: an unclear value is excluded.

A free-text name never attests.  Names are questions that a declared directory answers.
Every function is linear in the length of the prompt, which is bounded.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice, pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.model import Destination
from guard.provenance.actions import word_pattern
from guard.values.canonical import read_destinations
from guard.values.finding import find_values, keys_of, link_values, message_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PROMPT_LIMIT: Final = 64 * 1024
"""Maximum number of characters read from a prompt."""
VALUE_LIMIT: Final = 500
"""Maximum number of values taken from one prompt."""
SENTENCE_LIMIT: Final = 4000
"""Maximum number of characters of a sentence; a longer one is excluded."""
QUOTED_NAME_WORDS: Final = 4
"""Maximum number of words of a quotation that counts as a dictated name."""
SENTENCE_COUNT: Final = 1000
"""Maximum number of sentences of a prompt; a longer prompt attests nothing."""
ANSWER_SENTENCES: Final = 3
"""Maximum number of sentences of a prompt that answers or corrects an earlier one."""
SHORT_SENTENCE: Final = 6
"""Maximum number of words of a sentence that takes back the one before it."""

_WORDS: Final = tomllib.loads(
    Path(__file__).with_name("prompt_words.toml").read_text(encoding="utf-8")
)


def _any_of(role: str, only: str = "") -> re.Pattern[str]:
    """Return the pattern of all words of one role, or of those of one language."""
    return word_pattern(
        {
            language: words.split()
            for language, words in _WORDS[role].items()
            if only in {"", language}
        }
    )


NEGATION: Final = _any_of("negation")
CONDITION: Final = _any_of("condition")
QUESTION: Final = _any_of("question")
OPENING: Final = _any_of("opening")
POLITE: Final = _any_of("polite")
COURTESY: Final = _any_of("courtesy")
REPORTING: Final = _any_of("reporting")
KEEPING: Final = _any_of("keeping")
DISTRUST: Final = _any_of("distrust")
HOMOGRAPHS: Final = [
    (_any_of("sign", language), _any_of("homograph", language)) for language in _WORDS["sign"]
]
"""Signs of a language, and words of it that negate or ask in another language."""
HEADER: Final = re.compile(rf"\s*(?:{_any_of('header').pattern})\s?[:：]\s")  # noqa: RUF001
_CONTENT: Final = re.compile(rf"(?<=\s)(?:{_any_of('content').pattern})(?=\s)", re.IGNORECASE)
_AFTER_MARK: Final = " \"')”’»"  # noqa: RUF001
_BEFORE_WORD: Final = " ¿0123456789.)-*"
_JOINING: Final = frozenset(_WORDS["joining"]["all"].split())
SOURCES: Final = frozenset(" ".join(_WORDS["source"].values()).casefold().split())
"""Words before a value that is not the receiver: ``the mails from …``, ``a note about …``."""
ASIDE: Final = frozenset(_WORDS["aside"]["all"].split())
"""Words of sentences that only ask to remember another one."""


class Reading(Enum):
    """The relation of a sentence to the values in it."""

    CLEAR = "clear"
    NEGATED = "negated"
    QUESTION = "question"
    CONDITION = "condition"
    REPORT = "report"
    LONG = "long"
    """A text without sentence ends."""


@dataclass(slots=True)
class PromptValues:
    """The values of a prompt, each set in order of occurrence."""

    attested: dict[str, None] = field(default_factory=dict)
    """Typed values of clear sentences."""
    kept: dict[str, None] = field(default_factory=dict)
    """Attested values that the user wants remembered beyond the session."""
    mentioned: dict[str, None] = field(default_factory=dict)
    """Typed values and exact links of own sentences, negated ones apart: they may be read."""
    denied: dict[str, None] = field(default_factory=dict)
    """Typed values, exact links and message ids of negated or distrusting sentences."""
    clear: list[str] = field(default_factory=list)
    """Clear sentences, in which names may occur."""
    tentative: list[str] = field(default_factory=list)
    """Sentences with a condition: they may request an action, and attest no value."""
    negated: list[str] = field(default_factory=list)
    """Negated and distrusting sentences."""
    answers: dict[str, None] = field(default_factory=dict)
    """Typed values of a short prompt without an action: they answer or correct an earlier one."""
    requests: bool = False
    """True if a clear sentence requests an action that reaches its values."""


def read_prompt(prompt: str, requested: Callable[[str], bool | None] | None = None) -> PromptValues:
    """Return the values of a prompt.

    Args:
        prompt: text typed by the user.
        requested: predicate on a clause of a clear sentence, with a mark for each value; if it
            is false, the values in the clause are only mentioned.  If it is None, a value other
            than a URL is attested if another clause of the prompt requests an action.
    """
    found = PromptValues()
    previous: list[str] = []
    doubted: list[str] = []
    waiting: list[str] = []
    sentences = list(islice(own_sentences(prompt), SENTENCE_COUNT + 1))
    if len(sentences) > SENTENCE_COUNT:
        return found
    for whole in sentences:
        reading = reading_of(without_values(whole))
        sentence, content = _request_and_content(whole, reading, requested)
        if content:
            told = found.denied if reading is Reading.NEGATED else found.mentioned
            told.update(dict.fromkeys(_all_values(content)))
            reading = Reading.CLEAR
        typed = typed_values(sentence)
        values = [value for one in typed for value in values_of(one)]
        pages = [page for one in typed for page in pages_of(one)]
        if reading is Reading.NEGATED:
            found.negated.append(sentence)
            found.denied.update(dict.fromkeys(_all_values(sentence)))
            named = [one for one in typed if not (_PATH.fullmatch(one) or _PAGE.fullmatch(one))]
            if not named and len(sentence.split()) <= SHORT_SENTENCE:
                _remove(previous, found.attested, found.kept, found.mentioned)
                found.denied.update(dict.fromkeys(doubted))
        else:
            found.mentioned.update(dict.fromkeys([*values, *pages]))
            previous, doubted = [*values, *pages], []
            if reading is not Reading.CLEAR:
                doubted = values
            if reading is Reading.CONDITION and not REPORTING.search(sentence.casefold()):
                found.tentative.append(sentence)
        if reading is Reading.CLEAR:
            waiting += _read_clear(sentence, found, requested)
        if len(found.mentioned) > VALUE_LIMIT:
            break
    _take_waiting(found, waiting, sentences, requested)
    _remove(found.denied, found.attested, found.kept, found.mentioned, found.answers)
    return found


def _take_waiting(
    found: PromptValues,
    waiting: list[str],
    sentences: list[str],
    requested: Callable[[str], bool | None] | None,
) -> None:
    """Add the values of clauses without an action: attested by a request in the same prompt."""
    if found.requests:
        found.attested.update(dict.fromkeys(waiting))
    elif (
        requested
        and len(found.clear) == len(sentences) <= ANSWER_SENTENCES
        and all(requested(without_values(sentence)) is None for sentence in sentences)
    ):
        found.answers = dict.fromkeys(waiting)


def _read_clear(
    sentence: str, found: PromptValues, requested: Callable[[str], bool | None] | None
) -> list[str]:
    """Add the values of a clear sentence, and return those of its clauses without an action."""
    found.clear.append(sentence)
    keeps = KEEPING.search(sentence.casefold()) is not None
    values, unclear, asks = _requested(sentence, None if keeps else requested)
    values = _without_sources(values, sentence)
    found.attested.update(dict.fromkeys([*values, *_message_ids(sentence)]))
    if keeps:
        found.kept.update(dict.fromkeys(values))
    found.requests |= asks
    return _without_sources(unclear, sentence)


def _requested(
    sentence: str, requested: Callable[[str], bool | None] | None
) -> tuple[list[str], list[str], bool]:
    """Return the values of the clauses that request something, and of lists behind them.

    Returns:
        values of requesting clauses; values other than URLs of clauses without an action; True if a
        clause requests something.
    """
    values: list[str] = []
    unclear: list[str] = []
    requests: bool | None = None
    asks = False
    for clause in _clauses(sentence, requested):
        found = True if requested is None else requested(without_values(clause))
        requests = requests if found is None and is_list(clause) else found
        asks = asks or bool(found)
        for typed in typed_values(clause) if requests is not False else ():
            if requests:
                values += values_of(typed)
            elif not _URL.fullmatch(typed):
                unclear += values_of(typed)
    return values, unclear, asks


def _clauses(sentence: str, requested: Callable[[str], bool | None] | None) -> Iterator[str]:
    """Yield the clauses of a sentence; ``delete … and tell ann@x.test …`` is two.

    Behind ``and``, only a verb right before a value begins a clause: ``mails to ann@x.test`` is an
    object of ``delete``.
    """
    for clause in sentence.split(";"):
        words, start = clause.split(), 0
        if requested is not None and requested(without_values(clause)) is False:
            for place in range(1, len(words) - 2):
                joins = words[place].casefold() in _JOINING and typed_values(words[place + 2])
                if joins and requested(words[place + 1]):
                    yield " ".join(words[start:place])
                    start = place + 1
        yield " ".join(words[start:])


def _request_and_content(
    sentence: str, reading: Reading, requested: Callable[[str], bool | None] | None
) -> tuple[str, str]:
    """Return a request and the content that it dictates: ``Tell ann@x.test`` and ``I am not in``.

    The content of any other sentence is empty.  A negation, a report or a verb in the content is
    no part of the request.  INVARIANT (a doubt counts): a condition, a question or distrust
    anywhere, and a negation behind a comma, concern the whole sentence.
    """
    marker = _CONTENT.search(sentence)
    text = without_values(sentence)
    if marker is None or requested is None or reading in {Reading.CONDITION, Reading.LONG}:
        return sentence, ""
    if reading is Reading.CLEAR and requested(text) is not False:
        return sentence, ""
    request, content = sentence[: marker.start()], sentence[marker.end() :]
    folded = text.casefold()
    asks = folded.rstrip(_AFTER_MARK).endswith(("?", "？")) and not POLITE.search(folded)  # noqa: RUF001
    clear = all(
        reading_of(without_values(part)) is Reading.CLEAR
        for part in (sentence[: marker.end()], content.partition(",")[2])
    )
    if asks or CONDITION.search(folded) or DISTRUST.search(folded) or not clear:
        return sentence, ""
    clauses = _clauses(request, requested)
    acts = any(requested(without_values(clause)) for clause in clauses)
    return (request, content) if acts else (sentence, "")


def _without_sources(values: list[str], sentence: str) -> list[str]:
    """Return the values of a sentence without those behind a source word."""
    words = [word.strip(_EDGES) for word in _tokens(sentence)]
    sources = {
        value
        for before, word in pairwise(words)
        if before.casefold() in SOURCES and (typed := _typed(word)) is not None
        for value in values_of(typed)
    }
    return [value for value in values if value not in sources]


def _remove(values: Iterable[str], *sets: dict[str, None]) -> None:
    for value in values:
        for one in sets:
            one.pop(value, None)


def reading_of(sentence: str) -> Reading:
    """Return the relation of a sentence to the values in it."""
    text = sentence.casefold().replace("’", "'")  # noqa: RUF001 - as people type it
    if len(text) > SENTENCE_LIMIT:
        return Reading.LONG
    requests = POLITE.search(text) is not None
    text = _without_homographs(COURTESY.sub(" ", POLITE.sub(" ", text)))
    if not requests and text.rstrip(_AFTER_MARK).endswith(("?", "？")):  # noqa: RUF001
        return Reading.QUESTION
    if NEGATION.search(text) or DISTRUST.search(text):
        return Reading.NEGATED
    if QUESTION.search(text) or (not requests and OPENING.match(text.lstrip(_BEFORE_WORD))):
        return Reading.QUESTION
    if CONDITION.search(text):
        return Reading.CONDITION
    return Reading.REPORT if REPORTING.search(text) else Reading.CLEAR


def _without_homographs(text: str) -> str:
    """Return a text without words that negate or ask only in another language than its own."""
    for sign, homograph in HOMOGRAPHS:
        if sign.search(text):
            text = homograph.sub(" ", text)
    return text


# --- own words ------------------------------------------------------------------------------------

_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_FOREIGN_LINE: Final = re.compile(r"\s*(?:>|\||\{|\[\s*[{\[\"])")
_RULE: Final = re.compile(r"\s*(?:[-=_*~+] ?){3}")
"""A line that begins as a rule: ``-----Original message-----`` is one."""
_TAG: Final = re.compile(r"<[A-Za-z!?/][\w:.-]{0,40}(?:\s[^<>]{0,200})?/?>|\[[A-Z]{2,20}\]")
_PAIR: Final = re.compile(r"\s*[^\W\d_][\w -]{0,24}\s?[:：]\s+\S")  # noqa: RUF001
_INLINE_CODE: Final = re.compile(r"(`+)([^`]{1,2000})(?:\1|$)")
_ITEM: Final = re.compile(r"\s*(?:[-*•\u2013]|\d{1,3}[.)]|[a-z][.)])\s+")
_COLON: Final = re.compile(r":(?=\s|$)|：")  # noqa: RUF001
_END: Final = re.compile(
    r"(?:(?<!\b\w)[.…]+|[!?]+)[\"')\]”’»]*\s+(?=[^\sa-zа-я])|(?<=[。！？])"  # noqa: RUF001
)
_GLUED: Final = re.compile(
    r"((?:\bwww\.|://|@)[^\s/?#@]{1,253}?[a-z0-9])\.(?=[A-Z][a-z]{2,20}(?:\s|$))"
)
"""An address whose sentence ends without a space: ``www.corp.test.Then``.

A last label of two letters is left: it may be a country.
"""
_STEPS: Final = re.compile(r"\s+1[.)]\s.{1,2000}?\s2[.)]\s", re.DOTALL)
"""Numbered steps in running text: pasted lists have line breaks."""
_SENTENCE_ENDS: Final = tuple(".!?…。！？")  # noqa: RUF001
_QUOTES: Final = dict(zip('"“«‹「『‘', '"”»›」』’', strict=True)) | {"„": "“”"}  # noqa: RUF001
_QUOTE_SIGN: Final = re.compile("[\"“”«»„‹›「」『』‘’]|(?<!\\w)'|'(?!\\w)")  # noqa: RUF001


def own_text(prompt: str) -> str:
    """Return a prompt without quoted, fenced, forwarded and structured text.

    Forwarded text ends with the prompt, because its end cannot be recognised.
    """
    text = _GLUED.sub(r"\1. ", prompt[:PROMPT_LIMIT])
    tag = _TAG.search(text)
    kept = "\n".join(_own_lines((text[: tag.start()] if tag else text).splitlines()))
    return without_quotations(without_code(kept))


def without_code(text: str) -> str:
    """Return a text without inline code, except a single value."""
    return _INLINE_CODE.sub(lambda code: f" {code[2]} " if is_list(code[2]) else " ", text)


def _own_lines(lines: list[str]) -> Iterator[str]:
    fenced, started, before = False, False, ""
    for line, following in zip_longest(lines, lines[1:], fillvalue=""):
        if _FENCE.match(line):
            fenced = not fenced
        elif fenced or _FOREIGN_LINE.match(line):
            continue
        elif begins_foreign(line, following) or (started and _is_salutation(line)):
            return
        elif line.strip() or not _is_open(before):
            started, before = started or bool(line.strip()), line
            yield line
        else:
            return


def begins_foreign(line: str, following: str) -> bool:
    """Return whether forwarded text begins with a line: a rule or a block of header lines."""
    if _RULE.match(line) or HEADER.match(line.casefold() + " "):
        return True
    return _PAIR.match(line) is not None and _PAIR.match(following) is not None


def _is_open(line: str) -> bool:
    """Return whether a line before a blank one has no end: a text may follow that it announces."""
    text = line.rstrip()
    ended = text.endswith(tuple(".!?…:,;。！？：\"'”»"))  # noqa: RUF001
    return bool(text) and not (ended or _ITEM.match(line) or typed_values(text.split()[-1]))


def _is_salutation(line: str) -> bool:
    words = line.split()
    return 0 < len(words) <= QUOTED_NAME_WORDS and line.rstrip().endswith(",") and "@" not in line


def without_quotations(text: str) -> str:
    """Return a text without its quotations, except a single value or a short name in marks.

    An open quotation hides the rest.
    """
    kept: list[str] = []
    position, opened = 0, None
    for sign in _QUOTE_SIGN.finditer(text):
        if opened is None:
            if sign[0] in _QUOTES or sign[0] == "'":
                opened = sign
            continue
        if sign[0] not in _QUOTES.get(opened[0], "'"):
            continue
        inner = text[opened.end() : sign.start()]
        kept += text[position : opened.start()], f" {inner} " if _is_name(inner) else " "
        position, opened = sign.end(), None
    is_apostrophe = opened is not None and opened[0] in "'‘"  # noqa: RUF001
    kept.append(text[position : None if opened is None or is_apostrophe else opened.start()])
    return "".join(kept)


def _is_name(quoted: str) -> bool:
    if "\n" in quoted or len(quoted.split()) > QUOTED_NAME_WORDS:
        return False
    is_sentence = quoted.rstrip().endswith(_SENTENCE_ENDS)
    return is_list(quoted) or not (is_sentence or typed_values(quoted))


def own_sentences(prompt: str) -> Iterator[str]:
    """Yield the sentences of the user's own words; an item is read behind its heading.

    Text behind a colon is excluded unless it consists of values only or of numbered steps in the
    same line: it may be pasted.  A capital letter or a line break there begins such a text, which
    ends with the prompt.
    """
    heading, listed = "", False
    for is_item, paragraph in _paragraphs(own_text(prompt)):
        if heading and is_list(paragraph):
            listed = True
            yield f"{heading} {paragraph}"
            continue
        if heading and (is_item or not listed):
            return
        heading, listed = "", False
        for sentence in _sentences(paragraph):
            colon = _COLON.search(sentence)
            rest = sentence[colon.end() :].strip() if colon else ""
            is_aside = colon is not None and _is_aside(sentence[: colon.start()])
            if colon is None or (rest and (is_aside or is_list(rest))):
                yield sentence
                continue
            yield sentence[: colon.start()].strip()
            if rest and not (rest[0].isdigit() or rest[0].islower()):
                return
            heading = "" if rest else sentence


def _is_aside(text: str) -> bool:
    """Return whether a text only asks to remember (``Remember: …``)."""
    return ASIDE.issuperset(text.casefold().split())


def _sentences(paragraph: str) -> Iterator[str]:
    """Yield the sentences of a paragraph; an unclear heading applies to each numbered step."""
    colon = _COLON.search(paragraph)
    if colon is None or not _STEPS.match(paragraph, colon.end()):
        yield from _ended(paragraph)
        return
    heading, steps = paragraph[: colon.start()], _ended(paragraph[colon.end() :])
    if reading_of(without_values(heading)) is Reading.CLEAR:
        yield from _ended(paragraph[: colon.end()])
        yield from steps
    else:
        yield from (f"{heading} {step}" for step in steps)


def _ended(paragraph: str) -> Iterator[str]:
    start = 0
    for end in [*(found.end() for found in _END.finditer(paragraph)), len(paragraph)]:
        if paragraph[start:end].strip():
            yield paragraph[start:end].strip()
        start = end


def _paragraphs(text: str) -> Iterator[tuple[bool, str]]:
    """Yield parts of a text with the information whether each is an item.

    A line break ends a part only before a capital letter: ``Never pay`` can be wrapped.
    """
    lines: list[str] = []
    is_item = False
    for line in text.splitlines():
        item = _ITEM.match(line)
        rest = (line[item.end() :] if item else line).strip()
        if item or not rest or (rest[0].isupper() and not typed_values(rest.split()[0])):
            if lines:
                yield is_item, " ".join(lines)
            lines, is_item = [], item is not None
        if rest:
            lines.append(rest)
    if lines:
        yield is_item, " ".join(lines)


def is_list(text: str) -> bool:
    """Return whether a text consists of typed values and words that join them."""
    words = [word.strip(_EDGES) for word in _tokens(text)]
    return all(word.casefold() in _JOINING or not word or _typed(word) for word in words)


# --- typed values ---------------------------------------------------------------------------------

_EDGES: Final = ".,;:!?¿¡…()[]{}<>\"'“”‘’«»*`、。，；：！？（）"  # noqa: RUF001
_SUFFIX: Final = re.compile(r"(.+)['’][^\W\d_]{1,6}", re.DOTALL)  # noqa: RUF001
_MAIL: Final = re.compile(r"[^\s@<>()\"']+@[^\s@<>()\"']+\.[^\s@<>()\"'.]{2,}")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]{1,20}://\S+|www\.[\w-]+\.\S+", re.IGNORECASE)
_SIGNED: Final = re.compile(r"[#@]\w[\w.-]*")
_DIGITS: Final = re.compile(r"\+?[\d(][\d()/.\- ]{4,}\d")
_ACCOUNT: Final = re.compile(r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{8,30}")
_WALLET: Final = re.compile(r"0x[0-9a-fA-F]{40}|(?:bc1|[13])[a-zA-HJ-NP-Z0-9]{25,62}")
_PATH: Final = re.compile(r"~?(?:/[\w.@+-]{1,100}){1,32}/?")
_PAGE: Final = re.compile(r"(?:[\w-]{1,63}\.){1,8}[a-zA-Z]{2,63}/\S*")
"""A page without its scheme."""
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,38}/[A-Za-z0-9_][\w.-]{0,98}")
_EXACT: Final = (_URL, _MAIL, _SIGNED, _WALLET, _REPOSITORY, _PATH, _PAGE)
_DATE: Final = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_GROUPED: Final = re.compile(
    r"(?<!\w)[A-Za-z]{2}\d{2}(?: [A-Za-z0-9]{4}){2,8}(?: [A-Za-z0-9]{1,4})?(?!\w)"
    r"|(?<![\w+])\+?\d[\d ()/-]{5,30}\d(?!\w)"
)
"""An account or phone number in groups."""
_SPOKEN: Final = re.compile(
    r"(?<![\w.@-])[\w+-]{1,64}(?:(?: dot |\.)[\w+-]{1,64}){0,4}"
    r" at [\w-]{1,63}(?: dot [\w-]{1,63}){1,5}(?![\w@])",
    re.IGNORECASE,
)
"""A dictated mailbox: ``jane dot doe at example dot org``."""
_AT: Final = re.compile(" at ", re.IGNORECASE)
_DOT: Final = re.compile(" dot ", re.IGNORECASE)
_JOINT: Final = "\u2060"
"""Replaces a space inside one number while words are split."""
_CJK: Final = re.compile("([\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]+)")
_MESSAGE_ID: Final = re.compile(r"(?=.{0,40}\d)(?=.{0,40}[^\W\d_])[\w<][\w.@+=$<>-]{1,250}")
_SIGNED_NUMBER: Final = re.compile(r"#\d{1,12}")
_SHORTEST_NUMBER: Final = 6


def _tokens(text: str) -> list[str]:
    written = _SPOKEN.sub(lambda run: _DOT.sub(".", _AT.sub("@", run[0])), text)
    spaced = _CJK.sub(r" \1 ", written)
    return _GROUPED.sub(lambda run: run[0].replace(" ", _JOINT), spaced).split()


def typed_values(text: str) -> list[str]:
    """Return the typed values of a text as they are written."""
    found = (_typed(word.strip(_EDGES)) for word in _tokens(text))
    return [value for value in found if value is not None]


def without_values(text: str) -> str:
    """Return a text with a mark for each typed value: ``nobody@corp.test`` negates nothing."""
    words = ((word, word.strip(_EDGES)) for word in _tokens(text))
    return " ".join(word.replace(bare, "@") if _typed(bare) else word for word, bare in words)


def _typed(word: str) -> str | None:
    """Return the typed value that a word is, without a suffix of its language."""
    suffixed = _SUFFIX.fullmatch(word)
    bare = (suffixed[1] if suffixed else word).replace(_JOINT, " ").removeprefix("mailto:")
    if any(form.fullmatch(bare) for form in _EXACT):
        return bare
    squeezed = bare.replace(" ", "")
    if _DATE.fullmatch(bare) or sum(map(str.isdigit, bare)) < _SHORTEST_NUMBER:
        return None
    return bare if _ACCOUNT.fullmatch(squeezed) or _DIGITS.fullmatch(squeezed) else None


def is_account(typed: str) -> bool:
    """Return whether a typed value is an account number or a wallet."""
    return any(form.fullmatch(typed.replace(" ", "")) for form in (_ACCOUNT, _WALLET))


def values_of(typed: str) -> tuple[str, ...]:
    """Return the comparable values of a typed value."""
    is_url = _URL.fullmatch(typed) is not None
    if not is_url and "@" not in typed[1:]:
        return keys_of(Destination("handle", typed))
    texts = [typed, typed.partition("#")[0]] if "://" in typed else [typed]
    if typed[:4].lower() == "www.":
        # A user who omits the scheme may mean the host.
        texts.append(f"https://{typed}")
    plain = find_values(" ".join(dict.fromkeys(texts)), disguised=False).plain
    return tuple(v for v in plain if v.startswith(("url:", "host:") if is_url else "mail:"))


def pages_of(typed: str) -> tuple[str, ...]:
    """Return the exact links of a typed URL; empty for any other value."""
    bare = _PAGE.fullmatch(typed) is not None
    if not bare and not _URL.fullmatch(typed):
        return ()
    links: list[str] = []
    for text in dict.fromkeys((typed, typed.partition("#")[0])):
        schemes = ("https://", "http://") if bare or text[:4].lower() == "www." else ("",)
        for scheme in schemes:
            urls = [one for one in read_destinations(scheme + text) if one.kind == "url"]
            links += link_values(urls[0]) if len(urls) == 1 else ()
    return tuple(links)


def _all_values(sentence: str) -> list[str]:
    """Return every value that a sentence names."""
    typed = typed_values(sentence)
    named = [value for one in typed for value in (*values_of(one), *pages_of(one))]
    return [*named, *_message_ids(sentence)]


def _message_ids(sentence: str) -> Iterator[str]:
    """Yield the values of the message ids and signed numbers (``#4711``) that it may name."""
    for word in (token.strip(_EDGES) for token in _tokens(sentence)):
        is_id = _MESSAGE_ID.fullmatch(word) is not None and not _typed(word)
        if is_id or _SIGNED_NUMBER.fullmatch(word):
            yield message_value(word.removeprefix("#"))
