"""Expressions that run only where a faster one may match.  Pure: no I/O.

Python's engine supports look-around and reads some ten megabytes a second; RE2 reads hundreds and
supports none. RE2 therefore finds the runs of text in which an expression could match, and the
expression decides there, with the text before the run in sight. The result equals a search of the
whole text, in the same order: ``tests/unit/values/test_prefilter.py`` compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence

SHORT: Final = 64
"""Characters of a text in which looking beforehand costs more than it saves."""
_UNANCHORED: Final = re2._Anchor.UNANCHORED  # noqa: SLF001  (as is what takes it)
AHEAD: Final = 3
"""Characters behind a run that an expression may look at."""


class Prefiltered:
    """An expression over texts, used like a compiled one.

    The caller guarantees: a match that counts consists of characters of ``run``, contains a match
    of ``maybe``, and depends on at most ``AHEAD`` characters behind it. Both are read over the text
    in ASCII, where ``?`` replaces every other character.

    Args:
        exact: what is looked for.
        run: a class of characters, without brackets, as RE2 has it; empty where every match is one
            of ``maybe``, from its first character on.
        maybe: an expression without look-around.
    """

    __slots__ = ("_next", "exact", "maybe")

    def __init__(self, exact: re.Pattern[str], run: str, maybe: str) -> None:
        self.exact = exact
        self.maybe = maybe
        around = f"[{run}]*" if run else ""
        run_of = re2.compile(f"{around}(?:{maybe}){around}".encode("ascii"))
        # The module's own search wraps each place in objects that cost more than finding it.
        self._next: Callable[..., Sequence[tuple[int, int]]] = run_of._regexp.Match  # noqa: SLF001

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Return the matches in a text."""
        return self.exact.finditer(text) if len(text) < SHORT else self._in_runs(text)

    def _in_runs(self, text: str) -> Iterator[re.Match[str]]:
        data = text.encode("ascii", "replace")
        size, end = len(data), 0
        while True:
            start, end = self._next(_UNANCHORED, data, end, size)[0]
            if start < 0:
                return
            for found in self.exact.finditer(text, start, end + AHEAD):
                if found.start() >= end:
                    break
                yield found
