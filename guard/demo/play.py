"""Plays the whole demo: servers, guard, sessions, proofs; and cleans up whatever happens."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from guard.core.errors import GuardError
from guard.core.model import DestinationStatus
from guard.core.policy import Policy
from guard.demo.narration import Narrator
from guard.demo.story import DemoError, Ending, Step, Story, office, stage
from guard.replay.reports import Check, Report, machine
from guard.values.canonical import read_destinations

WHOLE_SECONDS: Final = 240
"""After this the demo gives up and cleans up; it takes a tenth of that."""
PASSES: Final = frozenset({DestinationStatus.INTERNAL, DestinationStatus.ALLOWED})


def passes_by_policy(policy: Policy, attacker: str) -> bool:
    """Return whether the policy lets mail to all of this address through anyway."""
    statuses = {policy.status_of(found) for found in read_destinations(attacker)}
    return bool(statuses) and statuses <= PASSES


def play(policy: Path, attacker: str, *, keep: bool, narrator: Narrator) -> tuple[Ending, Report]:
    """Play the demo and return what was proven, and its report.

    Raises:
        DemoError: it could not be played; nothing is left running.
    """
    started = time.perf_counter()
    steps: list[Step] = []

    def noted(step: Step) -> None:
        steps.append(step)
        narrator.step(step)

    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="guard-demo-"))
        if not keep:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        held = office(attacker)
        narrator.opening(policy.name)
        try:
            with _stopped_cleanly(), stage(directory, policy, held) as urls:
                story = Story(urls, held, directory / "audit.jsonl", noted)
                asyncio.run(tell(story, narrator, attacker))
        except Exception as error:
            raise DemoError(_cause(error)) from error
        seconds = time.perf_counter() - started
        ending = story.ending
        narrator.ending(ending, seconds, directory if keep else None)
    counts = {"benign_delivered": ">= 1", "attack_refused": ">= 1", "attack_delivered": "0"}
    checks = [
        Check(id=name, value=getattr(ending, name), unit="count", n=1, target=target)
        for name, target in counts.items()
    ]
    checks.append(Check(id="seconds", value=round(seconds, 2), unit="s", target="< 20"))
    details = {
        "attacker": attacker,
        "observation": dict(ending.observation),
        "observation_text": ending.observation_text,
        "steps": [asdict(step) for step in steps],
        "kept": str(directory) if keep else None,
    }
    return ending, Report(name="demo", machine=machine(), checks=checks, details=details)


async def tell(story: Story, narrator: Narrator, attacker: str) -> None:
    """Play the sessions under their headings."""
    async with asyncio.timeout(WHOLE_SECONDS):
        narrator.benign()
        await story.benign()
        narrator.attack(attacker)
        await story.attack()


@contextmanager
def _stopped_cleanly() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the block alike.

    asyncio would cancel a task at Ctrl-C, which what runs in it can take for a cancellation of its
    own, and go on.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {one: signal.signal(one, interrupt) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cause(error: BaseException) -> str:
    """Return the message of the first cause inside the groups that task groups wrap errors in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, GuardError) else f"{type(error).__name__}: {error}"
