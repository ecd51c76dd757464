"""The cheap counters and histograms say what the library's own would say."""

from __future__ import annotations

import ast
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import guard
from guard import __version__
from guard.adapters.metrics import (
    DECIDED_WITHOUT_RULE,
    REFUSAL_CODES,
    STAGES,
    PrometheusMetrics,
    TalliedCounter,
    TalliedHistogram,
)
from guard.core.calls import ClassifiedCall
from guard.core.mappings import ToolMapping
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import MEMO_LIMIT, Action, Mode, Policy, Reason, Verdict
from guard.core.ports import DecisionRecord
from guard.core.tool_patterns import ToolPattern
from guard.core.trajectory import Window

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


TOOLS = (ToolPattern.parse("mail_*"), ToolPattern.parse("t"))
MAPPING = ToolMapping(
    "mail_*, t", lambda name: any(p.matches(name) for p in TOOLS), Role.SEND, patterns=TOOLS
)


def policy(*rules, name="default", digest="d1", mode=Mode.ENFORCE, tools=(MAPPING,)):
    """Return a policy with rules of these ids."""
    return Policy(
        name=name,
        digest=digest,
        mode=mode,
        tools=tools,
        is_internal=bool,
        is_allowed=bool,
        is_denied=bool,
        rules=tuple(SimpleNamespace(id=rule) for rule in rules),
    )


POLICY = policy("no-outside", "two")


def record(
    *,
    decided_by=("no-outside",),
    code="c",
    mode=Mode.ENFORCE,
    score=None,
    session="s",
    tool="t",
    mapped=True,
):
    """Return a record of a blocked send that took half a millisecond."""
    call = ToolCall("d", Identity("p", session), tool, {}, "mcp", 0.0)
    reasons = (Reason(code, "", Action.BLOCK),) if code else ()
    verdict = Verdict(Action.BLOCK, mode, reasons, "d1", score=score, decided_by=decided_by)
    mapping = ToolMapping("*", bool, Role.SEND) if mapped else None
    return DecisionRecord(ClassifiedCall(call, Role.SEND, mapping), verdict, 0.0005, {})


def sample(metrics, series, /, **labels):
    """Return the value of one sample, None where there is no such series."""
    return metrics.registry.get_sample_value(series, labels)


def test_a_decision_is_counted_by_action_role_rule_and_mode():
    """The deciding rule is the first whose effect the action is."""
    metrics = PrometheusMetrics(POLICY)

    metrics.decision(record(decided_by=("two", "no-outside")))
    metrics.decision(record(decided_by=("two",)))

    labels = {"action": "block", "role": "send", "rule": "two", "mode": "enforce"}
    assert sample(metrics, "guard_decisions_total", **labels) == 2
    assert sample(metrics, "guard_decision_seconds_count") == 2
    assert sample(metrics, "guard_decision_seconds_sum") == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("decided_by", "code", "expected"),
    [
        (("invented",), "c", "other"),
        ((), "invented", "other"),
        ((), "", "none"),
        *(((), code, code) for code in sorted(DECIDED_WITHOUT_RULE)),
    ],
)
def test_the_rule_label_is_from_a_closed_set(decided_by, code, expected):
    """Rule ids come from the policy, codes from the guard; anything else is `other`."""
    metrics = PrometheusMetrics(POLICY)

    metrics.decision(record(decided_by=decided_by, code=code))

    labels = {"action": "block", "role": "send", "rule": expected, "mode": "enforce"}
    assert sample(metrics, "guard_decisions_total", **labels) == 1


def test_no_client_can_make_new_series():
    """Tools, sessions, stages, codes and rule ids that nobody declared add no time series."""
    metrics = PrometheusMetrics(POLICY)

    def feed(number):
        metrics.decision(record(session=f"s{number}", tool=f"t{number}", score=0.3))
        metrics.decision(record(tool=f"mail_{number}"))
        metrics.decision(record(tool=f"u{number}", mapped=False))
        metrics.decision(record(decided_by=(f"rule{number}",), mode=Mode.MONITOR))
        metrics.decision(record(decided_by=(), code=f"code{number}"))
        metrics.refusal(f"refusal{number}")
        metrics.error(f"stage{number}")
        metrics.fail_closed(f"stage{number}", active=True)

    feed(0)
    series = len(generate_latest(metrics.registry).splitlines())
    for number in range(1, 50):
        feed(number)

    assert len(generate_latest(metrics.registry).splitlines()) == series
    assert sample(metrics, "guard_refusals_total", code="other") == 50
    assert sample(metrics, "guard_errors_total", stage="other") == 50


