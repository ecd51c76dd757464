"""LRU caches for pure functions of one text, bounded in memory.  Pure: no I/O.

A cache keeps its keys.  With long texts as keys a client could exhaust the memory of this process,
and private text would stay in it for hours.  So only the last few long texts are kept: enough for
the repeated look-ups of one decision.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ParamT = ParamSpec("ParamT")
ResultT = TypeVar("ResultT")
SHORT: Final = 1024
"""Characters of a text that is remembered for as long as there is room."""
LONG_ONES: Final = 4
"""Longer texts that are remembered."""


def bounded_cache(
    size: int, *, short: int = SHORT
) -> Callable[
    [Callable[Concatenate[str, ParamT], ResultT]], Callable[Concatenate[str, ParamT], ResultT]
]:
    """Return a decorator for a pure function of a text.

    Args:
        size: short texts that are remembered.
        short: characters of a text that counts as short.
    """

    def decorate(
        function: Callable[Concatenate[str, ParamT], ResultT],
    ) -> Callable[Concatenate[str, ParamT], ResultT]:
        of_short = lru_cache(maxsize=size)(function)
        of_long = lru_cache(maxsize=LONG_ONES)(function)

        @wraps(function)
        def call(text: str, /, *args: ParamT.args, **options: ParamT.kwargs) -> ResultT:
            return (of_short if len(text) <= short else of_long)(text, *args, **options)  # type: ignore[arg-type]

        return call

    return decorate
