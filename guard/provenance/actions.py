"""Requests of a prompt for actions, as values that a session records.  Pure: no I/O.

Destinations say who receives; an action says what a call changes (delete, buy, change a password).
An order planted in a page can ask for a change that nobody receives, so each consequential action
needs an attestation too.  The vocabulary that reads a prompt is policy data and can only add
questions: a call that no rule of type ``action`` concerns is judged as without it.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_UNSPACED: Final = frozenset({"ja", "zh"})
"""Languages without spaces between words: their entries match inside a word."""
PROMPTED: Final = "action:*"
"""Value recorded with every prompt, so that a call knows of a prompt channel."""
ACTION: Final = "action:"
"""Prefix of the values of requested actions."""
OBJECT: Final = "object:"
"""Prefix of the values of objects that a prompt names with an action."""
REACHING: Final = frozenset(
    {"send", "pay", "buy", "share", "invite", "publish", "schedule", "change_access", "react"}
    | {"execute"}
)
"""Actions that reach the values that a sentence names with them."""
OBJECT_LIMIT: Final = 64
"""Maximum number of objects recorded per prompt."""
FOLDER_LIMIT: Final = 8
"""Maximum number of nested folders by which a prompt can name an object."""
_FORM: Final = 200
"""Maximum number of characters of an object's form; a longer object is never one of a prompt."""

_TOKEN: Final = re.compile(r"[^\s,;\"“”„«»`()<>\[\]{}]+")
_EDGES: Final = ".:!?'’‘…、。！？"  # noqa: RUF001
_FILE: Final = re.compile(r"[\w .~+@-]*\w\.[A-Za-z][A-Za-z0-9]{0,7}")
_PATH: Final = re.compile(r"~?[\w.@+-]*(?:/[\w.@+-]+)+/?|/")
_ID: Final = re.compile(r"#?(?=[\w-]*\d)[\w-]{1,64}")
_MAIL: Final = re.compile(r"[^\s@/]+@[^\s@/]+\.[^\s@/]+")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+|www\.\S+", re.IGNORECASE)
_SLUG: Final = re.compile(r"[\w.]*[^\W_](?:[_-][\w.]*[^\W_])+")
"""A word of several parts (``new_project``): the name of an object, seldom a word of a language."""
_KINDS: Final = (("url", _URL), ("mail", _MAIL), ("path", _PATH), ("path", _FILE), ("id", _ID))
ALL_KINDS: Final = tuple(dict.fromkeys(kind for kind, _ in _KINDS))
_NAME: Final = re.compile(r"(?=.*[^\W\d_])[\w .'’&()+#@:-]+")  # noqa: RUF001 - as typed
"""A text of letters that is one name."""


def object_kind(text: str) -> str:
    """Return the kind of an object by its form: url, mail, path, id, or name for any other."""
    return next((kind for kind, form in _KINDS if form.fullmatch(text)), "name")


def object_kinds(text: str) -> tuple[str, ...]:
    """Return the kinds of objects in a prompt that an object of a call is compared with.

    INVARIANT (one object): a list, a pattern or a path with a step up may be any, so all count.
    """
    kind = object_kind(text)
    is_one = _NAME.fullmatch(text) is not None if kind == "name" else ".." not in text.split("/")
    return (kind,) if is_one else ALL_KINDS


def object_forms(text: str) -> tuple[str, ...]:
    """Return the comparable forms of an object: itself, and the last segment of a path."""
    whole = text.strip().casefold().rstrip("/").removeprefix("#").removeprefix("./")
    last = whole.rpartition("/")[2]
    return tuple(dict.fromkeys(form for form in (whole, last) if 0 < len(form) <= _FORM))


def covering_forms(text: str) -> tuple[str, ...]:
    """Return the forms of an object and of the folders that contain it.

    The request for a folder covers its files; the request for a file covers no other file, and no
    file that a step up leads to.
    """
    if ".." in text.split("/"):
        return object_forms(text)
    parts = text.strip().casefold().rstrip("/").split("/")
    ends = range(len(parts), max(0, len(parts) - FOLDER_LIMIT), -1)
    folders = ("/".join(parts[:end]) for end in ends)
    return tuple(dict.fromkeys(form for folder in folders for form in object_forms(folder)))


