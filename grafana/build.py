"""Builds the dashboards in ``grafana/dashboards`` from the queries below.

``python grafana/build.py`` writes them, ``--check`` fails where a committed file differs.  A
test checks that every metric of a query exists; ``make pictures`` runs those of the overview.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from panels import (
    RATE,
    I,
    bars,
    board,
    buckets,
    lines,
    number,
    quantile,
    quantiles,
    rows,
    states,
)

DIRECTORY: Final = Path(__file__).resolve().parent / "dashboards"
REFUSED: Final = 'action=~"block|ask"'
NAME: Final = (
    "* on (job, instance) group_left (name) "
    'max by (job, instance, name) (guard_policy_info{name=~"$policy"})'
)
"""Gives a series of an instance the name of the policy in force there."""


def calls(by: str = "", *matchers: str) -> str:
    """Return calls judged per second, of the modes chosen."""
    chosen = ", ".join((I, 'mode=~"$mode"', *matchers))
    return f"sum{by and f' by ({by})'} (rate(guard_decisions_total{{{chosen}}}{RATE}))"


def refused_share(by: str = "", *matchers: str) -> str:
    """Return refused calls as a share of all calls, 0 to 1."""
    return f"{calls(by, REFUSED, *matchers)} / {calls(by, *matchers)}"


def per_second(metric: str, by: str = "", matchers: str = "") -> str:
    """Return how much a counter grows per second."""
    chosen = f"{I}, {matchers}" if matchers else I
    return f"sum{by and f' by ({by})'} (rate({metric}{{{chosen}}}{RATE}))"


def above(metric: str, bound: str) -> str:
    """Return the share of a histogram's observations above one of its bounds."""
    below = per_second(f"{metric}_bucket", matchers=f'le="{bound}"')
    return f"1 - {below} / {per_second(f'{metric}_count')}"


def by_policy(matchers: str = "") -> str:
    """Return calls judged per second by the name of the policy in force."""
    chosen = ", ".join(filter(None, (I, 'mode=~"$mode"', matchers)))
    return f"sum by (name) (rate(guard_decisions_total{{{chosen}}}{RATE}) {NAME})"


UNMAPPED: Final = (
    per_second("guard_tool_decisions_total", matchers='tool="unmapped"')
    + " / "
    + per_second("guard_tool_decisions_total")
)
BUILDS: Final = '__name__=~"guard_model_info|guard_build_info"'