@pytest.mark.parametrize(
    ("tool", "mapped", "expected"),
    [
        pytest.param("t", True, "t", id="named by the policy"),
        pytest.param("mail_send", True, "mail_*", id="claimed by a glob"),
        pytest.param("mail_send", False, "unmapped", id="claimed by no mapping"),
        pytest.param("gone", True, "other", id="mapped by a policy that was just replaced"),
    ],
)
def test_the_tool_label_is_what_the_policy_wrote(tool, mapped, expected):
    """A client's own spelling never becomes a label."""
    metrics = PrometheusMetrics(POLICY)

    metrics.decision(record(tool=tool, mapped=mapped))

    assert sample(metrics, "guard_tool_decisions_total", tool=expected, action="block") == 1


def test_invented_tool_names_do_not_grow_the_process():
    """The names remembered behind a glob are bounded, and the count stays right beyond."""
    metrics = PrometheusMetrics(POLICY)

    for number in range(MEMO_LIMIT + 10):
        metrics.decision(record(tool=f"mail_{number}"))

    assert len(metrics._tool_labels) == MEMO_LIMIT
    total = sample(metrics, "guard_tool_decisions_total", tool="mail_*", action="block")
    assert total == MEMO_LIMIT + 10


def test_a_reason_counts_once_per_decision_under_the_action_it_asked_for():
    """Two rules with one code are one reason; an undeclared code counts as `other`."""
    metrics = PrometheusMetrics(POLICY)
    reasons = (
        Reason("destination_external", "a", Action.BLOCK),
        Reason("destination_external", "b", Action.BLOCK),
        Reason("tool_role", "c", Action.ALLOW),
        Reason("invented", "d", Action.ASK),
    )
    verdict = Verdict(Action.BLOCK, Mode.ENFORCE, reasons, "d1", decided_by=("a", "b"))
    call = record().call

    metrics.decision(DecisionRecord(call, verdict, 0.001, {}))

    counted = {
        (s.labels["code"], s.labels["action"])
        for family in metrics.registry.collect()
        if family.name == "guard_reasons"
        for s in family.samples
        if s.value
    }
    expected = {("destination_external", "block"), ("tool_role", "allow"), ("other", "ask")}
    assert expected == counted
    code = "destination_external"
    assert sample(metrics, "guard_reasons_total", code=code, action="block") == 1


def test_what_a_rate_is_taken_of_begins_at_zero():
    """A counter that appears with its first event hides that event from every rate."""
    metrics = PrometheusMetrics(POLICY)

    for labels in (
        {"tool": "mail_*", "action": "block"},
        {"tool": "unmapped", "action": "ask"},
    ):
        assert sample(metrics, "guard_tool_decisions_total", **labels) == 0
    labels = {"action": "block", "role": "send", "rule": "none", "mode": "enforce"}
    assert sample(metrics, "guard_decisions_total", **labels) == 0
    assert sample(metrics, "guard_would_have_blocked_total", role="send", rule="none") == 0
    assert sample(metrics, "guard_refusals_total", code="bad_json") == 0


def test_the_session_of_a_call_is_observed_as_it_was_before_the_call():
    """The first call of a session is number 1; refusals directly before a call are a run."""
    metrics = PrometheusMetrics(POLICY)

    metrics.session_seen(Window())
    metrics.session_seen(Window(attempted=(2, 0, 0, 0, 1, 0, 0), refused_in_a_row=3))

    assert sample(metrics, "guard_session_calls_bucket", le="1.0") == 1
    assert sample(metrics, "guard_session_calls_sum") == 1 + 4
    assert sample(metrics, "guard_refused_in_a_row_bucket", le="2.0") == 1
    assert sample(metrics, "guard_refused_in_a_row_sum") == 3


def test_calls_awaited_are_counted_when_asked_for():
    """The gauge shows the number at the time of the scrape."""
    metrics = PrometheusMetrics(POLICY)
    pending = []
    metrics.show_awaited(lambda: len(pending))
    pending.append("call")
    metrics.unlabelled_marks(2)

    assert sample(metrics, "guard_calls_awaited") == 1
    assert sample(metrics, "guard_unlabelled_marks") == 2


