"""Fit and measure the models of definitions and of pages (:mod:`guard.content.steering_reader`).

Texts that were written one by one teach them most.  The weight of a feature is fitted in the scale
of how much it differs between orders and the rest, and a passage in the scale of how much it says,
so that a long one is no worse for its length.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import diags
from sklearn.linear_model import LogisticRegression

from guard.content.steering_reader import (
    BIAS,
    LEAST,
    LONG,
    NOTHING,
    PASSAGE,
    Passage,
    classes_in,
    features,
    passages_of,
)
from lab.judged_runs import wilson
from lab.steering.corpus import ARTICLE, DEFINED, RESULT, generated
from lab.steering.matrix import FeatureTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scipy.sparse import csr_matrix

    from lab.steering.corpus import Case, Honest, Text, Unit

STRENGTH: Final = 30.0
"""Inverse strength of the L2 penalty."""
SEEN: Final = 3
"""Passages that a feature must be in."""
DRAWN: Final = {False: 0.1, True: 0.2}
"""Weight of a definition, or page, that was drawn from a template, beside one somebody wrote."""
PLAIN: Final = {False: 0.3, True: 0.05}
"""The same of a passage of documentation."""
OTHERS: Final = {"records": 0.3, RESULT: 0.1, ARTICLE: 0.03, DEFINED: 0.2}
"""The same of pages that nobody wrote for this, by the first word of their source."""
MOST: Final = (20_000, 6_000)
"""Features of the first fit, and the heaviest of them, of the second."""
SMALLEST: Final = 0.05
"""Weights below are left out."""
WRONG: Final = {"definition": 0.02, "page": 0.0125}
"""Share of the honest texts of writers left out of the fit that may score above the threshold."""
PLAIN_WRONG: Final = 0.0005
"""The same of documentation that was kept out of the fit."""
WRITERS: Final = {
    False: ("first", "second", "third", "fourth", "fifth", "sixth"),
    True: ("first", "second", "third", "fourth", "seventh", "eighth"),
}
"""Writers of definitions, and of pages, who are left out in turn."""
STEPS: Final = sum(map(len, WRITERS.values())) + len(WRITERS)


@dataclass(frozen=True, slots=True)
class Labelled:
    """What the fit reads as one.

    Attributes:
        read: the passage.
        attack: the label.
        weight: in the fit.
    """

    read: Passage
    attack: bool
    weight: float = 1.0


def labelled(seed: int, cases: Sequence[Case], *, page: bool) -> list[Labelled]:
    """Return the passages of drawn and of written definitions, or pages.

    The passages of an order weigh together what another text's passage does.

    Args:
        seed: of the draws.
        cases: those of the kind are taken.
        page: the kind.
    """
    found: list[Labelled] = []
    for one in generated(seed):
        if one.page is page:
            parts = (_drawn(one),) if page else tuple(passages_of(_defined(one)))
            found += [Labelled(part, one.attack, DRAWN[page]) for part in parts]
    for case in cases:
        if case.page is page:
            weight = OTHERS.get(case.held_out.partition(" ")[0], 1.0)
            weight /= max(1, len(case.cut)) if case.attack else 1
            found += [Labelled(part, case.attack, weight) for part in case.cut]
    return found


def _drawn(one: Unit) -> Passage:
    """Return what was drawn as the passage of a page, whatever it speaks of."""
    read = tuple(said[:LONG] for said in one.said[: 2 * PASSAGE])
    return Passage(read, classes_in(read[:1]), page=True)


def _defined(one: Unit) -> dict[str, Any]:
    """Return what was drawn as the definition of a tool."""
    return {"name": "tool", "description": " ".join(one.said)}


class Trainer:
    """Fits models.

    Args:
        plain: honest documentation.
        seed: of the order that it is read in, and of the fits.
        weight: of a passage of it.
    """

    def __init__(self, plain: Iterable[Text], seed: int, weight: float) -> None:
        self._seed, self._weight = seed, weight
        self._table = FeatureTable(features)
        self._plain = list(dict.fromkeys(part for read in plain for part in read))
        random.Random(seed).shuffle(self._plain)  # noqa: S311  (an order that can be repeated)

    def fit(self, written: Sequence[Labelled]) -> dict[str, float]:
        """Return the weights of the heaviest features; the second fit has no others."""
        plain = len(self._plain)
        matrix = self._table.matrix([*(one.read for one in written), *self._plain])
        attack = np.r_[[one.attack for one in written], np.zeros(plain)]
        weights = np.r_[[one.weight for one in written], np.full(plain, self._weight)]
        often = np.bincount(matrix.indices, minlength=matrix.shape[1])
        with_order = 1 + matrix.T @ (weights * attack)
        without = 1 + matrix.T @ (weights * (1 - attack))
        ratio = np.log(with_order / with_order.sum()) - np.log(without / without.sum())
        rank = np.abs(ratio) * np.sqrt(often) * (often >= SEEN)
        for most in MOST:
            chosen = np.argsort(-rank, kind="stable")[:most]
            chosen = chosen[rank[chosen] > 0]
            scale = diags(np.abs(ratio[chosen]))
            model = LogisticRegression(
                C=STRENGTH, tol=1e-2, max_iter=300, solver="liblinear", random_state=self._seed
            )
            model.fit(_scaled(matrix[:, chosen]) @ scale, attack, weights)
            row = np.zeros(len(self._table))
            row[chosen] = model.coef_[0] @ scale
            rank = np.abs(row) * np.sqrt(often)
        found = {name: round(w, 1) for name, w in self._table.named(row) if abs(w) >= SMALLEST}
        return {**found, BIAS: float(model.intercept_[0])}

    def scores(self, weights: dict[str, float], texts: Iterable[Sequence[Passage]]) -> list[float]:
        """Return the highest score of each text's passages."""
        texts = list(texts)
        matrix = self._table.matrix(part for read in texts for part in read)
        row = self._table.row(weights)
        known = np.flatnonzero(row)
        scores = iter((_scaled(matrix[:, known]) @ row[known] + weights[BIAS]).tolist())
        return [max((next(scores) for _ in read), default=NOTHING) for read in texts]


