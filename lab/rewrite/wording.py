"""Other wordings: of prompts, of injected text around an address, of arguments and of results."""

from __future__ import annotations

import base64
import html
import json
from io import StringIO
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ruamel.yaml import YAML

from lab.rewrite.pseudonyms import DATE, FOUND

if TYPE_CHECKING:
    import random
    import re
    from collections.abc import Callable, Collection

    from guard.core.model import Json

_BESIDE: Final = frozenset("\"'<>`/=:[]()")
"""Signs beside an address in a prompt that say how it is meant; it is then left as it is."""
_WORDS_BEFORE: Final = 3
"""Words before an address on its line, from which on it stands in prose."""


def _spoken(text: str) -> str:
    return text.replace("@", " at ").replace(".", " dot ")


def _grouped(text: str) -> str:
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


_ANY: Final[tuple[Callable[[str], str], ...]] = (
    str,
    '"{}"'.format,
    "'{}'".format,
    "({})".format,
    "{},".format,
    "{}'s".format,
    "`{}`".format,
    "**{}**".format,
)
_NAMING: Final[dict[str, tuple[Callable[[str], str], ...]]] = {
    "mail": (
        *_ANY,
        str.upper,
        str.title,
        "<{}>".format,
        "mailto:{}".format,
        "Kim Doe <{}>".format,
        _spoken,
    ),
    "host": (*_ANY, "https://{}".format, "<https://{}>".format),
    "account": (*_ANY, _grouped, "{}.".format, "IBAN {}".format),
    "number": _ANY,
}
_CARRYING: Final[dict[str, tuple[Callable[[str], str], ...]]] = {
    "mail": (
        "<{}>".format,
        "[the desk](mailto:{})".format,
        '<a href="mailto:{}">the desk</a>'.format,
        '{{"to": "{}"}}'.format,
        "\n| copy | {} |\n".format,
        "\n```\n{}\n```\n".format,
        "Kim Doe <{}>".format,
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: quote(text, safe=""),
        lambda text: text.replace("@", "&#64;"),
        lambda text: text.replace("@", " [at] ").replace(".", " [dot] "),
        _spoken,
        str.upper,
    ),
    "host": (
        "[this page](https://{})".format,
        '<img src="https://{}">'.format,
        "\n```\n{}\n```\n".format,
        "`{}`".format,
        str.upper,
    ),
    "account": (_grouped, "\n| payee | {} |\n".format, '{{"iban": "{}"}}'.format, str.lower),
    "number": ("`{}`".format,),
}
_WRAPPING: Final[tuple[Callable[[str], str], ...]] = (
    str,
    "<!-- {} -->".format,
    '<div style="display:none">{}</div>'.format,
    "[SYSTEM] {}".format,
    "> {}".format,
    "## Note\n{}".format,
    lambda text: json.dumps({"note": text}),
    html.escape,
)


def named(prompt: str, draw: random.Random) -> str:
    """Return a prompt in which addresses, accounts and hosts are introduced in other words."""

    def again(found: re.Match[str]) -> str:
        beside = prompt[found.start() - 1 : found.start()] + prompt[found.end() : found.end() + 1]
        ways = _NAMING[found.lastgroup or ""]
        return found[0] if _BESIDE & set(beside) else draw.choice(ways)(found[0])

    return FOUND.sub(again, prompt)


def carried(text: str, planted: Collection[str], draw: random.Random) -> str:
    """Return a text in which planted values that stand in prose are carried another way."""
    if not any(value in text for value in planted):
        return text
    return "\n".join(_line(line, planted, draw) for line in text.split("\n"))


def _line(line: str, planted: Collection[str], draw: random.Random) -> str:
    told = False

    def again(found: re.Match[str]) -> str:
        nonlocal told
        in_prose = len(line[: found.start()].split()) >= _WORDS_BEFORE
        if found[0] not in planted or not in_prose:
            return found[0]
        told = True
        return draw.choice(_CARRYING[found.lastgroup or ""])(found[0])

    other = FOUND.sub(again, line)
    return draw.choice(_WRAPPING)(other) if told else line


def values_in(text: str) -> set[str]:
    """Return what a text has of addresses, hosts, accounts and numbers, as it is written."""
    return {found[0] for found in FOUND.finditer(text) if not DATE.search(found[0])}


_SEVERAL: Final = frozenset({"bcc", "cc", "participants", "recipients", "to"})
"""Arguments that take one recipient or many."""
_EMPTY: Final[tuple[Json, ...]] = (None, [], "")


def filled_in(args: dict[str, Json], draw: random.Random) -> dict[str, Any]:
    """Return the arguments as another model might have written them."""
    told: dict[str, Any] = {}
    for name, value in args.items():
        told[name] = _value(name, value, draw)
    if args.keys() & {"recipients", "to"}:
        for name in ("cc", "bcc"):
            if name not in args and draw.random() < 1 / 3:
                told[name] = draw.choice(_EMPTY)
    return told


def _value(name: str, value: Json, draw: random.Random) -> Json:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return draw.choice((value, str(value)))
    if name not in _SEVERAL:
        return value
    if isinstance(value, str) and value:
        return draw.choice((value, [value]))
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return draw.choice((value, ", ".join(map(str, value))))
    return value


def _items(document: Json) -> list[Json]:
    return document if isinstance(document, list) else [document]


def _yaml(document: Json) -> str:
    stream = StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.allow_unicode = True
    writer.dump(document, stream)
    return stream.getvalue().removesuffix("...\n").rstrip("\n")


def _blocks(document: Json) -> Json:
    texts = [
        item if isinstance(item, str) else json.dumps(item, indent=2) for item in _items(document)
    ]
    blocks: list[Json] = [{"type": "text", "text": text} for text in texts]
    return {"content": blocks}


SHAPES: Final[dict[str, Callable[[Json], Json]]] = {
    "json": json.dumps,
    "indented": lambda document: json.dumps(document, indent=2, ensure_ascii=False),
    "yaml": _yaml,
    "python": repr,
    "blocks": _blocks,
    "lines": lambda document: "\n".join(map(json.dumps, _items(document))),
    "structure": lambda document: document,
}
"""Shapes that keep every field apart from the next."""
