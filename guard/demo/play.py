"""Plays the whole demo: stores, processes, sessions, proofs; and cleans up whatever happens."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from guard.core.errors import GuardError
from guard.core.model import DestinationStatus
from guard.core.policy import Policy
from guard.demo.narration import Narrator
from guard.demo.story import DemoError, Ending, Places, Step, Story, Via, stage
from guard.replay.reports import Check, Report, machine
from guard.values.canonical import read_destinations

WHOLE_SECONDS: Final = 240
"""After this the demo gives up and cleans up; it takes a tenth of that."""
PASSES: Final = frozenset({DestinationStatus.INTERNAL, DestinationStatus.ALLOWED})


@dataclass(frozen=True, slots=True)
class Played:
    """A demo that was played to its end."""

    via: Via
    attacker: str
    ending: Ending
    steps: tuple[Step, ...]
    seconds: float
    directory: Path | None
    """Directory in which the files were kept; None where they were not."""

    def report(self) -> Report:
        """Return the figures."""
        ending = self.ending
        counts = (
            ("benign_delivered", ending.benign_delivered, ">= 1"),
            ("attack_refused", ending.attack_refused, ">= 1"),
            ("attack_delivered", ending.attack_delivered, "0"),
        )
        checks = [
            Check(id=name, value=value, unit="count", n=1, target=target)
            for name, value, target in counts
        ]
        seconds = round(self.seconds, 2)
        checks.append(Check(id="seconds", value=seconds, unit="s", target="< 20"))
        details = {
            "via": self.via.value,
            "attacker": self.attacker,
            "observation": dict(ending.observation),
            "observation_text": ending.observation_text,
            "notes": {
                "delivered": ending.notes_delivered,
                "refused": ending.notes_refused,
                "leaked": ending.notes_leaked,
            },
            "steps": [asdict(step) for step in self.steps],
            "kept": None if self.directory is None else str(self.directory),
        }
        return Report(name="demo", machine=machine(), checks=checks, details=details)


def passes_by_policy(policy: Policy, attacker: str) -> bool:
    """Return whether the policy lets mail to all of this address through anyway."""
    statuses = {policy.status_of(found) for found in read_destinations(attacker)}
    return bool(statuses) and statuses <= PASSES


def play(policy: Path, attacker: str, via: Via, *, keep: bool, narrator: Narrator) -> Played:
    """Play the demo and return what was proven.

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
        places = Places(directory, policy)
        places.seed(attacker)
        narrator.opening(policy.name)
        try:
            with _stopped_cleanly(), stage(places) as urls:
                story = Story(urls, places, noted)
                asyncio.run(tell(story, narrator, via, attacker))
        except Exception as error:
            raise DemoError(_cause(error)) from error
        seconds = time.perf_counter() - started
        narrator.ending(story.ending, seconds, directory if keep else None)
    return Played(via, attacker, story.ending, tuple(steps), seconds, directory if keep else None)


async def tell(story: Story, narrator: Narrator, via: Via, attacker: str) -> None:
    """Play the sessions under their headings."""
    async with asyncio.timeout(WHOLE_SECONDS):
        narrator.benign()
        await story.benign()
        narrator.attack(via, attacker)
        await story.attack(via)


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
