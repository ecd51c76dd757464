"""Documents that a prompt names, and the recipients that they may supply.  Pure: no I/O.

A policy can let the results of a tool supply the recipient of an action (``delegates``).  The
result counts if a clear sentence of the user names its document.  Its text supplies a recipient
only if it holds exactly one of a kind and gives no orders to a model: who can add to a document
could add a second recipient.  Parts that the policy lists (``supplies``) supply all in them.
"""

from __future__ import annotations

import re
from html import unescape
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from guard.core.json_values import strings_in
from guard.provenance.actions import kind_value, object_kind, objects_in
from guard.provenance.prompt_reader import is_account, typed_values, values_of
from guard.values.canonical import read_destinations
from guard.values.finding import (
    HANDLE,
    find_destinations,
    find_numbers,
    link_values,
    message_value,
)
from guard.values.sites import sites_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from guard.core.mappings import PathQuery
    from guard.core.model import Destination, Json

NAMED: Final = "named:"
"""Prefix of the values of documents that a prompt names."""
_FOLDER: Final = f"{NAMED}folder:"
DELEGATED: Final = "delegated:"
"""Prefix of the values of recipients that a named document supplies."""
NAME_LIMIT: Final = 64
"""Maximum number of documents recorded per prompt."""
AMOUNT_LIMIT: Final = 64
"""Maximum number of amounts that one document supplies."""
LINK_LIMIT: Final = 500
"""Maximum number of relative links of one text."""
WRITING: Final = frozenset({"overwrite", "publish", "delete", "execute"})
"""Actions whose sentence may name a folder in order to write there."""
_LINK: Final = re.compile(r"""(?:href|src|action)\s*=\s*["']([^"'\s<>]{1,2000})""", re.IGNORECASE)
_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)
_LOCATIONS: Final = frozenset({"path", "url"})


def delegated_value(action: str, value: str) -> str:
    """Return the value of a recipient that a named document supplies for an action."""
    return f"{DELEGATED}{action}:{value}"


def own_recipient(action: str) -> str:
    """Return the value that says that a prompt itself types a recipient with an action."""
    return kind_value(action, "recipient")


def _form(text: str) -> str:
    bare = _SCHEME.sub("", text.strip(), count=1)
    return bare.casefold().rstrip("/").removeprefix("./")


def names_in(clear: Iterable[str], words: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """Return the values of the documents and folders that clear sentences name.

    A sentence that types a recipient says so for its actions.

    Args:
        clear: sentences in the user's own words that neither negate, doubt nor report.
        words: returns the actions that a sentence names.
    """
    found: dict[str, None] = {}
    for sentence in clear:
        actions = tuple(words(sentence))
        writes = not WRITING.isdisjoint(actions)
        typed = [value for one in typed_values(sentence) for value in _recipient(one)[:1]]
        if any(not value.startswith(("url:", "host:")) for value in typed):
            found |= dict.fromkeys(map(own_recipient, actions))
        for text in objects_in(sentence):
            if len(found) >= NAME_LIMIT:
                return found
            if object_kind(text) in _LOCATIONS and (form := _form(text)):
                found[f"{NAMED}{form}"] = None
                if "/" in form and not writes:
                    found[f"{_FOLDER}{form}"] = None
    return found


def names_of(document: str) -> tuple[str, ...]:
    """Return the values under which a prompt may name a document.

    These are its path, its file name, its folder and its id as a message.  A page has its URL only,
    because who publishes it chooses the rest.
    """
    form = _form(document)
    if not form or object_kind(document) == "url" or _SCHEME.match(document.strip()):
        return (f"{NAMED}{form}",) if form else ()
    folder, _, last = form.rpartition("/")
    names = [f"{NAMED}{form}", f"{NAMED}{last}", message_value(document.strip())]
    names += [f"{_FOLDER}{folder}"] if folder else []
    return tuple(dict.fromkeys(names))


def supplied_by(documents: Sequence[Json], parts: Sequence[PathQuery]) -> list[str]:
    """Return the values that a result supplies.

    Args:
        documents: of the result.
        parts: paths to those of its parts that supply all in them; none: the text supplies the only
            recipient in it, with the amounts.
    """
    if parts:
        found = [
            part
            for document in documents
            if not isinstance(document, str)
            for path in parts
            for _, part in path.find(document)
        ]
        typed = (one for part in found for text in strings_in(part) for one in typed_values(text))
        return [value for one in typed for value in values_of(one)]
    return _only_recipient([text for one in documents for text in strings_in(one)])


def _recipient(typed: str) -> tuple[str, ...]:
    """Return the values of a typed text that is a recipient, by kind; empty for any other."""
    values = values_of(typed)
    is_handle = bool(values) and values[0].startswith(HANDLE)
    return () if is_handle and not is_account(typed) else values


def _only_recipient(texts: list[str]) -> list[str]:
    kinds: dict[str, dict[str, tuple[str, ...]]] = {}
    amounts: dict[str, None] = {}
    for text in texts:
        for typed in typed_values(text):
            if values := _recipient(typed):
                kinds.setdefault(values[0].partition(":")[0], {})[values[0]] = values
        amounts.update(find_numbers(text))
    singles = [one for found in kinds.values() if len(found) == 1 for one in found.values()]
    supplied = [value for values in singles for value in values]
    return [*supplied, *list(amounts)[:AMOUNT_LIMIT]] if supplied else []


def site_links(
    page: Destination, documents: Sequence[Json], shared: AbstractSet[str]
) -> dict[str, tuple[str, ...]]:
    """Return the links of a page to its own site, each with the values of the site.

    INVARIANT (word for word): nothing can be put into a link, so it tells the site nothing.

    Args:
        page: the URL that was read.
        documents: of the result.
        shared: hosts of several owners, which are never a site.
    """
    own = sites_of(page, shared)
    base = page.canonical if page.kind == "url" else f"https://{page.canonical}/"
    found: dict[str, tuple[str, ...]] = {}
    for text in strings_in([*documents]) if own else ():
        links = [*find_destinations(text), *_relative_links(text, base)]
        for link in links:
            if not set(own).isdisjoint(sites_of(link, shared)):
                found |= dict.fromkeys(link_values(link), own)
    return found


def _relative_links(text: str, base: str) -> Iterator[Destination]:
    """Yield the links of a page that name no host."""
    for match in islice(_LINK.finditer(text), LINK_LIMIT):
        try:
            yield from read_destinations(urljoin(base, unescape(match[1])))
        except ValueError:
            continue


def sites_in(sentences: Iterable[str], shared: AbstractSet[str]) -> Iterator[str]:
    """Yield the values of the sites of the URLs in some sentences.

    Args:
        sentences: of a prompt.
        shared: hosts of several owners.
    """
    for sentence in sentences:
        for typed in typed_values(sentence):
            yield from sites_at(typed, shared)


def sites_at(text: str, shared: AbstractSet[str]) -> Iterator[str]:
    """Yield the values of the site of a typed URL or host; nothing for an unclear text."""
    destinations = read_destinations(text)
    if len(destinations) == 1:
        yield from sites_of(destinations[0], shared)
