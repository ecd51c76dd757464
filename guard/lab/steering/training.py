"""Fit, measure and write the reader of steering text (:mod:`guard.content.steering_reader`)."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from guard.content import steering_reader
from guard.content.steering_reader import BIAS, NOTHING, features
from guard.lab.judged_runs import wilson
from guard.lab.steering.corpus import (
    Unit,
    earlier_cases,
    generated,
    honest,
    of_cases,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from guard.lab.steering.corpus import Case, Honest

SEED: Final = 11
KEPT: Final = 0.25
"""Share of the honest texts on which the thresholds are set and false alarms are counted."""
FIRST: Final = {False: 20_000, True: 8_000}
"""Windows of honest definitions and of pages in the first fit; the second has what it got wrong."""
HARD: Final = -3.0
"""Score from which a window of an honest text is one that the first fit got wrong, nearly."""
STRENGTH: Final = 0.3
"""Inverse strength of the L2 penalty."""
SEEN: Final = 4
"""Units that a feature must be in."""
SMALLEST: Final = 0.05
"""Weights below are left out."""
WRONG: Final = {False: 0.0005, True: 0.0}
"""Share of honest definitions and pages kept out of the fit that may score above the threshold."""
MARGIN: Final = 0.1
"""Between 0 and the highest score of the others."""
WEIGHTS: Final = Path(steering_reader.__file__).with_name("steering_weights.txt")
CARD: Final = "steering.card.json"
TRAPS: Final = (
    "whoever wrote the templates had read sets a to f; templates like a left-out case are left out",
    "honest texts are documentation of packages, which is no sample of anybody's tools",
    "honest texts are what one machine has installed: a fit elsewhere gives other weights",
    "words outside `steering_words.txt` count only where the training texts had them",
)
SETS: Final = ("d", "e", "f")
"""Earlier hold-outs that are left out in turn."""
STEPS: Final = 2 * (len(SETS) + 1)


class Trainer:
    """Fits models on units; the features of some sentences are made once.

    Args:
        texts: honest ones, to fit and to set the thresholds on.
    """

    def __init__(self, texts: Honest) -> None:
        self._ids: dict[str, int] = {}
        self._made: dict[tuple[str, ...], npt.NDArray[np.int32]] = {}
        self.kept = texts.kept
        self.windows = {
            page: list(dict.fromkeys(said for cut in found for said in cut))
            for page, found in texts.fitted.items()
        }
        for page, found in self.windows.items():
            random.Random(SEED + page).shuffle(found)  # noqa: S311  (an order that can be repeated)

    def _features(self, said: tuple[str, ...]) -> npt.NDArray[np.int32]:
        """Return the numbers of the features of some sentences."""
        if said not in self._made:
            # In order: the sum of a score does not depend on the hashes of this process.
            numbers = [self._ids.setdefault(one, len(self._ids)) for one in sorted(features(said))]
            self._made[said] = np.array(numbers, dtype=np.int32)
        return self._made[said]

    def _matrix(self, read: Iterable[tuple[str, ...]]) -> csr_matrix:
        rows = [self._features(said) for said in read]
        ends = np.cumsum([0, *map(len, rows)])
        columns = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        ones = np.ones(len(columns), dtype=np.float32)
        return csr_matrix((ones, columns, ends), (len(rows), len(self._ids)))

    def fit(self, written: Sequence[Unit], *, page: bool) -> dict[str, float]:
        """Return the weights of one of the two models, its threshold in the bias.

        Orders of pages count in definitions as well; orders that only a definition can give are
        no part of the model for pages.  Fitted twice: the second time also on the honest windows
        that the first fit takes for orders, or nearly.
        """
        units = [one for one in written if one.page or not (page and one.attack)]
        first, more = self.windows[page][: FIRST[page]], self.windows[page][FIRST[page] :]
        unread = self._matrix(more)
        row, bias = self._fitted(units, first, page=page)
        scores = unread @ row[: unread.shape[1]] + bias
        hard = [said for said, score in zip(more, scores, strict=True) if score > HARD]
        row, bias = self._fitted(units, first + hard, page=page)
        names = ((name, float(row[number])) for name, number in self._ids.items())
        weights = {name: round(w, 2) for name, w in names if abs(w) >= SMALLEST}
        weights[BIAS] = 0.0
        own = sorted(self.scores(weights, self.kept[page]), reverse=True)
        weights[BIAS] = round(min(-own[int(len(own) * WRONG[page])] - MARGIN, bias), 2)
        return weights

    def _fitted(
        self, units: Sequence[Unit], plain: Iterable[tuple[str, ...]], *, page: bool
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Return the weight of each feature and the bias."""
        every = [*units, *(Unit(one, page, attack=False, family="honest") for one in plain)]
        matrix = self._matrix(one.said for one in every)
        often = np.flatnonzero(np.bincount(matrix.indices, minlength=len(self._ids)) >= SEEN)
        model = LogisticRegression(C=STRENGTH, max_iter=400, solver="liblinear", random_state=SEED)
        labels, importance = [one.attack for one in every], [one.weight for one in every]
        model.fit(matrix[:, often], labels, importance)
        row = np.zeros(len(self._ids))
        row[often] = model.coef_[0]
        return row, float(model.intercept_[0])

    def scores(
        self, weights: dict[str, float], texts: Iterable[Sequence[tuple[str, ...]]]
    ) -> list[float]:
        """Return the highest score of each text's windows."""
        texts = list(texts)
        matrix = self._matrix(said for cut in texts for said in cut)
        row = np.zeros(len(self._ids))
        for name, weight in weights.items():
            if name in self._ids:
                row[self._ids[name]] = weight
        scores = iter((matrix @ row + weights[BIAS]).tolist())
        return [max((next(scores) for _ in cut), default=NOTHING) for cut in texts]


