"""Texts as rows of a matrix of features, for the fit of the reader of steering text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy.typing as npt

    from guard.content.steering_reader import Passage


class FeatureTable:
    """The number of each feature; the features of some sentences are made once.

    Args:
        features: of some sentences.
    """

    def __init__(self, features: Callable[[Passage], set[str]]) -> None:
        self._of = features
        self._ids: dict[str, int] = {}
        self._made: dict[Passage, npt.NDArray[np.int32]] = {}

    def __len__(self) -> int:
        """Return how many features there are."""
        return len(self._ids)

    def named(self, row: npt.NDArray[np.float64]) -> list[tuple[str, float]]:
        """Return the weight of each feature by its name."""
        return [(name, float(row[number])) for name, number in self._ids.items()]

    def row(self, weights: Mapping[str, float]) -> npt.NDArray[np.float64]:
        """Return the weight of each feature by its number."""
        row = np.zeros(len(self._ids))
        for name, weight in weights.items():
            if name in self._ids:
                row[self._ids[name]] = weight
        return row

    def matrix(self, read: Iterable[Passage]) -> csr_matrix:
        """Return a row for each: 1 for a feature that it has."""
        rows = [self._features(part) for part in read]
        ends = np.cumsum([0, *map(len, rows)])
        columns = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        ones = np.ones(len(columns), dtype=np.float32)
        return csr_matrix((ones, columns, ends), (len(rows), len(self._ids)))

    def _features(self, part: Passage) -> npt.NDArray[np.int32]:
        if part not in self._made:
            # In order: the sum of a score does not depend on the hashes of this process.
            numbers = [self._ids.setdefault(one, len(self._ids)) for one in sorted(self._of(part))]
            self._made[part] = np.array(numbers, dtype=np.int32)
        return self._made[part]
