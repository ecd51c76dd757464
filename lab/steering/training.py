"""Fit the readers of steering text and write them (:mod:`guard.content.steering_reader`)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.content import steering_reader
from lab.steering.corpus import (
    documented,
    earlier_cases,
    honest_definitions,
    honest_pages,
    recorded_cases,
    written_cases,
)
from lab.steering.fitting import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SEED: Final = 11
KEPT: Final = 0.25
"""Share of the honest texts on which the thresholds are set and false alarms are counted."""
WEIGHTS: Final = Path(steering_reader.__file__).with_name("steering_weights.txt")
CARD: Final = "steering.card.json"
TRAPS: Final = (
    "whoever wrote the templates had read sets a to h",
    "whoever wrote the short definitions and the records had read the detector and its tests",
    "answers of recorded honest runs are in the fit of pages: of others their share says nothing",
    "the honest texts of the writers look like orders on purpose; the share of them is no rate",
    "honest texts are documentation of packages, which is no sample of anybody's tools",
    "honest texts are what one machine has installed: a fit elsewhere gives other weights",
    "words outside `steering_words.txt` count only where the training texts had them",
)


def train(
    out: Path, folders: Sequence[Path], recorded: Sequence[Path], progress: Callable[[], object]
) -> dict[str, Any]:
    """Fit the models on everything, write weights and card, and return the card.

    Args:
        out: folder of the card.
        folders: searched for honest Markdown besides what is installed.
        recorded: files of recorded runs and of articles, for honest pages.
        progress: called after each of the ``STEPS`` fits of definitions, then of pages.
    """
    documentation, cases = (
        documented(),
        [
            *earlier_cases(),
            *written_cases(),
            *recorded_cases(recorded),
        ],
    )
    definitions = honest_definitions(documentation, SEED, KEPT)
    weights, told = fit(SEED, definitions, cases, progress, page=False)
    pages = honest_pages(documentation, folders, SEED, KEPT)
    weights_of_pages, told_of_pages = fit(SEED, pages, cases, progress, page=True)
    content = merged(weights, weights_of_pages)
    WEIGHTS.write_text(content, encoding="utf-8")
    card = {
        "name": "steering",
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
        "model": {
            "type": "logistic regression",
            "seed": SEED,
            "weights": len(content.splitlines()),
        },
        "use": "definitions and pages that order a model about; beside the patterns, never alone",
        "definitions": told,
        "pages": told_of_pages,
        "traps": TRAPS,
    }
    out.joinpath(CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card


def merged(of_definitions: dict[str, float], of_pages: dict[str, float]) -> str:
    """Return a line for each feature that has a weight in either model."""
    rows = (
        (name, of_definitions.get(name, 0.0), of_pages.get(name, 0.0))
        for name in sorted({*of_definitions, *of_pages})
    )
    return "".join(f"{name}\t{a:g}\t{b:g}\n" for name, a, b in rows if a or b)
