"""LRU caches for pure functions of one text, bounded in memory.  Pure: no I/O.

A cache keeps its keys.  With long texts as keys a client could exhaust the memory of this process,
and private text would stay in it for hours.  So only the last few long texts are kept: enough for
the repeated look-ups of one decision.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from guard.core.work import CURRENT_BUDGET, WorkBudget, within

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

        def counted(
            text: str, /, *args: ParamT.args, **options: ParamT.kwargs
        ) -> tuple[ResultT, int]:
            budget = CURRENT_BUDGET.get()
            with within(WorkBudget(None if budget is None else budget.left)) as own:
                return function(text, *args, **options), own.spent

        counted_short = lru_cache(maxsize=size)(counted)
        counted_long = lru_cache(maxsize=LONG_ONES)(counted)

        @wraps(function)
        def call(text: str, /, *args: ParamT.args, **options: ParamT.kwargs) -> ResultT:
            budget = CURRENT_BUDGET.get()
            if budget is None:
                return (of_short if len(text) <= short else of_long)(text, *args, **options)  # type: ignore[arg-type]
            # A message costs the same, whatever was read before it.
            cached = counted_short if len(text) <= short else counted_long
            found, units = cached(text, *args, **options)  # type: ignore[arg-type]
            budget.spend(units)
            return found

        return call

    return decorate