def test_the_scores_to_expect_have_the_bounds_of_the_scores_seen():
    """A query subtracts one from the other, bound by bound."""
    metrics = PrometheusMetrics(POLICY)

    metrics.expect_scores({step / 10: step / 10 for step in range(1, 11)})

    bounds = {
        family.name: {s.labels["le"] for s in family.samples if "le" in s.labels}
        for family in metrics.registry.collect()
    }
    assert bounds["guard_prefix_score_expected"] == bounds["guard_prefix_score"]
    assert sample(metrics, "guard_prefix_score_expected", le="0.3") == 0.3


def test_monitor_mode_counts_what_it_would_have_blocked():
    """Enforce mode adds nothing to that counter."""
    metrics = PrometheusMetrics(POLICY)

    metrics.decision(record(mode=Mode.MONITOR))
    metrics.decision(record())

    would = "guard_would_have_blocked_total"
    assert sample(metrics, would, role="send", rule="no-outside") == 1


def test_scores_fill_the_histogram_only_where_there_is_one():
    """A call without a score is not a score of 0."""
    metrics = PrometheusMetrics(POLICY)

    metrics.decision(record())
    metrics.decision(record(score=0.25))

    assert sample(metrics, "guard_prefix_score_count") == 1
    assert sample(metrics, "guard_prefix_score_bucket", le="0.2") == 0
    assert sample(metrics, "guard_prefix_score_bucket", le="0.3") == 1


def test_every_stage_shows_from_the_start():
    """An alert on a series that does not exist yet never fires."""
    metrics = PrometheusMetrics()

    for stage in STAGES:
        assert sample(metrics, "guard_fail_closed", stage=stage) == 0
        assert sample(metrics, "guard_errors_total", stage=stage) == 0


def test_the_fail_closed_gauge_follows_its_stage():
    """It goes up, shows in `failing`, and comes down again."""
    metrics = PrometheusMetrics()

    metrics.fail_closed("state", active=True)
    assert sample(metrics, "guard_fail_closed", stage="state") == 1
    assert metrics.failing() == ("state",)

    metrics.fail_closed("state", active=False)
    assert sample(metrics, "guard_fail_closed", stage="state") == 0
    assert metrics.failing() == ()


def test_a_new_policy_replaces_the_old_one():
    """Digest and name are one series, and the rule ids are the new policy's."""
    metrics = PrometheusMetrics(POLICY, {"prefix13": "ff"})
    metrics.decision(record())
    metrics.set_policy(policy("three", name="next", digest="d2"))
    metrics.decision(record())

    assert sample(metrics, "guard_policy_info", digest="d1", name="default") is None
    assert sample(metrics, "guard_policy_info", digest="d2", name="next") == 1
    assert sample(metrics, "guard_model_info", model="prefix13", digest="ff") == 1
    labels = {"action": "block", "role": "send", "mode": "enforce"}
    assert sample(metrics, "guard_decisions_total", rule="no-outside", **labels) == 1
    assert sample(metrics, "guard_decisions_total", rule="other", **labels) == 1


def test_latencies_restarts_and_build_are_shown():
    """The remaining figures reach the registry under their names."""
    metrics = PrometheusMetrics(refusal_codes=("bad_json",))
    metrics.redis_latency(0.0002)
    metrics.upstream_latency(0.5)
    metrics.worker_restarts(3)
    metrics.refusal("bad_json")

    assert sample(metrics, "guard_redis_seconds_count") == 1
    assert sample(metrics, "guard_upstream_seconds_bucket", le="0.5") == 1
    assert sample(metrics, "guard_worker_restarts") == 3
    assert sample(metrics, "guard_refusals_total", code="bad_json") == 1
    assert sample(metrics, "guard_build_info", version=__version__) == 1


def test_the_exposition_parses():
    """Prometheus' own parser reads every family, each with a help text."""
    metrics = PrometheusMetrics(POLICY)
    metrics.decision(record(score=0.5))

    families = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))

    assert families
    assert all(family.documentation for family in families)
    assert all(family.name.startswith("guard_") for family in families)


def _codes_in_source():
    """Return every code that a message error is made with, where it is a literal or ``CODE``."""
    for path in sorted((Path(guard.__file__).parent).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            node.target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "MessageError"):
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield first.value
            elif isinstance(first, ast.Name) and first.id in constants:
                yield constants[first.id]


def test_every_code_a_message_is_refused_with_has_its_own_label():
    """A protocol module that invents a code must declare it, or it counts as `other`."""
    codes = set(_codes_in_source())

    assert codes
    assert codes <= REFUSAL_CODES
