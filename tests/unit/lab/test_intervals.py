"""Tests of the intervals of an AUC."""

import pytest

pytest.importorskip("scipy", reason="the lab is not installed")

import numpy as np

from lab.protocols import auc_interval


def noisy(count):
    """Return labels and scores that overlap."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, count)
    return labels, np.round(labels * 0.4 + rng.random(count), 2)


def test_repeats_narrow_the_interval_over_runs_but_not_over_clusters():
    """Copying every run four times adds no evidence, and the clustered interval knows."""
    labels, scores = noisy(60)
    once = auc_interval(labels, scores, np.arange(60), 200)
    copied = (np.repeat(labels, 4), np.repeat(scores, 4))
    over_runs = auc_interval(*copied, np.arange(240), 200)
    assert auc_interval(*copied, np.repeat(np.arange(60), 4), 200) == once
    assert over_runs[1] - over_runs[0] < 0.7 * (once[1] - once[0])
    assert auc_interval(labels, scores, np.zeros(60, int), 200) is None
