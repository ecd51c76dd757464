"""``make fuzz``: the parsers on broken input, side by side with the parsers of who reads it next.

Inputs are made by structure: documents of a corpus are edited as trees, written in one of the many
spellings that parsers disagree about, and then cut, spliced and flipped as bytes.  A parser fails
where it raises anything but a refusal, takes longer than ``SLOW`` for one input, or reads something
else than the upstream's own parser would.  Seeded: the same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import Progress

from guard.core.errors import MessageError
from lab.fuzz_inputs import Mutator
from lab.fuzz_targets import TARGETS, DisagreementError, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


SLOW: Final = 1.0
"""Processor seconds for one input."""
SHOWN: Final = 5
SHARE: Final = 20_000
"""Inputs that one process makes and runs at a time."""


@dataclass(slots=True)
class Outcome:
    """Outcomes of the inputs of one parser."""

    target: str
    inputs: int = 0
    accepted: int = 0
    """Read by the guard; the rest was refused."""
    slowest_ms: float = 0.0
    failures: list[str] = field(default_factory=list)


def fuzz(target: Target, inputs: int, seed: int | str) -> Outcome:
    """Run one parser over so many inputs; stop after a few failures."""
    mutator = Mutator(random.Random(f"{seed}:{target.name}"))  # noqa: S311  (inputs, not secrets)
    outcome = Outcome(target.name)
    while outcome.inputs < inputs and len(outcome.failures) < SHOWN:
        data = target.make(mutator)
        outcome.inputs += 1
        started = time.process_time()
        try:
            target.run(data)
            outcome.accepted += 1
        except MessageError:
            pass
        except DisagreementError as error:
            outcome.failures.append(f"{error}: {data!r}")
        except Exception as error:  # noqa: BLE001  (any other exception is what is looked for)
            outcome.failures.append(f"{type(error).__name__}: {error}: {data!r}")
        taken = time.process_time() - started
        outcome.slowest_ms = max(outcome.slowest_ms, round(taken * 1000, 3))
        if taken > SLOW:
            outcome.failures.append(f"{taken:.1f} s: {data!r}")
    return outcome


def _share(work: tuple[str, int, str]) -> Outcome:
    name, inputs, seed = work
    return fuzz(TARGETS[name], inputs, seed)


def _together(name: str, outcomes: Iterable[Outcome]) -> Outcome:
    whole = Outcome(name)
    for outcome in outcomes:
        whole.inputs += outcome.inputs
        whole.accepted += outcome.accepted
        whole.slowest_ms = max(whole.slowest_ms, outcome.slowest_ms)
        whole.failures += outcome.failures
    return whole


def main(words: Sequence[str] | None = None) -> int:
    """Fuzz every parser; one JSON line for each, exit code 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of each parser")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    given = parser.parse_args(words)
    # The same seeds on any number of cores.
    shares = [
        (min(SHARE, given.inputs - start), f"{given.seed}.{start // SHARE}")
        for start in range(0, given.inputs, SHARE)
    ]
    failed = False
    console = Console(stderr=True)
    with (
        _workers(given.jobs if len(shares) > 1 else 1) as run,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        for name in given.target or TARGETS:
            work = [(name, size, seed) for size, seed in shares]
            done = progress.track(run(_share, work), total=len(work), description=name)
            outcome = _together(name, done)
            failed = failed or bool(outcome.failures)
            shown: dict[str, Any] = {slot: getattr(outcome, slot) for slot in outcome.__slots__}
            print(json.dumps(shown), flush=True)
    return int(failed)


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[[Any, list[Any]], Iterable[Outcome]]]:
    """Give a ``map`` over so many processes; in this one where there is but one."""
    if jobs == 1:
        yield map
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield pool.map


if __name__ == "__main__":
    sys.exit(main())
