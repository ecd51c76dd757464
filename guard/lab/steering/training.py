"""Fit, measure and write the reader of steering text (:mod:`guard.content.steering_reader`)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from guard.content import steering_reader
from guard.content.steering_reader import BIAS, features
from guard.lab.judged_runs import wilson
from guard.lab.steering.corpus import earlier_cases, generated, honest, known_servers, of_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guard.lab.steering.corpus import Case, Honest, Unit

SEED: Final = 11
FITTED: Final = 5000
"""Honest texts of each kind in the fit."""
KEPT: Final = 5000
"""Further ones, on which the thresholds are set and false alarms are counted."""
STRENGTH: Final = 0.3
"""Inverse strength of the L2 penalty."""
SEEN: Final = 4
"""Units that a feature must be in."""
SMALLEST: Final = 0.05
"""Weights below are left out."""
ALARMS: Final = {False: 0.0008, True: 0.0015}
"""Share of honest definitions and of honest pages that may score above 0: sets the thresholds."""
MARGIN: Final = 0.1
"""Added to the highest score that an honest text may have."""
WEIGHTS: Final = Path(steering_reader.__file__).with_name("steering_weights.txt")
CARD: Final = "steering.card.json"
TRAPS: Final = (
    "whoever wrote the templates had read sets a to e; templates like a left-out case are left out",
    "honest texts are documentation of packages, which is no sample of anybody's tools",
    "honest texts are what one machine has installed: a fit elsewhere gives other weights",
    "words outside `steering_words.txt` count only where the training texts had them",
    "figures are at a score of 0; the guard flags from 2.5, as an untouched set f asked for",
)
SETS: Final = ("d", "e")
"""Earlier hold-outs that are left out in turn."""
STEPS: Final = len(SETS) + 1


class Trainer:
    """Fits models on units; the features of some sentences are made once.

    Args:
        texts: honest ones, to fit and to set the thresholds on.
    """

    def __init__(self, texts: Honest) -> None:
        self.honest = texts
        self._made: dict[tuple[str, ...], set[str]] = {}

    def _features(self, said: tuple[str, ...]) -> set[str]:
        if said not in self._made:
            self._made[said] = features(said)
        return self._made[said]

    def fit(self, attacks: Sequence[Unit], *, page: bool) -> dict[str, float]:
        """Return the weights of one of the two models, its threshold in the bias.

        Orders of pages count in definitions as well; orders that only a definition can give are
        no part of the model for pages.
        """
        written = (one for one in attacks if one.page or not (page and one.attack))
        units = [*written, *(one for one in self.honest.units if one.page or not page)]
        read = [self._features(one.said) for one in units]
        counts = Counter(feature for some in read for feature in some)
        names = sorted(feature for feature, count in counts.items() if count >= SEEN)
        place = {name: number for number, name in enumerate(names)}
        rows = [[place[one] for one in some if one in place] for some in read]
        ends = np.cumsum([0, *map(len, rows)])
        columns = [column for row in rows for column in row]
        ones = np.ones(len(columns), dtype=np.float32)
        matrix = csr_matrix((ones, columns, ends), (len(rows), len(names)))
        model = LogisticRegression(C=STRENGTH, max_iter=400, solver="liblinear", random_state=SEED)
        model.fit(matrix, [one.attack for one in units], [one.weight for one in units])
        found = dict(zip(names, map(float, model.coef_[0]), strict=True))
        weights = {name: round(w, 2) for name, w in found.items() if abs(w) >= SMALLEST}
        weights[BIAS] = 0.0
        own = sorted((self.score(weights, cut) for cut in self._kept(page=page)), reverse=True)
        # Above every honest text but those that are allowed to be wrong.
        highest = own[int(len(own) * ALARMS[page])] + MARGIN
        weights[BIAS] = round(min(-highest, float(model.intercept_[0])), 2)
        return weights

    def score(self, weights: Mapping[str, float], cut: Sequence[tuple[str, ...]]) -> float:
        """Return the highest score of a text's windows."""
        scores = (
            weights[BIAS] + sum(weights.get(one, 0.0) for one in features(said)) for said in cut
        )
        return max(scores, default=steering_reader.NOTHING)

    def alarms(self, weights: Mapping[str, float], *, page: bool) -> tuple[int, int]:
        """Return how many honest texts of those kept out score above 0, and of how many."""
        own = self._kept(page=page)
        return sum(self.score(weights, cut) > 0 for cut in own), len(own)

    def _kept(self, *, page: bool) -> list[list[tuple[str, ...]]]:
        return [cut for is_page, cut in self.honest.kept if is_page is page]


def train(out: Path, folders: Sequence[Path], progress: Callable[[], object]) -> dict[str, Any]:
    """Fit both models on everything, write weights and card, and return the card.

    Args:
        out: folder of the card.
        folders: searched for honest Markdown besides what is installed.
        progress: called after each of the ``STEPS`` fits.
    """
    trainer = Trainer(honest(SEED, FITTED, KEPT, folders))
    cases = earlier_cases()
    found = [
        {"left_out": held_out, **_unseen(trainer, cases, held_out, progress)} for held_out in SETS
    ]
    units = [*generated(SEED), *known_servers(), *of_cases(cases)]
    models = {page: trainer.fit(units, page=page) for page in (False, True)}
    progress()
    names = sorted({*models[False], *models[True]})
    lines = (f"{name}\t{models[False].get(name, 0)}\t{models[True].get(name, 0)}" for name in names)
    content = "\n".join(lines) + "\n"
    WEIGHTS.write_text(content, encoding="utf-8")
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
            "honest_windows": len(trainer.honest.units),
            "honest_kept_out": len(trainer.honest.kept),
        },
        "false_alarms": {
            "definitions": _alarms(trainer, models[False], page=False),
            "pages": _alarms(trainer, models[True], page=True),
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
        *known_servers(),
        *of_cases([case for case in cases if case.held_out != held_out]),
    ]
    row: dict[str, Any] = {}
    for page, kind in ((False, "definitions"), (True, "pages")):
        weights = trainer.fit(units, page=page)
        own = [case for case in out if case.page is page]
        told = [case for case in own if trainer.score(weights, case.cut) > 0]
        row[kind] = {
            "attacks": sum(case.attack for case in own),
            "told": sum(case.attack for case in told),
            "honest": sum(not case.attack for case in own),
            "honest_told": sum(not case.attack for case in told),
        }
    progress()
    return row


def _alarms(trainer: Trainer, weights: Mapping[str, float], *, page: bool) -> dict[str, Any]:
    wrong, count = trainer.alarms(weights, page=page)
    return {"n": count, "flagged": wrong, "interval": wilson(wrong, count)}
