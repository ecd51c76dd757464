"""Pseudonyms for the mailboxes, hosts, accounts, numbers, people and channels of recorded runs.

One word always becomes the same other word, so whatever belonged together still does: a person's
name and their mailbox, a page and its author.  Internal domains keep their names, and a host below
one stays below it.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bcdfghjklmnprstvwz"
_SHORT: Final = 2
"""Letters of a word that says nothing (initials, a top-level domain) and stays."""
_FILES: Final = frozenset(
    {"csv", "doc", "docx", "gif", "htm", "html", "jpg", "json", "md", "pdf", "png", "ppt", "pptx"}
    | {"py", "txt", "xls", "xlsx", "xml", "yaml", "yml", "zip"}
)
"""What stands behind the last dot of a file's name."""
_MAIL: Final = r"(?P<mail>[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6})"
_HOST: Final = r"(?P<host>(?<![\w@.-])(?:[A-Za-z0-9-]{1,63}\.){1,6}[a-z]{2,24}(?![\w@]|\.[a-z]))"
_ACCOUNT: Final = r"(?P<account>(?<!\w)[A-Z]{2}\d{2}[A-Z0-9]{8,30}(?!\w))"
_NUMBER: Final = r"(?P<number>(?<![\w.,-])\+?\d[\d ()-]{7,24}\d(?![\w-]))"
DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_NUMBER_DIGITS: Final = 9
_WORD: Final = re.compile(r"[A-Za-z]+|\d+")
_PERSON: Final = re.compile(r"[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,}){0,2}")
_OWNER: Final = re.compile(r"([a-z]{3,})[._]([a-z]{3,})@")
FOUND: Final = re.compile(f"{_MAIL}|{_HOST}|{_ACCOUNT}|{_NUMBER}")
"""Everything that has a form of its own; names have none and are learnt."""


class Pseudonyms:
    """Maps words to made-up ones.

    Args:
        seed: another one gives other words.
        kept: domains that keep their names.
    """

    def __init__(self, seed: str, kept: Iterable[str]) -> None:
        self._draw = random.Random(seed)  # noqa: S311  (a simulation, not a secret)
        self._kept = tuple(kept)
        self._words: dict[str, str] = {}
        self._taken: set[str] = set()

    def word(self, word: str) -> str:
        """Return the other word for one, in the case it is written in."""
        if not word.isdigit() and len(word) <= _SHORT:
            return word
        known = self._words.get(word.lower())
        if known is None:
            known = self._words[word.lower()] = self._new(word)
        if word.isupper():
            return known.upper()
        return known.title() if word[:1].isupper() else known

    def _new(self, word: str) -> str:
        make = self._digits if word.isdigit() else self._letters
        length = len(word)
        for _ in range(50):
            made = make(length)
            if made not in self._taken and made != word.lower():
                break
            length += not word.isdigit()
        self._taken.add(made)
        return made

    def _digits(self, length: int) -> str:
        return "".join(self._draw.choice("123456789") for _ in range(length))

    def _letters(self, length: int) -> str:
        return "".join(
            self._draw.choice(_CONSONANTS if place % 2 == 0 else _VOWELS) for place in range(length)
        )

    def words(self, text: str) -> str:
        """Return a text with each word of it replaced, and its signs kept."""
        return _WORD.sub(lambda found: self.word(found[0]), text)

    def host(self, host: str) -> str:
        """Return another host of the same shape; what is internal is kept."""
        for domain in self._kept:
            if host.lower() == domain:
                return host
            if host.lower().endswith(f".{domain}"):
                return self.words(host[: -len(domain)]) + host[-len(domain) :]
        *labels, top = host.split(".")
        return ".".join(
            [label if label == "www" else self.words(label) for label in labels] + [top]
        )

    def account(self, account: str) -> str:
        """Return another account number of the same country and length."""
        return account[:2] + "".join(
            self.word(part) if part.isdigit() else part
            for part in re.findall(r"\d+|\D+", account[2:])
        )

    def texts(self, names: Iterable[str]) -> Callable[[str], str]:
        """Return what rewrites a text, in which some names occur that are learnt elsewhere."""
        listed = sorted({re.escape(name) for name in names}, key=len, reverse=True)
        pattern = FOUND
        if listed:
            pattern = re.compile(rf"{FOUND.pattern}|(?P<name>(?<!\w)(?:{'|'.join(listed)})(?!\w))")
        return lambda text: pattern.sub(self._other, text)

    def _other(self, found: re.Match[str]) -> str:
        text = found[0]
        match found.lastgroup:
            case "mail":
                local, _, domain = text.partition("@")
                return f"{self.words(local)}@{self.host(domain)}"
            case "host":
                return text if text.rpartition(".")[2].lower() in _FILES else self.host(text)
            case "account":
                return self.account(text)
            case "number":
                few = sum(char.isdigit() for char in text) < _NUMBER_DIGITS
                return text if few or DATE.search(text) else self.words(text)
            case _:
                return self.words(text)


def people_in(texts: Iterable[str]) -> set[str]:
    """Return the names of people whose mailboxes bear them: ``Jane`` of ``jane.roe@``."""
    return {
        name.title() for text in texts for found in _OWNER.finditer(text) for name in found.groups()
    }


def name_in(value: str) -> set[str]:
    """Return the names that a field about a person or a place holds, where that is all it holds."""
    return set(value.split()) if _PERSON.fullmatch(value) else set()