def overview() -> dict[str, Any]:
    """Return the dashboard that says who is refused, and why."""
    now = (
        number("Calls judged", "Per second.", calls(), "reqps"),
        number("Share refused", "Blocked or sent for approval.", refused_share(), "percentunit"),
        number(
            "Would have been refused",
            "Per second; monitor mode let them through.",
            per_second("guard_would_have_blocked_total"),
            "reqps",
        ),
        number(
            "Calls of unmapped tools",
            "Share of the calls whose tool no mapping of the policy claims.",
            UNMAPPED,
            "percentunit",
            warn=0.05,
        ),
        number(
            "Parts failing closed",
            "Calls are blocked for each of them.",
            f"sum(guard_fail_closed{{{I}}})",
            "none",
            warn=1,
        ),
        number("Guards up", "As the scraper sees them.", f'sum(up{{job="guard", {I}}})', "none"),
    )
    refused = (
        lines(
            "Calls by action",
            "What the policy said; in monitor mode every call passed.",
            (calls("action"), "{{action}}"),
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Share refused by policy",
            "Policies in force at the time; marks show when they changed.",
            (f"{by_policy(REFUSED)} / {by_policy()}", "{{name}}"),
            unit="percentunit",
        ),
        lines(
            "Refused by rule",
            "The deciding rule, or the code of what decided without one.",
            (calls("rule", REFUSED), "{{rule}}"),
            unit="reqps",
            stacked=True,
        ),
        lines(
            "Share refused by role",
            "Of the calls of tools with this role.",
            (refused_share("role"), "{{role}}"),
            unit="percentunit",
        ),
        lines(
            "Refused by tool",
            "The ten most refused, as the policy names them.",
            (
                f"topk(10, {per_second('guard_tool_decisions_total', 'tool', REFUSED)})",
                "{{tool}}",
            ),
            unit="reqps",
        ),
        lines(
            "Would have been refused, by rule",
            "Before a rule is enforced, this shows what it would stop.",
            (per_second("guard_would_have_blocked_total", "rule"), "{{rule}}"),
            unit="reqps",
        ),
    )
    why = (
        bars(
            "Top reasons",
            "Decisions in the time shown that had this reason, those to allow left out.",
            "topk(10, sum by (code) (increase("
            f'guard_reasons_total{{{I}, action!="allow"}}[$__range])))',
            "{{code}}",
        ),
        lines(
            "Refused before they were calls",
            "Messages that could not be read one way only.",
            (per_second("guard_refusals_total", "code"), "{{code}}"),
            unit="reqps",
        ),
    )
    drift = (
        buckets("Scores", "Of the prefix classifier.", "guard_prefix_score", "percentunit", 8),
        lines(
            "Scores over time",
            "Percentiles, and the share at or above one half.",
            (quantile(0.5, "guard_prefix_score"), "p50"),
            (quantile(0.9, "guard_prefix_score"), "p90"),
            (above("guard_prefix_score", "0.5"), "share above 0.5"),
            unit="percentunit",
            width=8,
        ),
        lines(
            "Distance",
            "The largest gap between the distribution of the last hour and that of the day before "
            "it, or of the training data on the model's card (Kolmogorov-Smirnov), 0 to 1.",
            (f"guard:prefix_score_distance{{{I}}}", "{{instance}}: day before"),
            (f"guard:prefix_score_distance_from_card{{{I}}}", "{{instance}}: card"),
            unit="none",
            width=8,
        ),
    )
    sections = {"Now": now, "Who is refused": refused, "Why": why, "Score drift": drift}
    about = "Block rate by policy, rule, role and tool; what monitor mode would block; why; drift."
    return board("guard-overview", "Guard: overview", about, sections)


def latency_and_health() -> dict[str, Any]:
    """Return the dashboard that says what the guard costs, and whether it works."""
    latency = (
        lines(
            "Decision",
            "From the parsed call to the verdict, the store included.",
            *quantiles("guard_decision_seconds"),
            unit="s",
            width=8,
        ),
        lines(
            "Store",
            "One round trip; beyond the state timeout the call is blocked.",
            *quantiles("guard_redis_seconds"),
            unit="s",
            width=8,
        ),
        lines(
            "Upstream",
            "From forwarding a request to the head of its answer: not the guard's time.",
            *quantiles("guard_upstream_seconds"),
            unit="s",
            width=8,
        ),
        buckets("Decisions", "By time taken.", "guard_decision_seconds", "s"),
        buckets("Round trips to the store", "By time taken.", "guard_redis_seconds", "s"),
    )
    health = (
        states(
            "Failing closed",
            "While a part fails, calls are blocked.",
            f"max by (instance, stage) (guard_fail_closed{{{I}}})",
            "{{instance}} {{stage}}",
        ),
        lines(
            "Errors",
            "By the part that failed; each is a block.",
            (per_second("guard_errors_total", "stage"), "{{stage}}"),
            unit="reqps",
        ),
        lines(
            "Worker restarts",
            "A worker that dies or loops is replaced.",
            (f"sum by (instance) (guard_worker_restarts{{{I}}})", "{{instance}}"),
            unit="none",
            width=8,
        ),
        lines(
            "Processor",
            "Of the worker; it cannot use more than one.",
            (
                f"sum by (instance) (rate(guard_process_cpu_seconds_total{{{I}}}{RATE}))",
                "{{instance}}",
            ),
            unit="percentunit",
            width=8,
        ),
        lines(
            "Memory",
            "Of the worker.",
            (f"sum by (instance) (guard_process_resident_memory_bytes{{{I}}})", "{{instance}}"),
            unit="bytes",
            width=8,
        ),
    )
    versions = (
        states(
            "Policy files not in force",
            "Set while the files have a problem; the policy before them stays in force.",
            f"max by (instance) (guard_policy_stale{{{I}}})",
            "{{instance}}",
        ),
        lines(
            "Policy reloads",
            "Since the worker started: put in force (swapped), or refused (kept).",
            (f"sum by (outcome) (guard_policy_reloads_total{{{I}}})", "{{outcome}}"),
            unit="none",
        ),
        rows(
            "Policies in force",
            "A digest that nobody planned is worth a question.",
            f"sum by (instance, name, digest) (guard_policy_info{{{I}}})",
        ),
        rows(
            "Models and version",
            "What scores, and what runs.",
            f"sum by (instance, model, digest, version) ({{{BUILDS}, {I}}})",
        ),
    )
    sections = {"Latency": latency, "Health": health, "Policies and versions": versions}
    about = "What a decision costs, which parts fail, and what is in force."
    return board("guard-health", "Guard: latency and health", about, sections)


