"""Large messages, read beside the event loop: in threads, or in another process, or refused.

Small calls are judged meanwhile.  A message that needs too much work, or whose reader died, took
too long or has too much to do, is refused.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

from guard.core.errors import MessageError
from guard.core.metrics import ERRORS, Metrics
from guard.core.policy import Action, Policy, Reason
from guard.core.work import CODE, WorkExceededError, may_exceed, measure
from guard.pipeline.call_reading import CallQuestion, CallReading, portable_question, read_calls
from guard.protocols.framing.json_messages import parse_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from guard.core.calls import ToolResult
    from guard.core.labels import LabelWrite
    from guard.core.model import Json, ToolCall
    from guard.provenance.seal import Seal


LARGE: Final = 32 * 1024
"""Characters and values from which a call is judged, or a result labelled, beside the event loop:
some milliseconds of work."""
_STRINGS: Final = frozenset({str})
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
    """:func:`read_json`, on behalf of a principal."""
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
        self._started: dict[object, float] = {}
        """Start times of the work that goes on."""

    async def run(
        self, work: Callable[ParamT, ResultT], *args: ParamT.args, **options: ParamT.kwargs
    ) -> ResultT:
        """Run a function in a thread."""
        key = object()

        def timed() -> ResultT:
            self._started[key] = time.monotonic()
            try:
                return work(*args, **options)
            finally:
                del self._started[key]

        return await asyncio.to_thread(timed)

    async def run_if(
        self,
        is_large: bool,  # noqa: FBT001  (the work's own arguments follow)
        work: Callable[ParamT, ResultT],
        *args: ParamT.args,
        **options: ParamT.kwargs,
    ) -> ResultT:
        """Run a function, in a thread if its work is large."""
        return await self.run(work, *args, **options) if is_large else work(*args, **options)

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
            inner = item.values() if isinstance(item, dict) else item
            room -= 2 * len(inner)
            # Most messages are texts only.
            if _STRINGS.issuperset(map(type, inner)):
                room -= sum(map(len, inner))
            elif room <= 0:
                return True
            else:
                waiting += inner
    return room <= 0


PARSED_AT_ONCE: Final = 256 * 1024
"""Bytes of a message that is parsed in this process: some milliseconds of work."""
WORK_EXCEEDED: Final = Reason(
    CODE,
    "",
    Action.BLOCK,
    "reading the call takes more work than one message may",
    remedy="send less in one call",
)
NOT_READ: Final = Reason(
    "guard_error", "", Action.BLOCK, "the call could not be read", remedy="retry later"
)
NO_POLICY: Final = Reason("no_policy", "", Action.BLOCK, "no policy is loaded")


class LargeCalls:
    """Reads the calls of large messages.

    Args:
        seal: the deployment's key.
        metrics: counts what could not be read.
        question: returns a call as the other process reads it under a policy.
        thread: runs a function in a thread, if there is no other process.
        processes: functions in other processes.
    """

    def __init__(
        self,
        seal: Seal,
        metrics: Metrics,
        question: Callable[[Policy, ToolCall], CallQuestion],
        thread: Callable[..., Awaitable[Any]],
        processes: OtherProcesses,
    ) -> None:
        self._seal = seal
        self._metrics = metrics
        self._question = question
        self._thread = thread
        self._reads = processes.read_calls
        self._parses = processes.read_json

    async def read(
        self, policies: Sequence[Policy | None], calls: Sequence[ToolCall]
    ) -> Sequence[CallReading | Reason]:
        """Return the calls of one message, read or why they are refused.  Never raises.

        Args:
            policies: in force for each.
            calls: of the message.
        """
        known = [policy for policy in policies if policy is not None]
        if len(known) < len(calls):
            return [NO_POLICY] * len(calls)
        try:
            return await self.answered(list(map(self._question, known, calls)))
        except Exception as error:  # noqa: BLE001  (a call that was not read must not go out)
            self._metrics.count(ERRORS, "parse")
            reason = WORK_EXCEEDED if isinstance(error, WorkExceededError) else NOT_READ
            return [reason] * len(calls)

    async def answered(self, questions: Sequence[CallQuestion]) -> list[CallReading]:
        """Return the readings of some calls, each with its call.

        Raises:
            WorkExceededError: they need more work than one message may.
            Exception: the other process died, took too long, or has too much to do.
        """
        if self._reads is None:
            readings = await self._thread(read_calls, self._seal, questions)
        else:
            readings = await self._reads(self._seal, list(map(portable_question, questions)))
        return [
            self.counted(reading.of(question))
            for question, reading in zip(questions, readings, strict=True)
        ]

    def counted(self, reading: CallReading) -> CallReading:
        """Count the errors of a reading, and return it."""
        for error in reading.errors:
            self._metrics.count(ERRORS, "parse" if error.startswith("classify") else "provenance")
        return reading

    async def json(self, principal: str, body: bytes) -> Json | MessageError:
        """Return the JSON of a body, as :func:`read_json`; a large one is read elsewhere.

        Raises:
            MessageError: its structure takes more work than one message may, or it was not read.
        """
        if len(body) <= PARSED_AT_ONCE and not may_exceed(body):
            return parsed(body)
        try:
            if self._parses is None:
                return await self._thread(read_json, body)
            return await self._parses(principal, body)
        except MessageError:
            raise
        except RecursionError:
            # It cannot be handed over; of a small body this depth may pass.
            return MessageError("bad_json", "the body is nested too deep")
        except Exception as error:
            self._metrics.count(ERRORS, "parse")
            raise MessageError(
                "guard_error", "the message could not be read; retry later", status=503
            ) from error


def parsed(body: bytes) -> Json | MessageError:
    """Return the JSON of a body, None where it is empty; a MessageError where it has none."""
    try:
        return parse_json(body) if body else None
    except MessageError as error:
        return error


def read_json(body: bytes) -> Json | MessageError:
    """Return the JSON of a body, as :func:`parsed`.

    Raises:
        WorkExceededError: its structure takes more work than one message may.
    """
    if may_exceed(body):
        measure(body)
    return parsed(body)