def _scaled(matrix: csr_matrix) -> csr_matrix:
    """Return rows in the scale of how many features they have."""
    known = np.asarray(matrix.sum(axis=1)).ravel()
    return diags(1 / np.sqrt(np.maximum(known, LEAST))) @ matrix


def fit(
    seed: int, texts: Honest, cases: Sequence[Case], progress: Callable[[], object], *, page: bool
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the weights of the model that is fitted on everything, and what a card says of it.

    Its threshold, which is part of the bias, follows from honest texts that a fit has not had:
    those of writers who were left out, one after the other, and documentation.

    Args:
        seed: of draws and fits.
        texts: documentation, to fit and to count false alarms on.
        cases: that somebody wrote.
        progress: called after each fit: one without each writer, and one with all.
        page: whether the model is of pages, else of definitions.
    """
    trainer = Trainer(texts.fitted, seed, PLAIN[page])
    own = [case for case in cases if case.page is page]
    left = dict(_left_out(trainer, seed, own, progress, page=page))
    read = labelled(seed, own, page=page)
    weights = trainer.fit(read)
    progress()
    plain = trainer.scores(weights, texts.kept)
    honest = [score for found in left.values() for score, attack in found if not attack]
    share = WRONG["page" if page else "definition"]
    threshold = max(_exceeded(honest, share), _exceeded(plain, PLAIN_WRONG))
    weights[BIAS] = round(weights[BIAS] - threshold, 2)
    wrong = sum(score > threshold for score in plain)
    return weights, {
        "C": STRENGTH,
        "training_data": {
            "passages": len(read),
            "orders": sum(one.attack for one in read),
            "written": len(own),
            "documentation": sum(map(len, texts.fitted)),
            "documentation_kept_out": len(plain),
        },
        "false_alarms": {"n": len(plain), "flagged": wrong, "interval": wilson(wrong, len(plain))},
        "unseen_writers": {source: _told(found, threshold) for source, found in left.items()},
    }


Scored = list[tuple[float, bool]]
"""The score and the label of each text."""


def _left_out(
    trainer: Trainer,
    seed: int,
    cases: Sequence[Case],
    progress: Callable[[], object],
    *,
    page: bool,
) -> Iterator[tuple[str, Scored]]:
    """Yield each writer, and the scores of their texts by a model that was fitted without them."""
    for source in WRITERS[page]:
        others = [case for case in cases if source not in case.held_out.split()]
        weights = trainer.fit(labelled(seed, others, page=page))
        own = [case for case in cases if case.held_out == source]
        scores = trainer.scores(weights, [case.cut for case in own])
        yield source, [(score, case.attack) for score, case in zip(scores, own, strict=True)]
        progress()


def _exceeded(scores: Sequence[float], share: float) -> float:
    """Return what this share of some scores exceeds."""
    return sorted(scores, reverse=True)[int(len(scores) * share)]


def _told(scored: Scored, threshold: float) -> dict[str, int]:
    told = [attack for score, attack in scored if score > threshold]
    return {
        "attacks": sum(attack for _, attack in scored),
        "told": sum(told),
        "honest": sum(not attack for _, attack in scored),
        "honest_told": sum(not attack for attack in told),
    }