def memory_and_sessions() -> dict[str, Any]:
    """Return the dashboard that says how agents use memory, and how their sessions go."""
    memory = (
        lines(
            "Memory calls",
            "Reads (recall, list) and writes (save) that agents asked for.",
            (calls("role", 'role=~"recall|list|save"'), "{{role}}"),
            unit="reqps",
        ),
        lines(
            "Share of memory calls refused",
            "By role.",
            (refused_share("role", 'role=~"recall|list|save"'), "{{role}}"),
            unit="percentunit",
        ),
        lines(
            "Refused writes, by rule",
            "The rule that decided.",
            (calls("rule", 'role="save"', REFUSED), "{{rule}}"),
            unit="reqps",
        ),
        lines(
            "Memory writes at the gate",
            "What became of them: refused, or committed and then acknowledged by the store.",
            (per_second("guard_memory_writes_total", "outcome"), "{{outcome}}"),
            unit="reqps",
        ),
        lines(
            "Refused at the gate, by reason",
            "The first reason; proposals in tool results included.",
            (
                per_second("guard_memory_writes_total", "reason", 'outcome=~".*refused"'),
                "{{reason}}",
            ),
            unit="reqps",
        ),
        lines(
            "Sends after memory was read",
            "Decisions with the reason recall_before_send; honest agents have it, too.",
            (
                per_second("guard_reasons_total", "action", 'code="recall_before_send"'),
                "{{action}}",
            ),
            unit="reqps",
        ),
    )
    sessions = (
        number(
            "Sessions begun",
            "Per second; a session whose state expired begins again.",
            per_second("guard_session_calls_bucket", matchers='le="1.0"'),
            "reqps",
            width=6,
        ),
        number(
            "Calls in a deny loop",
            "Share of calls that come after more than ten refusals in a row.",
            above("guard_refused_in_a_row", "10.0"),
            "percentunit",
            warn=0.01,
            width=6,
        ),
        number(
            "Calls awaited",
            "Forwarded, and no result yet.",
            f"sum(guard_calls_awaited{{{I}}})",
            "none",
            width=6,
        ),
        number(
            "Unlabelled results",
            "Released while the store could not be told; each is written before its principal's "
            "next call is judged.",
            f"sum(guard_unlabelled_marks{{{I}}})",
            "none",
            warn=1,
            width=6,
        ),
        number(
            "Label bounds reached",
            "Share of recent results cut off at a bound, or of calls by principals marked full.",
            f"max(guard_label_saturation{{{I}}})",
            "percentunit",
            warn=0.05,
            width=12,
        ),
        number(
            "Guards whose labels are incomplete",
            "Their store was lost, exchanged or set back: unknown destinations are asked about. An "
            "embedded Redis is, from its second run on.",
            f"sum(guard_labels_incomplete{{{I}}})",
            "none",
            warn=1,
            width=12,
        ),
        buckets(
            "Calls by place in their session",
            "1 is a session's first.",
            "guard_session_calls",
            "none",
        ),
        buckets(
            "Refusals before a call", "In a row, in its session.", "guard_refused_in_a_row", "none"
        ),
    )
    about = "How agents use memory, how long sessions get, and which agents run into a wall."
    sections = {"Memory": memory, "Sessions": sessions}
    return board("guard-memory", "Guard: memory and sessions", about, sections)


