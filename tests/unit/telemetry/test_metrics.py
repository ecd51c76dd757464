"""The metrics: what is counted, under which labels, and that the label sets stay closed."""

import ast
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import prometheus_client
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import guard
from guard import __version__
from guard.core import metrics as declarations
from guard.core.calls import ClassifiedCall
from guard.core.mappings import MappingSource, ToolMapping
from guard.core.metrics import (
    CALLS_AWAITED,
    DECIDED_WITHOUT_RULE,
    ERRORS,
    FAIL_CLOSED,
    LABEL_SATURATION,
    REDIS_SECONDS,
    REFUSAL_CODES,
    REFUSALS,
    STAGES,
    UNLABELLED_MARKS,
    UPSTREAM_SECONDS,
    WORKER_RESTARTS,
    Counter,
    Gauge,
    Histogram,
    Label,
    Metrics,
)
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import MEMO_LIMIT, Action, Mode, Policy, Reason, Verdict
from guard.core.ports import DecisionRecord
from guard.core.tool_patterns import ToolPattern
from guard.telemetry.metrics import PrometheusMetrics

TOOLS = (ToolPattern.parse("mail_*"), ToolPattern.parse("t"))
MAPPING = ToolMapping(
    "mail_*, t",
    lambda name: any(p.matches(name) for p in TOOLS),
    Role.SEND,
    declared=MappingSource(0, TOOLS),
)


def policy(*rules, name="default", digest="d1", mode=Mode.ENFORCE, tools=(MAPPING,)):
    """Return a policy with rules of these ids."""
    return Policy(
        name=name,
        digest=digest,
        mode=mode,
        tools=tools,
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
        metrics.count(REFUSALS, f"refusal{number}")
        metrics.count(ERRORS, f"stage{number}")
        metrics.set(FAIL_CLOSED, 1, f"stage{number}")

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


def test_calls_awaited_are_counted_when_asked_for():
    """The gauge shows the number at the time of the scrape."""
    metrics = PrometheusMetrics(POLICY)
    pending = []
    metrics.set(CALLS_AWAITED, lambda: len(pending))
    pending.append("call")
    metrics.set(UNLABELLED_MARKS, 2)

    assert sample(metrics, "guard_calls_awaited") == 1
    assert sample(metrics, "guard_unlabelled_marks") == 2


def test_the_scores_to_expect_have_the_bounds_of_the_scores_seen():
    """A query subtracts one from the other, bound by bound."""
    metrics = PrometheusMetrics(POLICY)

    for step in range(1, 11):
        metrics.set(declarations.PREFIX_SCORE_EXPECTED, step / 10, str(step / 10))
    metrics.set(declarations.PREFIX_SCORE_EXPECTED, 1, "+Inf")

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

    metrics.set(FAIL_CLOSED, 1, "state")
    assert sample(metrics, "guard_fail_closed", stage="state") == 1
    assert metrics.failing() == ("state",)

    metrics.set(FAIL_CLOSED, 0, "state")
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
    metrics = PrometheusMetrics()
    metrics.observe(REDIS_SECONDS, 0.0002)
    metrics.observe(UPSTREAM_SECONDS, 0.5)
    metrics.set(WORKER_RESTARTS, 3)
    metrics.count(REFUSALS, "bad_json")

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
        text = path.read_text(encoding="utf-8")
        if "MessageError" not in text:
            continue
        tree = ast.parse(text)
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


DROPPED = Counter(
    "guard_dropped_total", "Dropped in by a test.", (Label("kind", ("known",)), Label("own", None))
)


def test_one_declaration_is_all_that_a_metric_takes(monkeypatch):
    """Declared in one place, it is shown from the start, counted, and its labels stay closed."""
    monkeypatch.setattr(declarations, "DROPPED", DROPPED, raising=False)
    depth = Gauge("guard_depth", "Dropped in by a test.")
    monkeypatch.setattr(declarations, "DEPTH", depth, raising=False)
    metrics = PrometheusMetrics()

    metrics.count(DROPPED, "known", "free")
    metrics.count(DROPPED, "a client's", "free")
    metrics.count(DROPPED, "another client's", "free")

    text = generate_latest(metrics.registry).decode()
    assert "# HELP guard_dropped_total Dropped in by a test." in text
    assert "guard_depth 0.0" in text
    assert sample(metrics, "guard_dropped_total", kind="known", own="free") == 1
    assert sample(metrics, "guard_dropped_total", kind="other", own="free") == 2


def test_whoever_exports_no_metrics_needs_to_know_none():
    """The port itself takes whatever is counted, and counts nothing."""
    port = Metrics()

    port.count(DROPPED, "known", "free")
    port.observe(REDIS_SECONDS, 0.1)
    port.set(FAIL_CLOSED, 1, "state")
    port.decision(record())
    port.set_policy(POLICY)


def test_names_are_declared_once():
    """Two declarations of one name would hide each other."""
    names = [metric.name for metric in declarations.declared()]

    assert len(names) > 20
    assert len(names) == len(set(names))


def test_a_share_is_that_of_the_last_hundred_looks():
    """It begins at 0, and what is older than a hundred looks is forgotten."""
    metrics = PrometheusMetrics()
    assert sample(metrics, "guard_label_saturation", bound="source") == 0

    for reached in [True] * 50 + [False] * 75:
        metrics.observe(LABEL_SATURATION, reached, "source")

    assert sample(metrics, "guard_label_saturation", bound="source") == 0.25
    assert sample(metrics, "guard_label_saturation", bound="result") == 0


BOUNDS = (0.0, 0.00005, 0.1, 0.5, 1, 5.0, 12_345_678.0)
VALUES = st.floats(min_value=-1, max_value=20_000_000) | st.sampled_from(BOUNDS)


def exported(registry, name):
    """Return the lines about one family."""
    lines = generate_latest(registry).decode().splitlines()
    return [
        line for line in lines if re.match(rf"(# \w+ )?{name}(_total|_bucket|_sum|_count)?\b", line)
    ]


def exporter_of(*metrics):
    """Return an exporter of these metrics alone, beside those it cannot do without."""
    with pytest.MonkeyPatch.context() as patch:
        for number, metric in enumerate(metrics):
            patch.setattr(declarations, f"DROPPED_{number}", metric, raising=False)
        return PrometheusMetrics()


@settings(max_examples=30)
@given(st.lists(VALUES))
def test_a_histogram_shows_what_the_librarys_own_shows(values):
    """Same buckets, same count, same sum, to the letter of the text format."""
    mine, theirs = Histogram("h", "Help.", buckets=BOUNDS), CollectorRegistry()
    metrics = exporter_of(mine)
    reference = prometheus_client.Histogram("h", "Help.", buckets=BOUNDS, registry=theirs)

    for value in values:
        metrics.observe(mine, value)
        reference.observe(value)

    assert exported(metrics.registry, "h") == _without_created(exported(theirs, "h"))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from('x"\\\n'))))
