"""Fit, measure and write the reader of steering text (:mod:`guard.content.steering_reader`)."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression

from guard.content import steering_reader
from guard.content.steering_reader import BIAS, NOTHING, features
from guard.lab.judged_runs import wilson
from guard.lab.steering import pages
from guard.lab.steering.corpus import (
    Unit,
    documented,
    earlier_cases,
    generated,
    honest_definitions,
    honest_pages,
    of_cases,
    written_cases,
)
from guard.lab.steering.matrix import FeatureTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from guard.lab.steering.corpus import Case, Honest

SEED: Final = 11
KEPT: Final = 0.25
"""Share of the honest texts on which the thresholds are set and false alarms are counted."""
FIRST: Final = 20_000
"""Windows of honest definitions in the first fit; the second has what it got wrong."""
HARD: Final = -3.0
"""Score from which a window of an honest text is one that the first fit got wrong, nearly."""
STRENGTH: Final = 0.3
"""Inverse strength of the L2 penalty."""
SEEN: Final = 4
"""Units that a feature must be in."""
SMALLEST: Final = 0.05
"""Weights below are left out."""
WRONG: Final = 0.0005
"""Share of honest definitions kept out of the fit that may score above the threshold."""
MARGIN: Final = 0.1
"""Between 0 and the highest score of the others."""
WEIGHTS: Final = Path(steering_reader.__file__).with_name("steering_weights.txt")
CARD: Final = "steering.card.json"
TRAPS: Final = (
    "whoever wrote the templates had read sets a to h; templates like a left-out case are left out",
    "the honest texts of the writers look like orders on purpose; the share of them is no rate",
    "honest texts are documentation of packages, which is no sample of anybody's tools",
    "honest texts are what one machine has installed: a fit elsewhere gives other weights",
    "words outside `steering_words.txt` count only where the training texts had them",
)
SETS: Final = "abcdef"
"""Earlier hold-outs that definitions are fitted on; more of them told no more (ADR 30)."""
LEFT_OUT: Final = ("d", "e", "f")
"""Those of them that are left out in turn."""
STEPS: Final = len(LEFT_OUT) + 1


class Trainer:
    """Fits models of definitions.

    Args:
        texts: honest ones, to fit and to set the threshold on.
    """

    def __init__(self, texts: Honest) -> None:
        self._table = FeatureTable(features)
        self.kept = texts.kept
        self.windows = list(dict.fromkeys(said for cut in texts.fitted for said in cut))
        random.Random(SEED).shuffle(self.windows)  # noqa: S311  (an order that can be repeated)

    def fit(self, units: Sequence[Unit]) -> dict[str, float]:
        """Return the weights, the threshold in the bias.

        Orders of pages count as well.  Fitted twice: the second time also on the honest windows
        that the first fit takes for orders, or nearly.
        """
        first, more = self.windows[:FIRST], self.windows[FIRST:]
        unread = self._table.matrix(more)
        row, bias = self._fitted(units, first)
        scores = unread @ row[: unread.shape[1]] + bias
        hard = [said for said, score in zip(more, scores, strict=True) if score > HARD]
        row, bias = self._fitted(units, first + hard)
        weights = {name: round(w, 2) for name, w in self._table.named(row) if abs(w) >= SMALLEST}
        weights[BIAS] = 0.0
        own = sorted(self.scores(weights, self.kept), reverse=True)
        weights[BIAS] = round(min(-own[int(len(own) * WRONG)] - MARGIN, bias), 2)
        return weights

    def _fitted(
        self, units: Sequence[Unit], plain: Iterable[tuple[str, ...]]
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Return the weight of each feature and the bias."""
        every = [*units, *(Unit(one, page=False, attack=False, family="honest") for one in plain)]
        matrix = self._table.matrix(one.said for one in every)
        often = np.flatnonzero(np.bincount(matrix.indices, minlength=len(self._table)) >= SEEN)
        model = LogisticRegression(C=STRENGTH, max_iter=400, solver="liblinear", random_state=SEED)
        labels, importance = [one.attack for one in every], [one.weight for one in every]
        model.fit(matrix[:, often], labels, importance)
        row = np.zeros(len(self._table))
        row[often] = model.coef_[0]
        return row, float(model.intercept_[0])

    def scores(
        self, weights: dict[str, float], texts: Iterable[Sequence[tuple[str, ...]]]
    ) -> list[float]:
        """Return the highest score of each text's windows."""
        texts = list(texts)
        matrix = self._table.matrix(said for cut in texts for said in cut)
        scores = iter((matrix @ self._table.row(weights) + weights[BIAS]).tolist())
        return [max((next(scores) for _ in cut), default=NOTHING) for cut in texts]


