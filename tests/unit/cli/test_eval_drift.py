"""Tests of ``guard lab eval drift``, against the real metric of a real registry."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from typer.testing import CliRunner

from guard import cli
from guard.core.metrics import PREFIX_SCORE
from guard.settings import models_directory
from lab.drift import read_card

CARD = models_directory() / "prefix-13.card.json"


@pytest.fixture(scope="module")
def invoke():
    """Run the command line."""
    runner = CliRunner()
    return lambda *arguments: runner.invoke(
        cli.app, ["eval", "drift", *(str(a) for a in arguments)]
    )


def scrape(scores, buckets=PREFIX_SCORE.buckets):
    """Return what a guard that gave these scores shows."""
    registry = CollectorRegistry()
    metric = Histogram("guard_prefix_score", "s", buckets=buckets, registry=registry)
    for score in scores:
        metric.observe(score)
    return generate_latest(registry).decode()


def as_in_the_card():
    """Return scores that lie as those in the card do."""
    counts = read_card(CARD.read_bytes()).scores.counts
    return [e for e, n in zip(PREFIX_SCORE.buckets, counts, strict=True) for _ in range(int(n))]


@pytest.fixture
def saved(tmp_path):
    """Save a scrape and return its path."""

    def save(text, name="metrics.txt"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return save


def test_scores_that_lie_as_in_the_card_are_no_drift(invoke, saved):
    """Exit code 0, and the distances are zero."""
    done = invoke("--model", "prefix-13", "--metrics", saved(scrape(as_in_the_card())), "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    values = {check["id"]: check["value"] for check in printed["checks"]}
    assert (values["psi"], values["ks_distance"], values["flagged_ratio"]) == (0.0, 0.0, 1.0)
    assert printed["details"]["drifted"] == []


def test_scores_that_moved_are_drift(invoke, saved):
    """Exit code 1, and each limit that was passed is named."""
    done = invoke("--metrics", saved(scrape([0.05] * 200)))
    assert done.exit_code == 1
    assert "drift: the population stability index is" in done.stderr
    assert "drift: the distributions are 1.00 apart" in done.stderr
    assert "drift: the share flagged moved from 100.0% to 0.0%" in done.stderr


def test_too_few_scores_say_nothing(invoke, saved):
    """Exit code 1 and nulls with a reason: no answer is not the answer that all is well."""
    done = invoke("--metrics", saved(scrape([0.9] * 99)), "--json")
    assert done.exit_code == 1
    checks = json.loads(done.stdout)["checks"]
    assert {check["value"] for check in checks} == {None}
    assert all("99 live scores are too few" in check["reason"] for check in checks)


def test_only_the_scores_since_an_earlier_scrape_count(invoke, saved):
    """What the guard said long ago does not hide what it says now."""
    old = as_in_the_card()
    before, after = saved(scrape(old), "before"), saved(scrape(old + [0.05] * 150), "after")
    assert invoke("--metrics", after, "--since", before).exit_code == 1
    restarted = invoke("--metrics", before, "--since", after)
    assert restarted.exit_code == 3
    assert "restarted between the two scrapes" in restarted.stderr


def test_workers_are_summed(invoke, saved):
    """A label that a scraper adds makes more series of one distribution."""
    text = scrape(as_in_the_card())
    twice = text.replace("{le=", '{worker="1",le=').replace("# EOF", "") + "\n".join(
        line.replace("{le=", '{worker="2",le=')
        for line in text.splitlines()
        if line.startswith("guard_prefix_score_bucket")
    )
    done = invoke("--metrics", saved(twice + "\n"), "--json")
    assert done.exit_code == 0, done.output
    total = sum(read_card(CARD.read_bytes()).scores.counts)
    assert json.loads(done.stdout)["checks"][0]["n"] == 2 * total


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n", "hold no `guard_prefix_score`"),
        ("<html>{", "not metrics in the Prometheus text format"),
        (scrape([0.5], buckets=(0.3, 1.0)), "has other buckets than the card"),
    ],
)
def test_metrics_without_a_usable_histogram_are_invalid(invoke, saved, text, message):
    """Exit code 3 and what to scrape instead."""
    done = invoke("--metrics", saved(text))
    assert done.exit_code == 3
    assert message in done.stderr


def test_files_and_models_that_are_not_there_are_invalid(invoke, saved, tmp_path):
    """Exit code 3 names what is missing."""
    assert invoke("--metrics", tmp_path / "nowhere").exit_code == 3
    done = invoke("--metrics", saved(scrape([])), "--model", "full-99")
    assert done.exit_code == 3
    assert "holds no model `full-99`" in done.stderr


def test_a_card_without_a_histogram_is_refused():
    """An artefact of an older version cannot be compared."""
    from guard.core.errors import ModelError

    with pytest.raises(ModelError, match="has no score histogram, train the model again"):
        read_card(b'{"name": "m", "threshold": {"value": 0.5}}')


def test_the_metrics_can_be_fetched(invoke):
    """A URL is scraped; one that nobody answers is a failure, not invalid input."""
    body = scrape(as_in_the_card()).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        answered = invoke("--metrics", url)
        server.shutdown()
        thread.join()
    assert answered.exit_code == 0, answered.output
    assert invoke("--metrics", url).exit_code == 1