def test_a_counter_shows_what_the_librarys_own_shows(events):
    """Same series, same numbers, label values escaped likewise."""
    theirs = CollectorRegistry()
    mine = Counter("c_total", "Help.", (Label("one", "ab", ("a",)), Label("two", None, ("first",))))
    metrics = exporter_of(mine)
    reference = prometheus_client.Counter("c_total", "Help.", ("one", "two"), registry=theirs)

    reference.labels("a", "first")
    for values in events:
        metrics.count(mine, *values)
        reference.labels(*values).inc()

    assert exported(metrics.registry, "c") == _without_created(exported(theirs, "c"))


def _without_created(lines):
    return [line for line in lines if "_created" not in line]


def test_beginning_a_series_again_keeps_its_count():
    """A policy that is put in force again must not set its counters back."""
    metrics = PrometheusMetrics(POLICY)

    metrics.decision(record(decided_by=(), code=""))
    metrics.set_policy(POLICY)

    labels = {"action": "block", "role": "send", "rule": "none", "mode": "enforce"}
    assert sample(metrics, "guard_decisions_total", **labels) == 1


def test_scrapes_while_calls_are_counted_see_only_growing_numbers():
    """The scraper's thread reads what the event loop's thread writes, and nothing is lost."""
    counter = Counter("c_total", "Help.", (Label("one", None),))
    histogram = Histogram("h", "Help.", buckets=BOUNDS)
    metrics = exporter_of(counter, histogram)
    rounds = 20_000

    def work():
        for number in range(rounds):
            metrics.count(counter, str(number % 97))
            metrics.observe(histogram, 0.3)

    def samples(name):
        return [s.value for f in metrics.collect() if f.name == name for s in f.samples]

    writer = threading.Thread(target=work)
    writer.start()
    seen = []
    while writer.is_alive():
        seen.append(sum(samples("c")))
        buckets = samples("h")[: len(BOUNDS)]
        assert buckets == sorted(buckets)
    writer.join()

    assert seen == sorted(seen)
    assert sum(samples("c")) == rounds
    assert metrics.registry.get_sample_value("h_count") == rounds


def test_every_code_a_message_is_refused_with_has_its_own_label():
    """A protocol module that invents a code must declare it, or it counts as `other`."""
    codes = set(_codes_in_source())

    assert codes
    assert codes <= REFUSAL_CODES


KINDS = st.fixed_dictionaries(
    {
        "decided_by": st.sampled_from([(), ("two",), ("no-outside", "two"), ("gone",)]),
        "code": st.sampled_from(["no_rule_matched", "made-up"]),
        "mode": st.sampled_from(Mode),
        "tool": st.sampled_from(["t", "mail_1", "m" * 300]),
        "mapped": st.booleans(),
    }
)


ALIKE = {
    "decided_by": ("no-outside",),
    "code": "no_rule_matched",
    "mode": Mode.ENFORCE,
    "tool": "t",
    "mapped": True,
}


@settings(max_examples=40, deadline=None)
@given(st.lists(KINDS | st.just("policy"), max_size=30))
@example([ALIKE, ALIKE, "policy", ALIKE, "policy", ALIKE])
def test_decisions_that_are_alike_count_as_each_would_alone(events):
    """Whatever came before, and whichever policies were in force."""
    together, apart = PrometheusMetrics(POLICY), PrometheusMetrics(POLICY)
    policies = [policy("two"), POLICY]
    for number, event in enumerate(events):
        if event == "policy":
            together.set_policy(policies[number % 2])
            apart.set_policy(policies[number % 2])
        else:
            together.decision(record(**event))
            apart._decided.clear()
            apart.decision(record(**event))
    assert together._counts == apart._counts
