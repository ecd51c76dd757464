"""``guard diff``: replay recorded runs with two policies and list every verdict that flips."""

from __future__ import annotations

import asyncio
import json as json_module
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from guard.adapters.redis.embedded import EmbeddedRedis
from guard.cli.detectors import Models, shipped_detectors
from guard.cli.terminal import plain
from guard.core.errors import GuardError, PolicyError
from guard.core.policy import Policy
from guard.core.ports import Detector
from guard.policy_files import load_policies
from guard.replay.policy_tests import find_policies
from guard.replay.run import Replay, fresh_store
from guard.replay.traces import TraceError, read_traces
from guard.settings import EMBEDDED

EXIT_FAILED = 1
EXIT_FLIPPED = 2
EXIT_INVALID = 3


def diff(
    before: Annotated[Path, typer.Argument(help="The policy as it was: a file, or a directory.")],
    after: Annotated[Path, typer.Argument(help="The policy as it will be, likewise.")],
    traces: Annotated[list[Path], typer.Argument(help="Trace files: .jsonl or .jsonl.gz.")],
    beside: Annotated[
        list[Path] | None,
        typer.Option("--policy", "-p", help="File or directory of both policies, read first."),
    ] = None,
    redis: Annotated[
        str, typer.Option("--redis", help="`embedded`, or the URL of your own Redis.")
    ] = EMBEDDED,
    json: Annotated[bool, typer.Option("--json", help="One JSON line per flip.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 2 if any verdict flips.")
    ] = False,
    models: Models = None,
) -> None:
    """List the calls of recorded runs that two policies decide differently, with the rules.

    Several files make one policy: all in a directory but tests, and those named with --policy.

    Exit code 0: replayed; 1: failed; 2: a verdict flipped, with --exit-code; 3: invalid input.
    """
    errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    try:
        shared = [file for path in beside or () for file in find_policies(path)]
        policies = (
            load_policies((*shared, *find_policies(before))),
            load_policies((*shared, *find_policies(after))),
        )
        # Read once ahead: a bad line is refused before anything is judged.
        runs = sum(1 for _ in read_traces(traces))
    except (PolicyError, TraceError) as error:
        errors.print(str(error))
        raise typer.Exit(EXIT_INVALID) from None
    try:
        with ExitStack() as stack:
            url = stack.enter_context(EmbeddedRedis()).url if redis == EMBEDDED else redis
            flips, calls = asyncio.run(_flips(policies, traces, url, shipped_detectors(models)))
    except (GuardError, OSError) as error:
        errors.print(f"guard diff: the replay failed: {error}")
        raise typer.Exit(EXIT_FAILED) from None
    for flip in flips:
        print(json_module.dumps(flip) if json else _sentence(flip))
    kinds = Counter(f"{flip['before']} -> {flip['after']}" for flip in flips)
    summary = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "no flip"
    errors.print(f"{runs} runs, {calls} calls: {summary}")
    if flips and exit_code:
        raise typer.Exit(EXIT_FLIPPED)


async def _flips(
    policies: tuple[Policy, Policy], traces: list[Path], url: str, detectors: Sequence[Detector]
) -> tuple[list[dict[str, Any]], int]:
    """Return the calls that flip, in the order of the traces, and how many calls there were."""
    old: list[tuple[str, tuple[str, ...]]] = []
    flips: list[dict[str, Any]] = []
    position = 0

    def remember(text: str) -> None:
        line = json_module.loads(text)
        old.append((line["action"], _deciding(line)))

    def compare(text: str) -> None:
        nonlocal position
        line = json_module.loads(text)
        action, rules = old[position]
        position += 1
        if line["action"] != action:
            flips.append(
                {
                    **{name: line[name] for name in ("run_id", "i", "session", "tool", "role")},
                    "before": action,
                    "before_by": list(rules),
                    "after": line["action"],
                    "after_by": list(_deciding(line)),
                }
            )

    for policy, emit in zip(policies, (remember, compare), strict=True):
        async with fresh_store(url, policy.limits) as store:
            await Replay(policy, store, detectors).run(read_traces(traces), emit)
    return flips, len(old)


def _deciding(line: dict[str, Any]) -> tuple[str, ...]:
    """Return the rules, or codes without one, whose effect is the action."""
    winning = (reason for reason in line["reasons"] if reason["action"] == line["action"])
    return tuple(dict.fromkeys(reason["rule"] or reason["code"] for reason in winning))


def _sentence(flip: dict[str, Any]) -> str:
    return plain(
        f"{flip['run_id']} call {flip['i']} {flip['tool']} ({flip['role']}): "
        f"{flip['before']} ({', '.join(flip['before_by'])}) -> "
        f"{flip['after']} ({', '.join(flip['after_by'])})"
    )
