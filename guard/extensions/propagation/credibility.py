"""Equations 1, 4 and 5 of the paper, in both readings where it contradicts itself.  Pure: no I/O.

``docs/adr`` tells which reading is ours and why.  Shapes: n items, d dimensions of an embedding;
every quantity is between 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ALPHA: Final = 0.6
"""Weight of credibility in equation 4."""
GAMMAS: Final = (0.5, 0.3, 0.2)
"""Weights of probability, spread and conflict in equation 5."""
THRESHOLD: Final = 0.75
RECENT: Final = 200
"""Items of an agent that its next is compared with."""
TASKS: Final = 100
"""Tasks of an agent whose outcomes make its stability."""


class Reading(StrEnum):
    """Parameters of the equations."""

    PRINTED = "printed"
    """As printed: credibility adds to the probability of poison."""
    OURS = "ours"
    """What is not credible is poisoned."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The lambdas of equation 1, which the paper does not give."""

    similarity: float = 1 / 3
    stability: float = 1 / 3
    agreement: float = 1 / 3


def credibility(
    similarity: Floats, stability: Floats, agreement: Floats, weights: Weights = Weights()
) -> Floats:
    """Return C of each item (equation 1).

    Args:
        similarity: mean cosine with the last 200 items of its agent, from 0 to 1.
        stability: share of its agent's last 100 tasks that went well.
        agreement: 1 - conflict with what others hold in the same state (the inverse that equation
            1 asks for; equation 5 asks for the conflict itself).
        weights: how much each counts.
    """
    total = weights.similarity + weights.stability + weights.agreement
    raw = (
        weights.similarity * similarity
        + weights.stability * stability
        + weights.agreement * agreement
    )
    found: Floats = np.clip(raw / total, 0.0, 1.0)
    return found


def poison_probability(
    credible: Floats, recognised: Floats, reading: Reading = Reading.OURS, alpha: float = ALPHA
) -> Floats:
    """Return the corrected probability that an item is poisoned (equation 4).

    Args:
        credible: C of each item.
        recognised: output of the recognition layer.
        reading: as printed, C = 0 gives at most 1 - alpha; ours takes 1 - C.
        alpha: weight of credibility.
    """
    evidence = credible if reading is Reading.PRINTED else 1.0 - credible
    return alpha * evidence + (1 - alpha) * recognised


def priority(
    probability: Floats,
    spread: Floats,
    conflict: Floats,
    gammas: tuple[float, float, float] = GAMMAS,
) -> Floats:
    """Return R (equation 5).

    Args:
        probability: of poison, from equation 4.
        spread: normalised depth: hops / 11 as printed; ours the height below an item, by the
            greatest of the incident.
        conflict: with what others hold, not its inverse.
        gammas: weights.
    """
    return gammas[0] * probability + gammas[1] * spread + gammas[2] * conflict