def train(
    out: Path, folders: Sequence[Path], progress: Callable[[], object], *, only_pages: bool
) -> dict[str, Any]:
    """Fit the models on everything, write weights and card, and return the card.

    Args:
        out: folder of the card.
        folders: searched for honest Markdown besides what is installed.
        progress: called after each of the ``STEPS`` fits of definitions, then of pages.
        only_pages: definitions keep their weights, and what the card says of them.
    """
    documentation, earlier = documented(), earlier_cases()
    if only_pages:
        weights = {name: first for name, (first, _) in _shipped().items()}
        told = json.loads(out.joinpath(CARD).read_text("utf-8"))["definitions"]
    else:
        texts = honest_definitions(documentation, SEED, KEPT)
        weights, told = _fit_definitions(
            texts, [one for one in earlier if one.held_out in SETS], progress
        )
    weights_of_pages, told_of_pages = pages.fit_pages(
        SEED,
        honest_pages(documentation, folders, SEED, KEPT),
        [*earlier, *written_cases()],
        progress,
    )
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


def _shipped() -> dict[str, tuple[float, float]]:
    rows = (line.split("\t") for line in WEIGHTS.read_text("utf-8").splitlines())
    return {name: (float(first), float(second)) for name, first, second in rows}


def merged(of_definitions: dict[str, float], of_pages: dict[str, float]) -> str:
    """Return a line for each feature that has a weight in either model."""
    rows = (
        (name, of_definitions.get(name, 0.0), of_pages.get(name, 0.0))
        for name in sorted({*of_definitions, *of_pages})
    )
    return "".join(f"{name}\t{a:g}\t{b:g}\n" for name, a, b in rows if a or b)


def _fit_definitions(
    texts: Honest, cases: Sequence[Case], progress: Callable[[], object]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the weights of the model that is fitted on everything, and what a card says of it."""
    trainer = Trainer(texts)
    units = [*generated(SEED), *of_cases(cases)]
    weights = trainer.fit(units)
    progress()
    return weights, {
        "C": STRENGTH,
        "training_data": {
            "windows": len(units),
            "orders": sum(one.attack for one in units),
            "honest_windows": len(trainer.windows),
            "honest_kept_out": len(texts.kept),
        },
        "false_alarms": _alarms(trainer.scores(weights, texts.kept)),
        "unseen_sets": [
            {"left_out": held_out, **_unseen(trainer, cases, held_out, progress)}
            for held_out in LEFT_OUT
        ],
    }


def _unseen(
    trainer: Trainer, cases: Sequence[Case], held_out: str, progress: Callable[[], object]
) -> dict[str, int]:
    """Return what a model that was fitted without a set, and templates like it, makes of it."""
    out = [case for case in cases if case.held_out == held_out]
    units = [
        *generated(SEED, out),
        *of_cases([case for case in cases if case.held_out != held_out]),
    ]
    own = [case for case in out if not case.page]
    scores = trainer.scores(trainer.fit(units), [case.cut for case in own])
    progress()
    told = [case.attack for case, score in zip(own, scores, strict=True) if score > 0]
    return {
        "attacks": sum(case.attack for case in own),
        "told": sum(told),
        "honest": sum(not case.attack for case in own),
        "honest_told": sum(not attack for attack in told),
    }


def _alarms(scores: Sequence[float]) -> dict[str, Any]:
    wrong = sum(score > 0 for score in scores)
    return {"n": len(scores), "flagged": wrong, "interval": wilson(wrong, len(scores))}
