"""A message is forwarded whole or not at all: what one call of it meets, the others meet too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.verdict import Action, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.calls import TracedCall
    from guard.core.verdict import Verdict
    from guard.memory_gate.write_path import WritePath

    Judged: TypeAlias = tuple[TracedCall, Verdict, float]
    Recorder: TypeAlias = Callable[[TracedCall, Verdict, float], Verdict]

REFUSED: Final = Reason(
    "batch_refused",
    "",
    Action.BLOCK,
    "another call of the same batch was refused",
    remedy="send this call on its own",
)


def all_or_none(judged: list[Judged]) -> list[Judged]:
    """Return the calls of a message; where any is refused, so are the others."""
    if len(judged) < 2 or all(verdict.enforced.forwards for _, verdict, _ in judged):  # noqa: PLR2004  (one call has no others)
        return judged
    return [(c, _with_the_others(verdict), seconds) for c, verdict, seconds in judged]


async def commit_whole(
    memory: WritePath, answers: list[tuple[TracedCall, Verdict]], record: Recorder
) -> list[tuple[TracedCall, Verdict]]:
    """Commit the staged writes of a message that is about to go out, all or none.

    Args:
        memory: the write path.
        answers: its calls and their verdicts.
        record: writes the audit line of a verdict that has changed.
    """
    if not all(verdict.enforced.forwards for _, verdict in answers):
        for classified, _ in answers:
            await memory.discard(classified.call.id)
        return answers
    done = [(c, await memory.commit(c.call.id, v), v) for c, v in answers]
    if all(after is before for _, after, before in done):
        return answers
    final: list[tuple[TracedCall, Verdict]] = []
    enforced = all(after.enforced.forwards for _, after, _ in done)
    for classified, after, before in done:
        verdict = after
        if not enforced:
            await memory.discard(classified.call.id)
            verdict = _with_the_others(after)
        if verdict is not before:
            verdict = record(classified, verdict, 0.0)
        final.append((classified, verdict))
    return final


def _with_the_others(verdict: Verdict) -> Verdict:
    return verdict.blocked(REFUSED) if verdict.enforced.forwards else verdict
