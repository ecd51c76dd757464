"""Hints in the errors of policies."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggestion(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return ``; did you mean `x`?``, or nothing where nothing is near."""
    close = difflib.get_close_matches(word, sorted(known), n=1, cutoff=cutoff)
    return f"; did you mean `{close[0]}`?" if close else ""


def one_of(value: object, known: Iterable[str]) -> str:
    """Return the error of a value that is not one of some names."""
    names = list(known)
    listed = ", ".join(f"`{name}`" for name in names)
    return f"must be one of {listed}{suggestion(str(value), names)}"
