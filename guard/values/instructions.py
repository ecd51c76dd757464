"""Patterns of text that gives a model instructions, read from a data file.  Pure: no I/O.

The file names its source and its review date.  A match is evidence: it lowers the label of a text,
and it never raises one.
"""

from __future__ import annotations

import tomllib
import unicodedata
from functools import cache
from importlib.resources import files
from typing import Final

import re2

from guard.values.decoder import content_readings

DATA: Final = "instruction_patterns.toml"
LIMIT: Final = 256 * 1024
"""Maximum number of characters that are searched."""
SHORTEST: Final = 12
"""Characters of a text that is too short for every pattern: a word, a number or an id."""


@cache
def patterns() -> dict[str, re2._Regexp]:
    """Return the compiled patterns by id."""
    data = tomllib.loads(files(__package__).joinpath(DATA).read_text(encoding="utf-8"))
    return {row["id"]: _compiled(row["parts"], row["within"]) for row in data["pattern"]}


def matched_pattern(text: str, *, deep: bool = False) -> str | None:
    """Return the id of a pattern that the text matches, or None.

    Args:
        text: of any length; its beginning is searched.
        deep: whether the decodings of the text are searched too.
    """
    text = text[:LIMIT]
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if len(text) < SHORTEST and not deep:
        return None
    readings = content_readings(text).texts if deep else (text,)
    found = (one for one in readings if _any_pattern().search(one))
    return next(
        (name for one in found for name, form in patterns().items() if form.search(one)), None
    )


@cache
def _any_pattern() -> re2._Regexp:
    return re2.compile("|".join(f"(?:{form.pattern})" for form in patterns().values()))


def _compiled(parts: list[str], within: int) -> re2._Regexp:
    joined = rf"\b.{{0,{within}}}?\b".join(f"(?:{part})" for part in parts)
    return re2.compile(rf"(?is)\b{joined}\b")
