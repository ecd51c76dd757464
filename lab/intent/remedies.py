"""A scripted agent that follows remedies, over recorded runs.

The environment is the recording: a directory tool answers with what it answered in benign runs of
the same suite.  The agent looks a recipient up where a refusal says so, and repeats the call.
Asking the user and waiting for approval count as asked: nobody answers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from guard.core.json_values import strings_in_order

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from guard.core.model import Json
    from guard.replay.traces import Call, Run
    from lab.judged_runs import JudgedCall, JudgedRun

ROUNDS: Final = 3
"""Steps that the agent takes for one call."""
Answers: TypeAlias = 'dict[tuple[str, str], list["Call"]]'
"""Recorded calls by suite and tool."""


def recorded_answers(runs: Iterable[Run]) -> Answers:
    """Return what each tool of a suite answered in benign runs."""
    found: Answers = defaultdict(list)
    for run in runs:
        for call in run.calls if not run.labels.get("attack") else ():
            if call.result is not None:
                found[str(run.labels.get("suite")), call.tool].append(call)
    return found


async def followed(
    judge: Callable[[Sequence[Run]], Awaitable[list[JudgedRun]]],
    judged: Sequence[JudgedRun],
    counts: Callable[[JudgedCall], bool],
) -> list[JudgedCall]:
    """Return the verdicts on the counted calls after an agent has followed the remedies.

    Args:
        judge: judges runs from fresh state.
        judged: the runs before.
        counts: whether a call is one of those that are counted.
    """
    answers = recorded_answers(one.run for one in judged)
    tried: dict[tuple[str, str], set[str]] = defaultdict(set)
    for _ in range(ROUNDS):
        changed = [
            _stepped(one, counts, answers, tried[one.run.run_id, one.run.owner]) for one in judged
        ]
        again = [run for run in changed if run is not None]
        if not again:
            break
        found = iter(await judge(again))
        judged = [
            one if run is None else next(found) for one, run in zip(judged, changed, strict=True)
        ]
    return [call for one in judged for call in one.calls if counts(call)]


def _stepped(
    judged: JudgedRun,
    counts: Callable[[JudgedCall], bool],
    answers: Answers,
    tried: set[str],
) -> Run | None:
    """Return a run with one more step before its first refused call; None where nothing helps."""
    suite = str(judged.labels.get("suite"))
    for call in judged.calls:
        if not (call.flagged and counts(call)):
            continue
        for remedy in call.line.get("remedies", ()):
            key = json.dumps([call.call.i, call.call.tool, call.call.args, remedy], sort_keys=True)
            if remedy["kind"] != "look_up" or key in tried:
                continue
            tried.add(key)
            for answer in answers.get((suite, remedy["tool"]), ()):
                if _names(answer, call.call.args, remedy.get("argument", "")):
                    return _with_call(judged.run, call.call.i, answer)
    return None


def _names(answer: Call, arguments: dict[str, Json], path: str) -> bool:
    """Return whether an answer has a value of the argument that is looked up."""
    text = answer.result if isinstance(answer.result, str) else json.dumps(answer.result)
    wanted = [value for name, value in arguments.items() if not path or f"'{name}'" in path]
    return any(len(one) > 1 and one in text for value in wanted for one in strings_in_order(value))


def _with_call(run: Run, place: int, answer: Call) -> Run:
    """Return a run with a recorded call before one of its calls."""
    at = next(number for number, call in enumerate(run.calls) if call.i == place)
    before = run.calls[at]
    step = before.model_copy(
        update={"tool": answer.tool, "args": answer.args, "result": answer.result}
    )
    calls = [*run.calls[:at], step, *run.calls[at:]]
    numbered = tuple(call.model_copy(update={"i": i}) for i, call in enumerate(calls))
    return run.model_copy(update={"calls": numbered})