def approvals_and_rollouts() -> dict[str, Any]:
    """Return the dashboard that says what waits for people, and how a policy on trial does.

    The console is an instance of its own (docs/reference/metrics.md).
    """
    asked = (
        number("Asked", "Per second.", calls("", 'action="ask"'), "reqps", width=6),
        number(
            "Waiting for an answer",
            "Requests that nobody has answered yet, as the console sees them.",
            "sum(guard_console_requests_waiting)",
            "none",
            warn=20,
            width=6,
        ),
        number(
            "Approved within two seconds",
            "Share of approvals: nobody reads that fast.",
            quickly("guard_console_approval_seconds", "2.0"),
            "percentunit",
            warn=0.2,
            width=6,
        ),
        number(
            "Break-glasses open",
            "What would be asked is let through for their principals.",
            "sum(guard_console_break_glasses_open)",
            "none",
            warn=1,
            width=6,
        ),
        lines(
            "Asked, and released by a grant",
            "Per second; the gap is what people denied, or never saw.",
            (calls("", 'action="ask"'), "asked"),
            (per_second("guard_reasons_total", "", 'code="granted"'), "released"),
            unit="reqps",
        ),
        lines(
            "Answers",
            "Of people on the console, by what became of them.",
            ("sum by (answer) (increase(guard_console_answers_total[$__range]))", "{{answer}}"),
            unit="none",
        ),
        lines(
            "Principals that are paused",
            "They have asked too often; an approver ends a pause.",
            ("sum(guard_console_principals_paused)", "paused"),
            unit="none",
        ),
        lines(
            "Messages to webhooks",
            "What was given up reached nobody.",
            ("sum by (outcome) (increase(guard_console_webhooks_total[$__range]))", "{{outcome}}"),
            unit="none",
        ),
    )
    trial = (
        number(
            "On trial for",
            "Share of the principals for whom a candidate decides.",
            f"max(guard_policy_trial_share{{{I}}})",
            "percentunit",
            width=6,
        ),
        number(
            "Stricter than the policy in force",
            "Share of the calls that both have judged.",
            trial_share("stricter"),
            "percentunit",
            width=6,
        ),
        number(
            "Looser than the policy in force",
            "Share of the calls that both have judged.",
            trial_share("looser"),
            "percentunit",
            width=6,
        ),
        number(
            "Stepped back",
            "Trials that ended because asks or blocks jumped.",
            f'sum(increase(guard_policy_trials_ended_total{{how="stepped_back", {I}}}[$__range]))',
            "none",
            warn=1,
            width=6,
        ),
        lines(
            "Calls that both policies judged",
            "By who decided, and how the candidate's verdict stands to the other.",
            (
                f"sum by (decided_by, outcome) (rate(guard_policy_trial_calls_total{{{I}}}{RATE}))",
                "{{decided_by}} decided, candidate {{outcome}}",
            ),
            unit="reqps",
        ),
        lines(
            "Trials that ended",
            "Since the worker started, by how.",
            (f"sum by (how) (guard_policy_trials_ended_total{{{I}}})", "{{how}}"),
            unit="none",
        ),
    )
    about = "What waits for people, how they answer, and what a policy on trial would change."
    sections = {"Approvals": asked, "Roll-outs": trial}
    return board("guard-approvals", "Guard: approvals and roll-outs", about, sections)


def quickly(metric: str, bound: str) -> str:
    """Return the share of a histogram's observations up to a bound, 0 where there was none."""
    within = f'sum(increase({metric}_bucket{{le="{bound}"}}[$__range]))'
    return f"{within} / clamp_min(sum(increase({metric}_count[$__range])), 1)"


def trial_share(outcome: str) -> str:
    """Return which share of the calls judged twice had an outcome, 0 where there was none."""
    metric = "guard_policy_trial_calls_total"
    one = f'sum(increase({metric}{{outcome="{outcome}", {I}}}[$__range]))'
    return f"{one} / clamp_min(sum(increase({metric}{{{I}}}[$__range])), 1)"


BOARDS: Final = {
    "approvals_and_rollouts": approvals_and_rollouts,
    "overview": overview,
    "latency_and_health": latency_and_health,
    "memory_and_sessions": memory_and_sessions,
}
"""Builders by file name."""


def main(arguments: list[str]) -> int:
    """Write the dashboards, or with ``--check`` compare them; return the exit code."""
    stale = []
    for name, build in BOARDS.items():
        text = json.dumps(build(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        path = DIRECTORY / f"{name}.json"
        if arguments == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(path.name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"not current: {', '.join(stale)}; run `python grafana/build.py`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
