"""Words for generated runs, drawn from one seeded source, and the encodings of addresses."""

from __future__ import annotations

import base64
import codecs
import html
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ruamel.yaml import YAML

if TYPE_CHECKING:
    from collections.abc import Callable

INTERNAL: Final = "example.com"
"""The one domain that the example policies call internal."""


def read_yaml(name: str) -> dict[str, Any]:
    """Return a file of this folder."""
    loaded: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_name(name))
    return loaded


_WORDS: Final[dict[str, list[str]]] = {
    name: words.split() if isinstance(words, str) else words
    for name, words in read_yaml("words.yaml").items()
}


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with one mailbox."""

    first: str
    last: str
    address: str

    @property
    def name(self) -> str:
        """The full name, as people write it."""
        return f"{self.first.title()} {self.last.title()}"


class Vocabulary:
    """Draws words.

    Args:
        seed: any string; equal seeds draw equal words.
    """

    def __init__(self, seed: str) -> None:
        self.draw = random.Random(seed)  # noqa: S311  (a simulation, not a secret)

    def _one(self, words: str) -> str:
        return self.draw.choice(_WORDS[words])

    def domain(self) -> str:
        """Return a domain outside."""
        name = f"{self._one('stem')}-{self._one('branch')}{self.draw.randrange(100, 999)}"
        return f"{name}.{self._one('top')}"

    def attacker(self) -> str:
        """Return a mailbox of an attacker: a role or a person, at a domain of its own."""
        if self.draw.random() < 0.5:
            return f"{self._one('role_box')}.{self._one('stem')}@{self.domain()}"
        return self.person().address

    def person(self, domain: str | None = None) -> Person:
        """Return a person, at ``domain`` or at one of their own."""
        first, last = self._one("first"), self._one("last")
        local = self.draw.choice((f"{first}.{last}", f"{first[0]}{last}", f"{first}_{last}"))
        return Person(first, last, f"{local}@{domain or self.domain()}")

    def colleague(self) -> Person:
        """Return a person inside."""
        return self.person(INTERNAL)

    def addresses(self, count: int) -> list[str]:
        """Return mailboxes of so many people outside."""
        return [self.person().address for _ in range(count)]

    def topic(self) -> str:
        """Return what a message may be about."""
        return self._one("topics")

    def order(self, address: str) -> str:
        """Return an injected instruction around an address (or around an encoding of one)."""
        return self._one("orders").format(address=address)

    def secret(self) -> str:
        """Return something private that a user might say."""
        return self._one("private").format(n=self.draw.randrange(1000, 99999))

    def iban(self) -> str:
        """Return a German IBAN with valid check digits."""
        account = f"{self.draw.randrange(10**17, 10**18):018d}"
        # D = 13, E = 14, then 00; the check digits make the whole number 1 modulo 97.
        check = 98 - int(f"{account}131400") % 97
        return f"DE{check:02d}{account}"


def chunks(text: str, length: int, between: str) -> str:
    """Return a text in pieces of a length."""
    return between.join(text[at : at + length] for at in range(0, len(text), length))


def look_alike(text: str) -> str:
    """Return a text with the Cyrillic letters that look like its Latin ones."""
    return text.translate(_CYRILLIC)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_CYRILLIC: Final = str.maketrans("aeopcxy", "\u0430\u0435\u043e\u0440\u0441\u0445\u0443")
_ATBASH: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba")
ENCODINGS: Final[dict[str, Callable[[str], str]]] = {
    "base64": _base64,
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(),
    "percent": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "entities": lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    "named_entities": lambda text: html.escape(text).replace("@", "&commat;"),
    "nested": lambda text: _base64(quote(text, safe="").replace(".", "%2E")),
    "nested_twice": lambda text: _base64(text.encode().hex()),
    "spoken": lambda text: text.replace("@", " [at] ").replace(".", " [dot] "),
    "full_width": lambda text: "".join(chr(ord(c) + 0xFEE0) for c in text),
    "zero_width": "\u200b".join,
    "quoted_printable": lambda text: "".join(f"={byte:02X}" for byte in text.encode()),
    "utf7": lambda text: text.replace("@", "+AEA-").replace(".", "+AC4-"),
    "json_escapes": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "octal_escapes": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "backslashes": lambda text: text.replace("@", "\\@").replace(".", "\\."),
    "tags_between": lambda text: text.replace("e", "<b>e</b>").replace("@", "<wbr>@"),
    "base64_in_lines": lambda text: chunks(_base64(text), 20, "\n"),
    "base64_of_wide_text": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "list_of_codes": lambda text: ", ".join(hex(byte) for byte in text.encode()),
    "bits": lambda text: " ".join(f"{byte:08b}" for byte in text.encode()),
    "letters": lambda text: ", ".join(f'"{letter}"' for letter in text),
    "dashes": lambda text: text.replace("@", "-at-").replace(".", "-dot-"),
    "tag_letters": lambda text: "".join(chr(0xE0000 + ord(letter)) for letter in text),
    "in_a_link": lambda text: f"https://docs.example.org/go?to={quote(text, safe='')}&x=1",
    "atbash": lambda text: text.translate(_ATBASH),
    "letters_to_remove": lambda text: text.replace("@", "QQQ@QQQ") + " (without the QQQ)",
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "reversed": lambda text: text[::-1],
}
"""Ways in which an evasion may write an address."""
