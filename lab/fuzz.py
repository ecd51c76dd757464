"""``make fuzz``: the parsers on broken input, side by side with the parsers of who reads it next.

Inputs are made by structure: documents of a corpus are edited as trees, written in one of the many
spellings that parsers disagree about, and then cut, spliced and flipped as bytes.  A parser fails
where it raises anything but a refusal, takes longer than ``SLOW`` for one input, or reads something
else than the upstream's own parser would.  Seeded: the same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from lab.fuzz_inputs import Mutator
from lab.fuzz_targets import TARGETS, Target

if TYPE_CHECKING:
    from collections.abc import Sequence


SLOW: Final = 1.0
"""Processor seconds for one input."""
SHOWN: Final = 5


@dataclass(slots=True)
class Outcome:
    """Outcomes of the inputs of one parser."""

    target: str
    inputs: int = 0
    accepted: int = 0
    """Read by the guard; the rest was refused."""
    slowest_ms: float = 0.0
    failures: list[str] = field(default_factory=list)


def fuzz(target: Target, inputs: int, seed: int) -> Outcome:
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
        except Exception as error:  # noqa: BLE001  (any other exception is what is looked for)
            outcome.failures.append(f"{type(error).__name__}: {error}: {data!r}")
        taken = time.process_time() - started
        outcome.slowest_ms = max(outcome.slowest_ms, round(taken * 1000, 3))
        if taken > SLOW:
            outcome.failures.append(f"{taken:.1f} s: {data!r}")
    return outcome


def main(words: Sequence[str] | None = None) -> int:
    """Fuzz every parser; one JSON line for each, exit code 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of each parser")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    given = parser.parse_args(words)
    failed = False
    for name in given.target or TARGETS:
        outcome = fuzz(TARGETS[name], given.inputs, given.seed)
        failed = failed or bool(outcome.failures)
        print(json.dumps(asdict(outcome)), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
