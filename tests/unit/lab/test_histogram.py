"""Tests of score histograms and their distances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as Metric

from lab import histogram
from lab.histogram import EDGES, Histogram

counts = st.lists(st.integers(0, 500), min_size=len(EDGES), max_size=len(EDGES)).filter(any)


@given(st.lists(st.floats(0, 1, width=32), max_size=50))
def test_buckets_are_those_of_the_live_metric(scores):
    """An edge belongs to the bucket below it, here and in Prometheus."""
    rounded = [round(score, 6) for score in scores]
    metric = Metric("m", "d", buckets=EDGES, registry=CollectorRegistry())
    for score in rounded:
        metric.observe(score)
    live = [s.value for f in metric.collect() for s in f.samples if s.name == "m_bucket"]
    assert np.cumsum(histogram.count(scores).counts).tolist() == live[: len(EDGES)]


@given(counts, counts)
def test_distances_are_zero_for_equal_and_symmetric(left, right):
    """Neither distance has a direction, and none is negative."""
    a, b = Histogram(tuple(left)), Histogram(tuple(right))
    for distance in (histogram.population_stability, histogram.kolmogorov_smirnov):
        assert distance(a, a) == pytest.approx(0, abs=1e-12)
        assert distance(a, b) == pytest.approx(distance(b, a))
        assert distance(a, b) >= 0


def test_the_share_above_counts_whole_buckets():
    """A threshold of 0.5 cuts between the fifth and the sixth bucket."""
    spread = Histogram((0, 0, 0, 0, 1, 1, 0, 0, 0, 2))
    assert spread.share_above(0.5) == 0.75
    assert spread.share_above(1.0) == 0.0
