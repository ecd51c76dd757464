"""Patterns over tool names: globs, or RE2 expressions that match the whole name.  Pure: no I/O.

Matching is case-sensitive and linear in the name, whoever wrote the pattern.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003  (rule models read this annotation)
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import re2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.model import Json

WILDCARDS: Final = "*?"
MAX_PATTERN: Final = 200
"""Characters of one pattern; tool names are far shorter."""


@dataclass(frozen=True, slots=True)
class ToolPattern:
    """One pattern over tool names."""

    text: str
    """Text as written."""
    is_regex: bool
    matches: Callable[[str], bool] = field(compare=False, repr=False)

    @classmethod
    def parse(cls, source: Json) -> ToolPattern:
        """Read a glob (``"mail_*"``: ``*`` any characters, ``?`` one) or ``{"re2": "..."}``.

        Raises:
            ValueError: it is neither, is empty or too long, or RE2 refuses it.
        """
        if isinstance(source, dict):
            if set(source) != {"re2"} or not isinstance(source["re2"], str):
                raise ValueError("a pattern is a glob such as `mail_*`, or `{re2: '...'}`")
            return cls(source["re2"], is_regex=True, matches=_expression(source["re2"]))
        if not isinstance(source, str):
            raise ValueError("a pattern is a glob such as `mail_*`, or `{re2: '...'}`")  # noqa: TRY004  (pydantic reports ValueErrors)
        if "[" in source or "]" in source:
            raise ValueError(f"glob `{source}` has a bracket; write `{{re2: '...'}}` for classes")
        if not any(character in source for character in WILDCARDS):
            _check_length(source)
            return cls(source, is_regex=False, matches=source.__eq__)
        expression = "(?s)" + "".join(
            {"*": ".*", "?": "."}.get(character) or re2.escape(character) for character in source
        )
        return cls(source, is_regex=False, matches=_expression(expression, source))

    @property
    def is_literal(self) -> bool:
        """True if it claims exactly one name."""
        return not self.is_regex and not any(character in self.text for character in WILDCARDS)

    @property
    def is_everything(self) -> bool:
        """True if it claims every name."""
        return not self.is_regex and bool(self.text) and not self.text.strip("*")

    @property
    def source(self) -> Json:
        """Text that :meth:`parse` reads back."""
        return {"re2": self.text} if self.is_regex else self.text

    def covers(self, other: ToolPattern) -> bool:
        """Return whether it surely claims every name that the other claims.

        Sufficient, not necessary: expressions are compared by their text only.
        """
        if self == other or self.is_everything:
            return True
        if other.is_literal:
            return self.matches(other.text)
        if self.is_regex or other.is_regex:
            return False
        return _glob_covers(self.text, other.text)

    def overlaps(self, other: ToolPattern) -> bool:
        """Return whether some name may be claimed by both; True where it cannot be told."""
        if other.is_literal:
            return self.matches(other.text)
        if self.is_literal:
            return other.matches(self.text)
        if self.is_regex or other.is_regex:
            return True
        return _globs_meet(self.text, other.text)


def any_pattern(patterns: Sequence[ToolPattern]) -> Callable[[str], bool]:
    """Return a test that is true of a name that any of some patterns claims."""
    others = [pattern.matches for pattern in patterns if not pattern.is_literal]
    names = frozenset([pattern.text for pattern in patterns if pattern.is_literal])
    if not others:
        return names.__contains__
    return lambda name: name in names or any(test(name) for test in others)


def _check_length(text: str) -> None:
    if not text or len(text) > MAX_PATTERN:
        raise ValueError(f"a pattern has 1 to {MAX_PATTERN} characters")


def _expression(expression: str, glob: str | None = None) -> Callable[[str], bool]:
    _check_length(glob if glob is not None else expression)
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        raise ValueError(f"`{expression}` is not an RE2 expression: {_text(error)}") from error
    return lambda name: compiled.fullmatch(name) is not None


def _text(error: Exception) -> str:
    detail = error.args[0] if error.args else ""
    return detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)


def _glob_covers(wide: str, narrow: str) -> bool:
    """Match the glob ``narrow`` as if it were a name whose ``*`` only a ``*`` can take."""
    row = [True] + [False] * len(narrow)
    for char in wide:
        previous, row = row, [row[0] and char == "*"] + [False] * len(narrow)
        for index, symbol in enumerate(narrow, start=1):
            if char == "*":
                row[index] = previous[index] or row[index - 1]
            elif char == "?":
                row[index] = previous[index - 1] and symbol != "*"
            else:
                row[index] = previous[index - 1] and symbol == char
    return row[-1]


def _globs_meet(left: str, right: str) -> bool:
    """Return whether two globs have a name in common (reachability over both positions)."""
    seen: set[tuple[int, int]] = set()
    stack = [(0, 0)]
    while stack:
        place = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        i, j = place
        if i == len(left) and j == len(right):
            return True
        if i < len(left) and left[i] == "*":
            stack.append((i + 1, j))
            if j < len(right):
                stack.append((i, j + 1))
        if j < len(right) and right[j] == "*":
            stack.append((i, j + 1))
            if i < len(left):
                stack.append((i + 1, j))
        if i < len(left) and j < len(right) and (left[i] == right[j] or "?" in {left[i], right[j]}):
            stack.append((i + 1, j + 1))
    return False
