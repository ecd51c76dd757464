"""``guard lab bench adopt``: set-up commands, installed size, what ``guard init`` gets right."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.replay.reports import Check, Report, machine
from lab.adopt.days import checks, details, played_days
from lab.adopt.honest import honest_courses
from lab.adopt.setup import commands_to_block
from lab.adopt.truth import current_truths, judged
from lab.adopt_hooks import hook_checks
from lab.installed import MEGABYTE, installed_sizes
from lab.judged_runs import wilson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lab.trust.flows import Course
    from lab.trust.harness import Compose

HELP_RUNS: Final = 5


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
    honest: dict[str, dict[str, list[Course]]] = {}
    for name, known in (("recognised", False), ("told", True)):
        step = _stepper(progress, f"honest flows, servers {name}", flows or 1000)
        honest[name] = asyncio.run(
            honest_courses(compose, redis_url, limit=flows, known=known, step=step)
        )
    progress("hooks", 0)
    hooks = hook_checks()
    days = {}
    for name, prompts in (("with_prompts", True), ("without_prompts", False)):
        step = _stepper(progress, f"three days, {name.replace('_', ' ')}", flows or 70)
        days[name] = asyncio.run(
            played_days(compose, redis_url, limit=flows, prompts=prompts, step=step)
        )
    progress("set-up", 0)
    setup, checked = _setup()
    progress("help", 0)
    return Report(
        name="adopt",
        machine=machine(),
        checks=[
            *_mapped(tools),
            *_mapped(judged(current_truths), "servers_mapped", "wrong_to_looser", ">= 0.9"),
            *_honest(honest),
            *hooks.checks,
            *checks(days["with_prompts"], days["without_prompts"]),
            *setup,
            Check(id="help_seconds", value=_help(), unit="s", n=HELP_RUNS, target="<= 0.3"),
            _installed(),
        ],
        details={
            "tools": {
                name: dict(Counter(t.outcome for t in tools if t.server == name))
                for name in dict.fromkeys(t.server for t in tools)
            },
            "not_right": [f"{t.server}: {t.tool}: {t.said}" for t in tools if t.outcome != "right"],
            "honest": {
                name: {domain: _share(some) for domain, some in courses.items()}
                for name, courses in honest.items()
            },
            "asked": {name: dict(_asked(courses)) for name, courses in honest.items()},
            "hooks": hooks.details,
            "days": {name: details(found) for name, found in days.items()},
            "set_up": checked,
        },
    )


def _installed() -> Check:
    """Return what a plain installation takes, of the distributions that are installed here."""
    size = sum(installed_sizes().values()) / MEGABYTE
    return Check(id="installed_mb", value=round(size, 1), unit="MB", target="<= 260")


def _stepper(
    progress: Callable[[str, float], object], stage: str, total: int
) -> Callable[[], object]:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(stage, min(1.0, done / total))

    return step


def _mapped(
    tools: Sequence[Any],
    mapped: str = "init_servers_mapped",
    looser_id: str = "init_wrong_to_looser",
    target: str = ">= 0.8",
) -> list[Check]:
    right = sum(tool.outcome == "right" for tool in tools)
    looser = sum(tool.outcome == "looser" for tool in tools)
    return [
        Check(
            id=mapped,
            value=round(right / len(tools), 4),
            unit="fraction",
            n=len(tools),
            interval=wilson(right, len(tools)),
            target=target,
        ),
        Check(id=looser_id, value=looser, unit="count", n=len(tools), target="= 0"),
    ]


def _honest(honest: Mapping[str, Mapping[str, Sequence[Course]]]) -> list[Check]:
    n = sum(map(len, honest["recognised"].values()))
    return [
        Check(
            id=name,
            value=round(sum(map(_share, honest[kind].values())) / len(honest[kind]), 4),
            unit="fraction",
            n=n,
            target=target,
        )
        for name, kind, target in (
            # Half of the flows' servers are nobody's product, which only their user can name.
            ("init_honest_pass", "told", ">= 0.7"),
            ("init_honest_pass_recognised", "recognised", None),
        )
    ]


def _share(courses: Sequence[Course]) -> float:
    """Return the share of flows in which nothing was asked about or blocked the first time."""
    return round(sum(not one.first and not one.blocked for one in courses) / len(courses), 4)


def _asked(courses: Mapping[str, Sequence[Course]]) -> list[tuple[str, int]]:
    counted = Counter(
        one for some in courses.values() for course in some for one in course.first | course.blocked
    )
    return counted.most_common(20)


def _setup() -> tuple[list[Check], list[str]]:
    """Return the commands and policy lines of the set-up, or why it failed."""
    with tempfile.TemporaryDirectory(prefix="guard-adopt-") as directory:
        try:
            commands, lines, checked = commands_to_block(Path(directory))
            reason = None
        except (GuardError, OSError, ExceptionGroup) as error:
            commands, lines, checked, reason = None, None, [], f"{type(error).__name__}: {error}"
    return [
        Check(
            id="commands_to_block", value=commands, unit="count", n=1, target="<= 3", reason=reason
        ),
        Check(id="lines_written", value=lines, unit="count", n=1, target="= 0", reason=reason),
    ], checked


def _help() -> float:
    """Return the median of the seconds that ``guard --help`` takes."""
    taken = []
    for _ in range(HELP_RUNS):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "guard", "--help"], capture_output=True, check=True)
        taken.append(time.perf_counter() - begun)
    return round(sorted(taken)[HELP_RUNS // 2], 3)
