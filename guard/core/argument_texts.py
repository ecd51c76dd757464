"""The texts in a call's arguments, one by one, and the arguments with parts of them replaced.

Pure: no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.model import Json, Span


LONG_NUMBER: Final = 10**9
"""From here on a number may be that of an account."""


@dataclass(frozen=True, slots=True)
class ArgumentText:
    """One text of the arguments."""

    path: tuple[str | int, ...]
    """Keys and places that lead to it; empty for a key, which nothing can replace."""
    text: str
    name: str = ""
    """The nearest key: a name tells a secret from a word."""

    @property
    def named(self) -> str:
        """The text behind its name, as an assignment would have it."""
        return f"{self.name}={self.text}" if self.name else self.text


def argument_texts(arguments: Json) -> Iterator[ArgumentText]:
    """Yield every string, every long number and every key of the arguments."""
    stack: list[tuple[tuple[str | int, ...], str, Json]] = [((), "", arguments)]
    while stack:
        path, name, item = stack.pop()
        if isinstance(item, str):
            yield ArgumentText(path, item, name)
        elif isinstance(item, dict):
            for key, inner in item.items():
                yield ArgumentText((), str(key))
                stack.append(((*path, str(key)), str(key), inner))
        elif isinstance(item, list):
            stack.extend(((*path, place), name, inner) for place, inner in enumerate(item))
        elif isinstance(item, int) and item >= LONG_NUMBER:
            yield ArgumentText((), str(item), name)


def without_spans(arguments: Json, spans: Iterable[Span]) -> Json:
    """Return a copy of the arguments with each span replaced by the name of its kind."""
    by_path: dict[tuple[str | int, ...], list[Span]] = {}
    for span in spans:
        by_path.setdefault(span.path, []).append(span)
    return _copied((), arguments, by_path)


def _copied(
    path: tuple[str | int, ...], item: Json, spans: dict[tuple[str | int, ...], list[Span]]
) -> Json:
    if isinstance(item, dict):
        return {key: _copied((*path, str(key)), inner, spans) for key, inner in item.items()}
    if isinstance(item, list):
        return [_copied((*path, place), inner, spans) for place, inner in enumerate(item)]
    if isinstance(item, str) and path in spans:
        return _replaced(item, spans[path])
    return item


def _replaced(text: str, spans: list[Span]) -> str:
    """Return a text with its spans replaced; those that touch become one."""
    pieces: list[str] = []
    end = 0
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if span.start >= end:
            pieces += (text[end : span.start], f"[redacted {span.kind}]")
        end = max(end, span.end)
    return "".join((*pieces, text[end:]))
