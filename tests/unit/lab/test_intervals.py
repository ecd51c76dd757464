"""Tests of the AUC and its intervals."""

import pytest

pytest.importorskip("scipy", reason="the lab is not installed")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lab.intervals import auc, bca_interval

pairs = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), min_size=2, max_size=30)


@given(pairs)
def test_the_auc_is_the_share_of_pairs_in_order(rows):
    """Ties count a half; without both classes there is none."""
    labels, scores = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    won = [(p > n) + 0.5 * (p == n) for p in scores[labels == 1] for n in scores[labels == 0]]
    assert auc(labels, scores) == pytest.approx(np.mean(won) if won else np.nan, nan_ok=True)


def noisy(count=200):
    """Return labels and scores that overlap."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, count)
    return labels, np.round(labels * 0.4 + rng.random(count), 2)


def test_the_interval_equals_that_of_a_plain_bootstrap():
    """The quadratic form is the same statistic as the AUC of the drawn runs."""
    from scipy.stats import bootstrap

    labels, scores = noisy(60)
    plain = bootstrap(
        (np.arange(60),),
        lambda drawn: auc(labels[drawn], scores[drawn]),
        n_resamples=300,
        vectorized=False,
        method="BCa",
        rng=np.random.default_rng(42),
    ).confidence_interval
    assert bca_interval(labels, scores, resamples=300) == pytest.approx((plain.low, plain.high))


def test_repeats_narrow_the_interval_over_runs_but_not_over_clusters():
    """Copying every run four times adds no evidence, and the clustered interval knows."""
    labels, scores = noisy(80)
    once = bca_interval(labels, scores, resamples=500)
    copied = (np.repeat(labels, 4), np.repeat(scores, 4))
    over_runs = bca_interval(*copied, resamples=500)
    over_clusters = bca_interval(*copied, np.repeat(np.arange(80), 4), 500)
    assert over_clusters == pytest.approx(once, abs=1e-9)
    assert over_runs[1] - over_runs[0] < 0.7 * (once[1] - once[0])


def test_a_single_cluster_has_no_interval():
    """One observation says nothing about spread."""
    labels, scores = noisy(20)
    assert bca_interval(labels, scores, np.zeros(20, int), 100) is None
