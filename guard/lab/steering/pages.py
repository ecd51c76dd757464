"""Fit and measure the model of pages (:mod:`guard.content.steering_reader`), which reads passages.

Texts that were written one by one teach it most.  The weight of a feature is fitted in the scale of
how much it differs between orders and the rest, and a passage in the scale of how much it says, so
that a long one is no worse for its length.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import diags
from sklearn.linear_model import LogisticRegression

from guard.content.steering_reader import BIAS, LEAST, LONG, NOTHING, PASSAGE, features, windows
from guard.lab.judged_runs import wilson
from guard.lab.steering.corpus import WRITTEN_BY_HAND, generated
from guard.lab.steering.matrix import FeatureTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from scipy.sparse import csr_matrix

    from guard.lab.steering.corpus import Case, Honest, Text

STRENGTH: Final = 30.0
"""Inverse strength of the L2 penalty."""
SEEN: Final = 3
"""Passages that a feature must be in."""
DRAWN: Final = 0.1
"""Weight of a page that was drawn from a template, beside one that somebody wrote."""
PLAIN: Final = 0.3
"""The same of a passage of documentation."""
MOST: Final = (20_000, 6_000)
"""Features of the first fit, and the heaviest of them, of the second."""
SMALLEST: Final = 0.05
"""Weights below are left out."""
WRONG: Final = 0.0125
"""Share of the honest pages of writers left out of the fit that may score above the threshold."""
PLAIN_WRONG: Final = 0.0005
"""The same of documentation that was kept out of the fit."""
SOURCES: Final = tuple(sorted(path.stem for path in WRITTEN_BY_HAND.glob("*.jsonl")))
"""Writers that are left out in turn."""
STEPS: Final = len(SOURCES) + 1


@dataclass(frozen=True, slots=True)
class Passage:
    """What the fit reads as one.

    Attributes:
        said: its sentences.
        attack: the label.
        weight: in the fit.
    """

    said: tuple[str, ...]
    attack: bool
    weight: float = 1.0


def passages_of(seed: int, cases: Sequence[Case]) -> list[Passage]:
    """Return the passages of drawn and of written pages.

    An order is read from the beginning of its page, whether or not a word for a model is near.

    Args:
        seed: of the draws.
        cases: pages are taken, definitions are not.
    """
    found = [Passage(_begun(one.said), one.attack, DRAWN) for one in generated(seed) if one.page]
    for case in cases:
        if case.page:
            parts = (_begun(case.read),) if case.attack else case.cut
            found += [Passage(said, case.attack) for said in parts]
    return found


def _begun(said: Sequence[str]) -> tuple[str, ...]:
    return tuple(one[:LONG] for one in said[: 2 * PASSAGE])


def _features(said: tuple[str, ...]) -> set[str]:
    return {name for one in windows(said) for name in features(one, page=True)}


class PageTrainer:
    """Fits models of pages.

    Args:
        plain: honest documentation.
        seed: of the order that it is read in, and of the fits.
    """

    def __init__(self, plain: Iterable[Text], seed: int) -> None:
        self._seed = seed
        self._table = FeatureTable(_features)
        self._plain = list(dict.fromkeys(part for read in plain for part in read))
        random.Random(seed).shuffle(self._plain)  # noqa: S311  (an order that can be repeated)

    def fit(self, written: Sequence[Passage]) -> dict[str, float]:
        """Return the weights of the heaviest features; the second fit has no others."""
        plain = len(self._plain)
        matrix = self._table.matrix([*(one.said for one in written), *self._plain])
        attack = np.r_[[one.attack for one in written], np.zeros(plain)]
        weights = np.r_[[one.weight for one in written], np.full(plain, PLAIN)]
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

    def scores(
        self, weights: dict[str, float], texts: Iterable[Sequence[tuple[str, ...]]]
    ) -> list[float]:
        """Return the highest score of each text's passages."""
        texts = list(texts)
        matrix = self._table.matrix(said for read in texts for said in read)
        row = self._table.row(weights)
        known = np.flatnonzero(row)
        scores = iter((_scaled(matrix[:, known]) @ row[known] + weights[BIAS]).tolist())
        return [max((next(scores) for _ in read), default=NOTHING) for read in texts]


def _scaled(matrix: csr_matrix) -> csr_matrix:
    """Return rows in the scale of how many features they have."""
    known = np.asarray(matrix.sum(axis=1)).ravel()
    return diags(1 / np.sqrt(np.maximum(known, LEAST))) @ matrix


def fit_pages(
    seed: int, texts: Honest, cases: Sequence[Case], progress: Callable[[], object]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the weights of the model that is fitted on everything, and what a card says of it.

    Its threshold, which is part of the bias, follows from honest texts that a fit has not had:
    those of writers who were left out, one after the other, and documentation.

    Args:
        seed: of draws and fits.
        texts: documentation, to fit and to count false alarms on.
        cases: that somebody wrote.
        progress: called after each of the ``STEPS`` fits.
    """
    trainer = PageTrainer(texts.fitted, seed)
    left = dict(_left_out(trainer, seed, cases, progress))
    units = passages_of(seed, cases)
    weights = trainer.fit(units)
    progress()
    plain = trainer.scores(weights, texts.kept)
    honest = [score for found in left.values() for score, attack in found if not attack]
    threshold = max(_exceeded(honest, WRONG), _exceeded(plain, PLAIN_WRONG))
    weights[BIAS] = round(weights[BIAS] - threshold, 2)
    wrong = sum(score > threshold for score in plain)
    return weights, {
        "C": STRENGTH,
        "training_data": {
            "passages": len(units),
            "orders": sum(one.attack for one in units),
            "written": sum(one.page for one in cases),
            "documentation": sum(map(len, texts.fitted)),
            "documentation_kept_out": len(plain),
        },
        "false_alarms": {"n": len(plain), "flagged": wrong, "interval": wilson(wrong, len(plain))},
        "unseen_writers": {source: _told(found, threshold) for source, found in left.items()},
    }


Scored = list[tuple[float, bool]]
"""The score and the label of each page."""


def _left_out(
    trainer: PageTrainer, seed: int, cases: Sequence[Case], progress: Callable[[], object]
) -> Iterator[tuple[str, Scored]]:
    """Yield each writer, and the scores of their pages by a model that was fitted without them."""
    for source in SOURCES:
        weights = trainer.fit(passages_of(seed, [c for c in cases if c.held_out != source]))
        own = [case for case in cases if case.page and case.held_out == source]
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
