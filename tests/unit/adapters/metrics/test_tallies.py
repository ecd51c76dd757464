"""The cheap counters and histograms say what the library's own would say."""

import threading

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from guard.adapters.metrics import families  # noqa: F401  (switches the library's _created off)
from guard.adapters.metrics.tallies import TalliedCounter, TalliedHistogram

BOUNDS = (0.0, 0.00005, 0.1, 0.5, 1, 5.0, 12_345_678.0)
VALUES = st.floats(min_value=-1, max_value=20_000_000) | st.sampled_from(BOUNDS)


@given(st.lists(VALUES))
def test_a_histogram_shows_what_the_librarys_own_shows(values):
    """Same buckets, same count, same sum, to the letter of the text format."""
    mine, theirs = CollectorRegistry(), CollectorRegistry()
    tallied = TalliedHistogram("h", "Help.", BOUNDS, mine)
    reference = Histogram("h", "Help.", buckets=BOUNDS, registry=theirs)

    for value in values:
        tallied.observe(value)
        reference.observe(value)

    assert generate_latest(mine) == generate_latest(theirs)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from('x"\\\n'))))
def test_a_counter_shows_what_the_librarys_own_shows(events):
    """Same series, same numbers, label values escaped likewise."""
    mine, theirs = CollectorRegistry(), CollectorRegistry()
    tallied = TalliedCounter("c_total", "Help.", ("one", "two"), mine)
    reference = Counter("c_total", "Help.", ("one", "two"), registry=theirs)

    tallied.begin("a", "first")
    reference.labels("a", "first")
    for values in events:
        tallied.inc(*values)
        reference.labels(*values).inc()

    assert generate_latest(mine) == generate_latest(theirs)


def test_beginning_a_series_again_keeps_its_count():
    """A policy that is put in force again must not set its counters back."""
    registry = CollectorRegistry()
    counter = TalliedCounter("c_total", "Help.", ("one",), registry)

    counter.inc("a")
    counter.begin("a")

    assert registry.get_sample_value("c_total", {"one": "a"}) == 1


def test_scrapes_while_calls_are_counted_see_only_growing_numbers():
    """The scraper's thread reads what the event loop's thread writes, and nothing is lost."""
    registry = CollectorRegistry()
    counter = TalliedCounter("c_total", "Help.", ("one",), registry)
    histogram = TalliedHistogram("h", "Help.", BOUNDS, registry)
    rounds = 20_000

    def work():
        for number in range(rounds):
            counter.inc(str(number % 97))
            histogram.observe(0.3)

    writer = threading.Thread(target=work)
    writer.start()
    seen = []
    while writer.is_alive():
        seen.append(sum(s.value for f in counter.collect() for s in f.samples))
        seen_buckets = [s.value for f in histogram.collect() for s in f.samples][:-1]
        assert seen_buckets[:-1] == sorted(seen_buckets[:-1])
    writer.join()

    assert seen == sorted(seen)
    assert sum(s.value for f in counter.collect() for s in f.samples) == rounds
    assert registry.get_sample_value("h_count") == rounds
