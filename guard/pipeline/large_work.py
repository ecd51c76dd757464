"""Work on large messages beside the event loop: in threads, or in another process."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guard.core.calls import ToolResult
    from guard.core.errors import MessageError
    from guard.core.labels import LabelWrite
    from guard.core.model import Json, ToolCall
    from guard.core.policy import Policy
    from guard.pipeline.call_reading import CallQuestion, CallReading
    from guard.provenance.seal import Seal

LARGE: Final = 32 * 1024
"""Characters and values from which a call is judged, or a result labelled, beside the event loop:
some milliseconds of work."""
_CONTAINERS: Final = (dict, list)
"""A tuple: building ``dict | list`` on every call is slow."""

ReadsCalls: TypeAlias = "Callable[[Seal, Sequence[CallQuestion]], Awaitable[list[CallReading]]]"
ReadsJson: TypeAlias = "Callable[[str, bytes], Awaitable[Json | MessageError]]"
LabelledResult: TypeAlias = "tuple[list[LabelWrite], bool]"
"""Labels from a result, and True if a bound cut any off."""
ReadsResult: TypeAlias = "Callable[[Seal, Policy, ToolResult], Awaitable[LabelledResult]]"
RunsElsewhere: TypeAlias = "Callable[..., Awaitable[Any]]"
"""Runs a function with its arguments in another process."""
ParamT = ParamSpec("ParamT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """Functions that work in other processes; None uses a thread instead."""

    read_calls: ReadsCalls | None = None
    """:func:`guard.pipeline.call_reading.read_calls`, for the calls of large messages."""
    read_json: ReadsJson | None = None
    """:func:`guard.pipeline.large_calls.read_json`, on behalf of a principal."""
    read_result: ReadsResult | None = None
    """:func:`guard.provenance.intake.result_writes`, for large results."""
    scan: RunsElsewhere | None = None
    """Runs the detectors on a large result."""
    select: RunsElsewhere | None = None
    """Runs selectors that hold the interpreter."""
    judging: Callable[[ToolCall | None], None] | None = None
    """Called with each call before CPU-bound work starts and with None after it; the supervisor
    reads from it the call that hung a worker."""


class Threads:
    """Threads that work on large messages while the event loop judges other calls."""

    def __init__(self) -> None:
        self._started: dict[int, float] = {}
        """Start times by number."""
        self._numbers = itertools.count()

    async def run(
        self, work: Callable[ParamT, ResultT], *args: ParamT.args, **options: ParamT.kwargs
    ) -> ResultT:
        """Run a function in a thread."""
        number = next(self._numbers)

        def timed() -> ResultT:
            self._started[number] = time.monotonic()
            try:
                return work(*args, **options)
            finally:
                del self._started[number]

        return await asyncio.to_thread(timed)

    def is_stuck(self, seconds: float) -> bool:
        """Return True if a thread has worked on one message for longer than a limit."""
        limit = time.monotonic() - seconds
        return any(started < limit for started in list(self._started.values()))


def is_large(content: Json) -> bool:
    """Return True if judging a call, or labelling a result, would delay other calls."""
    room = LARGE - 2
    waiting: list[Json] = [content]
    for item in waiting:
        if isinstance(item, str):
            room -= len(item)
        elif isinstance(item, _CONTAINERS):
            room -= 2 * len(item)
            if room <= 0:
                return True
            waiting += item.values() if isinstance(item, dict) else item
    return room <= 0
