"""Interleaved measurement: two sides in alternating turns, the ratio of rates and its interval.

A machine that is slow for a while is slow for both: a block has two turns of each side, in the
order of one side, the other twice, the first again, so that a steady drift cancels as well.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from scipy.stats import mstats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
TRIMMED: Final = 0.1
"""Share of the blocks that is left out at each end: a turn that something else fell into."""
LEVEL: Final = 0.95
SEED: Final = 11


class Ratio(NamedTuple):
    """Ratio of rates or times, with its 95 % interval."""

    value: float
    low: float
    high: float


def in_turns(
    blocks: int, here: Callable[[], T], there: Callable[[], T], seed: int = SEED
) -> Iterator[tuple[list[T], list[T]]]:
    """Measure two sides in turns; yield for each block what both turns of either side gave.

    Args:
        blocks: of four turns each; who begins is drawn.
        here: measures one side, once.
        there: measures the other.
        seed: of the order.
    """
    rng = random.Random(seed)  # noqa: S311  (chosen again from the seed)
    for _ in range(blocks):
        block = list[T](), list[T]()
        first = rng.randrange(2)
        for side in (first, 1 - first, 1 - first, first):
            block[side].append((here, there)[side]())
        yield block


def ratio_of(logarithms: Sequence[float]) -> Ratio:
    """Return the ratio that blocks come to: a trimmed mean of logarithms.

    The interval is that of Tukey and McLaughlin (1963, Sankhya A 25: 331-352): Student's, with the
    winsorized variance.  It holds for few blocks as well, which need not be normal.

    Args:
        logarithms: of independent ratios, one per block; three at least.
    """
    middle = float(mstats.trimmed_mean(logarithms, (TRIMMED, TRIMMED)))
    low, high = mstats.trimmed_mean_ci(logarithms, (TRIMMED, TRIMMED), alpha=1 - LEVEL)
    return Ratio(math.exp(middle), math.exp(low), math.exp(high))
