"""Request and outcome of one judgement: the calls of one message, and a verdict on each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.calls import TracedCall
    from guard.core.model import ToolCall
    from guard.core.policy import Verdict
    from guard.pipeline.redaction import Rewrite


class JudgeRequest(NamedTuple):
    """The calls of one message, which is forwarded whole or not at all."""

    calls: Sequence[ToolCall]
    rewrite: Rewrite | None = None
    """Writes redacted arguments into the message; without it a redaction is a block."""


class JudgedCall(NamedTuple):
    """A call with its verdict, on record."""

    call: TracedCall
    verdict: Verdict


class Outcome(tuple[JudgedCall, ...]):
    """The judged calls of one request, in the order of the request."""

    __slots__ = ()

    @property
    def forwards(self) -> bool:
        """True if the message may be forwarded."""
        return all(judged.verdict.enforced.forwards for judged in self)
