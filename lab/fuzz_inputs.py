"""Broken inputs by structure: trees are edited, written in odd spellings, then cut as bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from guard.core.model import Json

T = TypeVar("T")
CALL: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "send_email",
        "arguments": {"to": "boss@example.com", "cc": ["a@b.example"], "body": "all is well"},
    },
}
CORPUS: Final[tuple[Json, ...]] = (
    CALL,
    [CALL, {"jsonrpc": "2.0", "id": "x", "method": "ping"}],
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"cursor": None}},
    {"jsonrpc": "2.0", "id": 3, "result": {"content": [{"type": "text", "text": "done"}]}},
    {"to": "x@y.example", "deep": [[{"a": [1, 2.5, True, None, "\u00e9\U0001f600"]}]]},
)
VALUES: Final[tuple[Json, ...]] = (
    *(None, True, False, 0, -1, 1.0, 1e308, 2**64, "", "tools/call", "2.0", [], {}),
    *("\u202eevil", "a\u0000b", "\ufeff", "\u0130", "x" * 300, {"name": "other"}),
    {"name": "send_email", "arguments": {"to": "me@evil.example"}},
)
_CORPUS: Final = tuple(map(json.dumps, CORPUS))
_VALUES: Final = tuple(map(json.dumps, VALUES))
"""Values as text, because reading a text is the fastest way to a copy."""
SPICE: Final = (
    *(
        b"\xef\xbb\xbf",
        b"\x00",
        b"//x\n",
        b"/**/",
        b",",
        b"NaN",
        b"Infinity",
        b"\xff",
        b"\xed\xa0\x80",
    ),
    *(b'"method":"tools/call",', b'"id":2,', b"\\ud800", b"\\u0000", b"}{", b"\r\n\r\n", b"\n\n"),
    *(b"data: {}\n", b"event: message\r", b":\n", b"[" * 60, b"1e999", b"0x10", b"'", b"\x1f"),
)
HOSTS: Final = (
    *("example.com", "EXAMPLE.com.", "a.b.example", "xn--bcher-kva.example", "b\u00fccher.example"),
    *(
        "127.0.0.1",
        "0x7f.1",
        "2130706433",
        "[::1]",
        "[::ffff:1.2.3.4]",
        "\u0440aypal.example",
        "1.2.3",
    ),
)
PIECES: Final = (
    *("@", ":", "/", "\\", "?", "#", "//", "%2e", "%00", "..", " ", "\t", "\n", ":80", ":99999"),
    *(
        "user:pw@",
        "\u3002",
        "\u200b",
        "%",
        "%zz",
        ";",
        ",",
        "[",
        "]",
        "http://",
        "mailto:",
        "\uff0f",
    ),
)
ENCODINGS: Final = ("utf-8", "utf-8", "utf-8", "utf-8", "utf-16", "latin-1", "utf-8-sig")


class Mutator:
    """Makes inputs from one source of chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._random = chance.random

    def below(self, bound: int) -> int:
        """Return a number from 0 to the bound, without it; a third of ``randrange``'s time."""
        return int(self._random() * bound)

    def pick(self, among: Sequence[T]) -> T:
        """Return one of some."""
        return among[int(self._random() * len(among))]

    def document(self) -> Json:
        """Return a document of the corpus with up to three edits."""
        tree = json.loads(self.pick(_CORPUS))
        for _ in range(self.pick((0, 0, 1, 1, 2, 3))):
            tree = self._edited(tree)
        return tree

    def body(self) -> bytes:
        """Return a document as a body, in some spelling, and often damaged."""
        text = self.spelt(self.document())
        data = text.encode(self.pick(ENCODINGS), "backslashreplace")
        for _ in range(self.pick((0, 0, 0, 1, 2))):
            data = self.damaged(data)
        return data

    def spelt(self, value: Json) -> str:
        """Write a value as JSON with escapes, spaces and repeated names where chance wants them."""
        if isinstance(value, dict):
            members = [f"{self._text(key)}:{self.spelt(item)}" for key, item in value.items()]
            if members and self.chance.random() < 0.05:
                members.append(self.pick(members))
            if self.chance.random() < 0.05:
                self.chance.shuffle(members)
            return "{" + self._gap() + f",{self._gap()}".join(members) + "}"
        if isinstance(value, list):
            return "[" + f",{self._gap()}".join(map(self.spelt, value)) + "]"
        return self._text(value) if isinstance(value, str) else json.dumps(value)

    def damaged(self, data: bytes) -> bytes:
        """Cut, splice, flip or spice bytes."""
        place = self.below(len(data) + 1)
        kind = self.below(5)
        if kind == 0:
            return data[:place]
        if kind == 1:
            return data[:place] + self.pick(SPICE) + data[place:]
        if kind == 2:
            other = self.below(len(data) + 1)
            return data[:place] + data[other:]
        if kind == 3 and place < len(data):
            return data[:place] + bytes([self.below(256)]) + data[place + 1 :]
        return data + self.pick((data, b"\n", b" ", b"\x00", b"{}"))

    def stream(self) -> list[bytes]:
        """Return a stream of server-sent events, cut into chunks anywhere."""
        data = b""
        for _ in range(1 + self.below(3)):
            ending = self.pick((b"\n", b"\r\n", b"\r"))
            lines = [b"event: " + self.pick((b"message", b"ping", b""))]
            lines += [b"data: " + part for part in self.body().split(b"\n")]
            lines += [b": note", b"id: 7", b"retry: 10", b"data"][: self.below(5)]
            data += ending.join(lines) + ending + ending
        if self.chance.random() < 0.3:
            data = self.damaged(data)
        return self.chunks(data)

    def chunks(self, data: bytes) -> list[bytes]:
        """Cut bytes anywhere, inside characters and line ends too."""
        cuts = sorted(self.below(len(data) + 1) for _ in range(self.below(6)))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def url(self) -> str:
        """Return what may be a URL."""
        scheme = self.pick(("http://", "https://", "HTTPS://", "ftp://", "//", ""))
        text = f"{scheme}{self.pick(HOSTS)}/path?q=1"
        for _ in range(self.pick((0, 1, 1, 2, 3))):
            place = self.below(len(text) + 1)
            text = text[:place] + self.pick(PIECES) + text[place:]
        return text

    def recipients(self) -> Json:
        """Return what may stand where a policy expects destinations."""
        if self.chance.random() < 0.3:
            return self.document()
        names: Sequence[str] = (
            "a@b.example",
            '"x, y" <c@d.example>',
            "g: e@f.example;",
            "#channel",
        )
        return self.pick((", ", ";", "\n")).join(
            self.url() if self.chance.random() < 0.5 else self.pick(names)
            for _ in range(1 + self.below(3))
        )

    def _edited(self, tree: Json) -> Json:
        """Change one place of a tree."""
        parent, key = self._place(tree)
        if parent is None:
            return [tree] if self.chance.random() < 0.5 else {"params": tree}
        kind = self.below(5)
        value = json.loads(self.pick(_VALUES))
        if kind == 0 and isinstance(parent, dict):
            parent[self._respelt(key)] = value
        elif kind == 1:
            parent[key] = [parent[key]]
        elif kind == 2 and isinstance(parent, dict):
            parent[self._respelt(key)] = parent.pop(key)
        else:
            parent[key] = value
        return tree

    def _place(self, tree: Json) -> tuple[Any, Any]:
        places: list[tuple[Any, Any]] = [(None, None)]
        stack = [tree]
        while stack:
            item = stack.pop()
            inner = item.items() if isinstance(item, dict) else ()
            pairs = list(enumerate(item)) if isinstance(item, list) else list(inner)
            places += [(item, key) for key, _ in pairs]
            stack += [value for _, value in pairs]
        return self.pick(places)

    def _respelt(self, key: str) -> str:
        return self.pick((key.upper(), key.title(), key + " ", "_" + key, key + "\u200b"))

    def _text(self, text: str) -> str:
        plain = json.dumps(text, ensure_ascii=self.chance.random() < 0.5)
        if text and self.chance.random() < 0.05 and text[0].isascii():
            return f'"\\u{ord(text[0]):04x}' + plain[2:] if text[0].isalnum() else plain
        return plain

    def _gap(self) -> str:
        return self.pick(("", "", " ", "\n", "\t", "\r\n"))