def train(out: Path, folders: Sequence[Path], progress: Callable[[], object]) -> dict[str, Any]:
    """Fit both models on everything, write weights and card, and return the card.

    Args:
        out: folder of the card.
        folders: searched for honest Markdown besides what is installed.
        progress: called after each of the ``STEPS`` fits.
    """
    texts = honest(SEED, KEPT, folders)
    trainer = Trainer(texts)
    cases = earlier_cases()
    units = [*generated(SEED), *of_cases(cases)]
    models = {}
    for page in (False, True):
        models[page] = trainer.fit(units, page=page)
        progress()
    names = sorted({*models[False], *models[True]})
    lines = (f"{name}\t{models[False].get(name, 0)}\t{models[True].get(name, 0)}" for name in names)
    content = "\n".join(lines) + "\n"
    WEIGHTS.write_text(content, encoding="utf-8")
    found = [
        {"left_out": held_out, **_unseen(trainer, cases, held_out, progress)} for held_out in SETS
    ]
    card = {
        "name": "steering",
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
        "model": {
            "type": "logistic regression",
            "C": STRENGTH,
            "seed": SEED,
            "weights": len(names),
        },
        "use": "definitions and pages that order a model about; beside the patterns, never alone",
        "training_data": {
            "windows": len(units),
            "orders": sum(one.attack for one in units),
            "honest_windows": sum(map(len, trainer.windows.values())),
            "honest_kept_out": sum(map(len, texts.kept.values())),
        },
        "false_alarms": {
            kind: _alarms(trainer.scores(models[page], texts.kept[page]))
            for page, kind in ((False, "definitions"), (True, "pages"))
        },
        "unseen_sets": found,
        "traps": TRAPS,
    }
    out.joinpath(CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card


def _unseen(
    trainer: Trainer, cases: Sequence[Case], held_out: str, progress: Callable[[], object]
) -> dict[str, Any]:
    """Return what models that were fitted without a set, and templates like it, make of it."""
    out = [case for case in cases if case.held_out == held_out]
    units = [
        *generated(SEED, out),
        *of_cases([case for case in cases if case.held_out != held_out]),
    ]
    row: dict[str, Any] = {}
    for page, kind in ((False, "definitions"), (True, "pages")):
        own = [case for case in out if case.page is page]
        weights = trainer.fit(units, page=page)
        scores = trainer.scores(weights, [case.cut for case in own])
        told = [case for case, score in zip(own, scores, strict=True) if score > 0]
        row[kind] = {
            "attacks": sum(case.attack for case in own),
            "told": sum(case.attack for case in told),
            "honest": sum(not case.attack for case in own),
            "honest_told": sum(not case.attack for case in told),
        }
        progress()
    return row


def _alarms(scores: Sequence[float]) -> dict[str, Any]:
    wrong = sum(score > 0 for score in scores)
    return {"n": len(scores), "flagged": wrong, "interval": wilson(wrong, len(scores))}
