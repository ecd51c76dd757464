"""``guard lab bench adopt``: set-up commands, installed size, what ``guard init`` gets right."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from guard.core.errors import GuardError
from guard.replay.reports import Check, Report, machine
from lab.adopt.days import checks, details, played_days
from lab.adopt.setup import commands_to_block, installed_megabytes
from lab.adopt.truth import Judged, judged
from lab.adopt_hooks import hook_checks
from lab.judged_runs import fraction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.trust.harness import Compose


def bench_adopt(
    compose: Compose,
    redis_url: str,
    *,
    flows: int | None,
    progress: Callable[[str, float], object],
) -> Report:
    """Measure and return the report.

    Args:
        compose: the composition root.
        redis_url: of a server that nothing else uses.
        flows: honest tellings at most, drawn evenly; all if None.
        progress: is told the stage, and the share of it that is done.
    """
    progress("servers", 0)
    tools = judged()
    progress("hooks", 0)
    hooks, hook_details = hook_checks()
    days = {
        name: asyncio.run(
            played_days(compose, redis_url, limit=flows, prompts=prompts, progress=progress)
        )
        for name, prompts in (("with_prompts", True), ("without_prompts", False))
    }
    progress("set-up", 0)
    setup, checked = _setup()
    progress("installed", 0)
    size, reason = installed_megabytes()
    return Report(
        name="adopt",
        machine=machine(),
        checks=[
            *_mapped(tools),
            *hooks,
            *checks(days["with_prompts"], days["without_prompts"]),
            *setup,
            Check(id="installed_mb", value=size, unit="MB", target="<= 300", reason=reason),
        ],
        details={
            "tools": {
                name: dict(Counter(t.outcome for t in tools if t.server == name))
                for name in dict.fromkeys(t.server for t in tools)
            },
            "not_right": [f"{t.server}: {t.tool}: {t.said}" for t in tools if t.outcome != "right"],
            "hooks": hook_details,
            "days": {name: details(found) for name, found in days.items()},
            "set_up": checked,
        },
    )


def _mapped(tools: Sequence[Judged]) -> list[Check]:
    """Return the share of tools that ``guard init`` maps right, and the number of looser ones."""
    right = sum(tool.outcome == "right" for tool in tools)
    return [
        fraction("servers_mapped", right, len(tools), ">= 0.9"),
        Check(
            id="wrong_to_looser",
            value=sum(tool.outcome == "looser" for tool in tools),
            unit="count",
            n=len(tools),
            target="= 0",
        ),
    ]


def _setup() -> tuple[list[Check], list[str]]:
    """Return the commands and policy lines of the set-up, or why it failed."""
    with tempfile.TemporaryDirectory(prefix="guard-adopt-") as directory:
        try:
            commands, lines, checked = commands_to_block(Path(directory))
            reason = None
        except (GuardError, OSError, subprocess.SubprocessError, ExceptionGroup) as error:
            commands, lines, checked, reason = None, None, [], f"{type(error).__name__}: {error}"
    return [
        Check(
            id="commands_to_block", value=commands, unit="count", n=1, target="<= 2", reason=reason
        ),
        Check(id="lines_written", value=lines, unit="count", n=1, target="= 0", reason=reason),
    ], checked
