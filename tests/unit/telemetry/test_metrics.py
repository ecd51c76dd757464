"""The metrics: what is counted, under which labels, and that the label sets stay closed."""

import re
from types import SimpleNamespace

import prometheus_client
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from guard.core import metrics as declarations
from guard.core.calls import ClassifiedCall
from guard.core.mappings import MappingSource, ToolMapping
from guard.core.metrics import (
    DECIDED_WITHOUT_RULE,
    ERRORS,
    FAIL_CLOSED,
    REFUSALS,
    Counter,
    Histogram,
    Label,
)
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Policy, Reason, Verdict
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


@pytest.fixture
def metrics():
    """Return the metrics under a policy with two rules."""
    return PrometheusMetrics(POLICY)


@pytest.mark.parametrize(
    ("decided_by", "code", "expected"),
    [
        (("two", "no-outside"), "c", "two"),
        (("no-outside",), "c", "no-outside"),
        (("invented",), "c", "other"),
        ((), "invented", "other"),
        ((), "", "none"),
        *(((), code, code) for code in sorted(DECIDED_WITHOUT_RULE)),
    ],
)
def test_the_rule_label_is_from_a_closed_set(decided_by, code, expected, metrics):
    """The first deciding rule of the policy, or a code of the guard; anything else is `other`."""
    metrics.decision(record(decided_by=decided_by, code=code))

    labels = {"action": "block", "role": "send", "rule": expected, "mode": "enforce"}
    assert sample(metrics, "guard_decisions_total", **labels) == 1
    assert sample(metrics, "guard_decision_seconds_count") == 1
    assert sample(metrics, "guard_decision_seconds_sum") == 0.0005


def test_no_client_can_make_new_series(metrics):
    """Tools, sessions, stages, codes and rule ids that nobody declared add no time series."""

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
def test_the_tool_label_is_what_the_policy_wrote(tool, mapped, expected, metrics):
    """A client's own spelling never becomes a label."""
    metrics.decision(record(tool=tool, mapped=mapped))

    assert sample(metrics, "guard_tool_decisions_total", tool=expected, action="block") == 1


@pytest.mark.parametrize(
    ("series", "labels"),
    [
        ("guard_tool_decisions_total", {"tool": "mail_*", "action": "block"}),
        ("guard_tool_decisions_total", {"tool": "unmapped", "action": "ask"}),
        (
            "guard_decisions_total",
            {"action": "block", "role": "send", "rule": "none", "mode": "enforce"},
        ),
        ("guard_would_have_blocked_total", {"role": "send", "rule": "none"}),
        ("guard_refusals_total", {"code": "bad_json"}),
    ],
)
def test_what_a_rate_is_taken_of_begins_at_zero(series, labels, metrics):
    """A counter that appears with its first event hides that event from every rate."""
    assert sample(metrics, series, **labels) == 0


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