def action_values(action: str, objects: Iterable[str]) -> Iterator[str]:
    """Yield the values under which a prompt may have requested an action on some objects."""
    yield PROMPTED
    yield f"{ACTION}{action}"
    for text in objects:
        yield from (kind_value(action, kind) for kind in object_kinds(text))
        for form in covering_forms(text):
            yield object_value(action, form)


def kind_value(action: str, kind: str) -> str:
    """Return the value that says that a prompt names objects of a kind with an action."""
    return f"{OBJECT}{action}:*{kind}"


def object_value(action: str, form: str) -> str:
    """Return the value of an object that a prompt names with an action."""
    return f"{OBJECT}{action}:{form}"


def requested_values(
    clear: Iterable[str], words: Callable[[str], Iterable[str]]
) -> dict[str, None]:
    """Return the values of the actions, with their objects, that a prompt requests.

    Args:
        clear: sentences in the user's own words that neither negate nor ask.
        words: returns the actions that a sentence names.
    """
    found: dict[str, None] = {PROMPTED: None}
    objects = 0
    for sentence in clear:
        actions = tuple(words(sentence))
        found.update(dict.fromkeys(f"{ACTION}{action}" for action in actions))
        for text in objects_in(sentence) if actions else ():
            objects += 1
            if objects > OBJECT_LIMIT:
                break
            kind = object_kind(text)
            for action in actions:
                if kind != "name":
                    found[kind_value(action, kind)] = None
                found.update(dict.fromkeys(object_value(action, f) for f in object_forms(text)))
    return found


def named_objects(clear: Iterable[str]) -> list[str]:
    """Return the values of the ids, paths and addresses in the user's own clear sentences."""
    texts = islice((text for sentence in clear for text in objects_in(sentence)), OBJECT_LIMIT)
    return [object_value("", object_forms(text)[0]) for text in texts if object_forms(text)]


def refused_values(
    negated: Iterable[str], words: Callable[[str], Iterable[str]]
) -> dict[str, None]:
    """Return the values of the actions that a prompt's negated sentences name."""
    return {f"{ACTION}{action}": None for sentence in negated for action in words(sentence)}


def objects_in(sentence: str) -> Iterator[str]:
    """Yield the words of a sentence whose form is that of an object."""
    for token in _TOKEN.finditer(sentence):
        text = token[0].strip(_EDGES)
        if text and (object_kind(text) != "name" or _SLUG.fullmatch(text)):
            yield text


def word_pattern(languages: Mapping[str, Iterable[str]]) -> re.Pattern[str]:
    """Return the pattern of all words of a list.

    Args:
        languages: words by language; ``~`` stands for the rest of a word, ``_`` for a space.
    """
    spaced: list[str] = []
    unspaced: list[str] = []
    for language, words in languages.items():
        escaped = (re.escape(word.casefold()) for word in words)
        patterns = [w.replace(r"\~", "~").replace("~", r"\w*") for w in escaped]
        (unspaced if language in _UNSPACED else spaced).extend(patterns)
    whole = "|".join(spaced).replace("_", r"\s+")
    bounded = [rf"(?<!\w)(?:{whole})(?!\w)"] if spaced else []
    return re.compile("|".join([*bounded, *unspaced]))


def vocabulary(
    words: Mapping[str, Mapping[str, Iterable[str]]],
) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of the actions that a sentence names.

    Args:
        words: by action and language; ``~`` stands for the rest of a word, ``_`` for a space.
    """
    patterns = {action: word_pattern(languages) for action, languages in words.items()}

    def read(sentence: str) -> tuple[str, ...]:
        text = sentence.casefold()
        return tuple(action for action, pattern in patterns.items() if pattern.search(text))

    return read


def reaching(words: Callable[[str], tuple[str, ...]]) -> Callable[[str], bool | None]:
    """Return a predicate: a sentence asks for an action that reaches its values, and deletes none.

    It returns None for a sentence that names neither (``Use ann@x.test instead.``, ``Ann's address
    is ann@x.test.``).  INVARIANT: it only removes attestations.
    """

    def read(sentence: str) -> bool | None:
        named = words(sentence)
        if "delete" in named:
            return False
        return None if REACHING.isdisjoint(named) else True

    return read
