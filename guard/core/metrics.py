"""Every metric that the guard exports, each declared once: name, help, labels.  Pure: no I/O.

To add a metric, declare it here and count it where it happens, through :class:`Metrics`: whoever
exports metrics shows it, every other implementation of the port ignores it.
``docs/reference/metrics.md`` is made from the declarations.

A label takes a value of its closed set only, and any other counts as ``other``: no session,
principal or destination is ever a label, and of tools only the names and patterns that the policy
itself writes.  Clients choose the rest, and each new value would be a new time series for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from guard.core.memory import GATE_REASONS, Fate, MemoryClass
from guard.core.model import Role
from guard.core.policy import Action, Mode, Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from guard.core.ports import DecisionRecord
    from guard.core.trajectory import Snapshot

OTHER: Final = "other"
"""Stands for every value that is not in a label's closed set."""
NONE: Final = "none"
UNMAPPED: Final = "unmapped"
"""Stands in the ``tool`` label for every tool that no mapping claims."""
RECOVERED: Final = "recovered"
"""Stands in the ``reason`` label of a write whose fate was found out afterwards."""


class Label:
    """A label of a metric.

    Args:
        name: as it is exported.
        values: the closed set; None for values that only the deployment itself writes.
        start: the values that series begin with at zero before anything happens; left out, all.
    """

    __slots__ = ("name", "start", "values")

    def __init__(
        self, name: str, values: Iterable[str] | None = (), start: Iterable[str] | None = None
    ) -> None:
        self.name = name
        self.values = None if values is None else frozenset(values)
        self.start = tuple(sorted(self.values or ()) if start is None else start)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A declared metric; compared by identity."""

    name: str
    help: str
    labels: tuple[Label, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of its labels."""
        return tuple(label.name for label in self.labels)


class Counter(Metric):
    """Counts events; its name ends in ``_total``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Gauge(Metric):
    """Shows a number as it is now."""

    combined: Literal["sum", "max", "min"] = "max"
    """Operation that combines the numbers of several workers."""


@dataclass(frozen=True, slots=True, eq=False)
class Share(Metric):
    """A gauge of the share of the last hundred observations that were true."""

    combined: Literal["sum", "max", "min"] = "max"
    """Operation that combines the shares of several workers."""


@dataclass(frozen=True, slots=True, eq=False)
class Histogram(Metric):
    """Counts observations by size; it has no labels."""

    buckets: tuple[float, ...] = ()
    """Upper bounds, inclusive, ascending; infinity is added."""


class Metrics:
    """The port through which everything is counted; this implementation counts nothing.

    Only the event loop's thread may call it.
    """

    def attempted(self, seconds: float, before: Snapshot) -> None:
        """Count an attempt that the store has written.

        Args:
            seconds: that the store took.
            before: the state before the attempt.
        """

    def decision(self, record: DecisionRecord) -> None:
        """Count a decision that is on record: under the names of the policy in force, its time and
        its score.
        """

    def set_policy(self, policy: Policy) -> None:
        """Take the names in the policy that is now in force as values of labels."""

    def count(self, metric: Counter, *labels: str) -> None:
        """Count one event, under these label values in the order of the declaration."""

    def observe(self, metric: Histogram | Share, value: float, *labels: str) -> None:
        """Take one observation."""

    def set(self, metric: Gauge, value: float | Callable[[], float], *labels: str) -> None:
        """Set a gauge to a number, or to what a function returns at each scrape."""


# -- Closed sets -------------------------------------------------------------------------------

STAGES: Final = (
    "parse",
    "state",
    "detector",
    "rule",
    "provenance",
    "model",
    "audit",
    "recording",
    "policy",
    "memory",
    "hook",
    "upstream",
    "tls",
    OTHER,
)
"""Parts that can fail."""
DECIDED_WITHOUT_RULE: Final = frozenset(
    {
        "asks_paused",
        "egress_not_allowed",
        "tool_contested",
        "approval_denied",
        "approval_expired",
        "approval_required",
        "no_policy",
        "guard_error",
        "no_rule_matched",
        "audit_error",
        "recording_error",
        "batch_refused",
        "work_exceeded",
        "selection_annotated",
        "selection_namespace",
        "selection_substituted",
        "selection_unmarked",
        "structure_unrecorded",
        "result_unlabelled",
        "result_unmatched",
        "memory_contained",
        "memory_suspected",
    }
    | {"redaction_failed", *GATE_REASONS}
)
"""Reason codes of verdicts that no rule decided; they stand in the ``rule`` label."""
OWN_REASONS: Final = DECIDED_WITHOUT_RULE | {"break_glass", "granted", "rule_error"}
"""Reason codes that no rule type declares."""
REFUSAL_CODES: Final = frozenset(
    {
        "ambiguous_key",
        "ambiguous_path",
        "authorization_server",
        "bad_answer",
        "bad_call",
        "bad_content_encoding",
        "bad_content_type",
        "bad_credential",
        "bad_fields",
        "bad_host",
        "bad_http",
        "bad_http_method",
        "bad_json",
        "bad_jsonrpc",
        "bad_login",
        "bad_model_request",
        "bad_session_id",
        "bad_request_state",
        "unasked_answer",
        "bad_transfer_encoding",
        "body_too_large",
        "call_without_id",
        "call_without_name",
        "connect",
        "definitions_unchecked",
        "no_room",
        "overloaded",
        "dns",
        "duplicate_header",
        "duplicate_key",
        "guard_error",
        "header_mismatch",
        "host_mismatch",
        "unknown_path",
        "port",
        "redaction_failed",
        "private_address",
        "raw_tcp",
        "raw_udp",
        "result_unmatched",
        "result_withheld",
        "token_elsewhere",
        "trailers",
        "too_many_calls",
        "two_protocols",
        "unexpected_body",
        "unreadable_frame",
        "unknown_kind",
        "unknown_method",
        "upgrade",
        "upstream_unreachable",
        "work_exceeded",
        "write_credential",
    }
)
"""Refusals of what was never a call: the codes of :class:`guard.core.errors.MessageError`."""
HELD_OUTCOMES: Final = (
    *("released", "refused", "denied", "cancelled", "expired", "left", "stopped", "no_room"),
    *("failed", "unanswered"),
)
"""Outcomes of a request that is held open: forwarded once it was approved, judged anew and
refused, denied, dismissed by the person at its client, out of time.  Further: given up by its
client, ended with the guard, refused at once, not judged anew because a part failed, not answered
until the request for approval ended."""
_ACTIONS: Final = tuple(action.label for action in Action)
_ROLES: Final = tuple(role.value for role in Role)
_TIMES: Final = (
    *(0.00005, 0.0001, 0.0002, 0.0004, 0.0007, 0.001, 0.002, 0.005),
    *(0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0),
)
"""Seconds."""

# The exporter closes these: with the names in the policy in force, and with the codes that rule
# types and detectors declare.
RULE: Final = Label("rule", start=(NONE,))
TOOL: Final = Label("tool")
REASON_CODE: Final = Label("code")
FINDING_CODE: Final = Label("code")

_ACTION: Final = Label("action", _ACTIONS)
_ROLE: Final = Label("role", _ROLES)
_STAGE: Final = Label("stage", STAGES)

# -- Decisions ---------------------------------------------------------------------------------

DECISIONS: Final = Counter(
    "guard_decisions_total",
    "Calls judged, by action, role of the tool, deciding rule and mode.",
    # The series of the policy's own mode begin with it.
    (_ACTION, _ROLE, RULE, Label("mode", [mode.value for mode in Mode], start=())),
)
WOULD_HAVE_BLOCKED: Final = Counter(
    "guard_would_have_blocked_total",
    "Calls that monitor mode let through and enforce mode would have refused.",
    (_ROLE, RULE),
)
TOOL_DECISIONS: Final = Counter(
    "guard_tool_decisions_total",
    "Calls judged, by the name or pattern under which the policy maps the tool.",
    (TOOL, _ACTION),
)
REASONS: Final = Counter(
    "guard_reasons_total",
    "Decisions that had a reason of this code, by the action it asked for.",
    (REASON_CODE, _ACTION),
)
DECISION_SECONDS: Final = Histogram(
    "guard_decision_seconds",
    "From the parsed call to the verdict, the session store included.",
    buckets=_TIMES,
)
PREFIX_SCORE: Final = Histogram(
    "guard_prefix_score",
    "Scores of the prefix classifier, in [0, 1].",
    buckets=tuple(step / 10 for step in range(1, 11)),
)
PREFIX_SCORE_EXPECTED: Final = Gauge(
    "guard_prefix_score_expected",
    "Share of the training data's scores up to this bound, from the model's card.",
    (Label("le", None),),
)
SESSION_CALLS: Final = Histogram(
    "guard_session_calls",
    "Which call of its session each call judged was; 1 is the first.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
REFUSED_IN_A_ROW: Final = Histogram(
    "guard_refused_in_a_row",
    "Refusals of the session directly before each call judged.",
    buckets=(0, 1, 2, 3, 5, 10, 20, 50),
)

# -- Content, memory, messages -----------------------------------------------------------------

FINDINGS: Final = Counter(
    "guard_findings_total",
    "What was found in texts that came in and in tool definitions, by code.",
    (FINDING_CODE, Label("source", ("result", "definition", "listing", "request"))),
)
MEMORY_WRITES: Final = Counter(
    "guard_memory_writes_total",
    "Memory writes by what became of them, the first reason, and the class.",
    (
        Label("outcome", ("refused", "proposal_refused", *(fate.value for fate in Fate))),
        Label("reason", (*GATE_REASONS, NONE, RECOVERED), start=(NONE,)),
        Label("class", MemoryClass.__members__, start=(OTHER,)),
    ),
)
MEMORY_DRIFT: Final = Counter(
    "guard_memory_drift_total", "Subjects that a principal's committed memory was found to push."
)
REFUSALS: Final = Counter(
    "guard_refusals_total",
    "Messages refused before they were calls, by code.",
    (Label("code", (*REFUSAL_CODES, OTHER)),),
)
CALLS_AWAITED: Final = Gauge(
    "guard_calls_awaited", "Calls forwarded whose result has not come back.", combined="sum"
)
CALLS_FORGOTTEN: Final = Counter(
    "guard_calls_forgotten_total",
    "Forwarded requests that were removed from memory before their answer, by the bound reached.",
    (Label("bound", ("age", "bytes", "principal")),),
)
REQUESTS_WAITING: Final = Gauge(
    "guard_requests_waiting",
    "Requests that wait to be judged, because as many as may be are being judged.",
    combined="sum",
)
HELD_CALLS: Final = Gauge("guard_held_calls", "Requests that are held open for a person's answer.")
HELD: Final = Counter(
    "guard_held_total",
    "Requests that were to be held open for a person's answer, by what became of them.",
    (Label("outcome", HELD_OUTCOMES),),
)
SLOW_REASONS: Final = ("stream", "no_room", "stalled")
"""Why a client counts as slow: too much waits in its event stream, too much is held of all
messages, it has read nothing for a minute."""
SLOW_CLIENTS: Final = Counter(
    "guard_slow_clients_total",
    "Connections that were closed because their client did not read, by why.",
    (Label("why", SLOW_REASONS),),
)
HELD_BYTES: Final = Gauge(
    "guard_held_bytes",
    "Bytes of unfinished messages and of answers that their clients have yet to read.",
    combined="sum",
)
REDIS_SECONDS: Final = Histogram(
    "guard_redis_seconds", "One round trip to the session store.", buckets=_TIMES
)
UPSTREAM_SECONDS: Final = Histogram(
    "guard_upstream_seconds",
    "From forwarding a request to the head of its answer.",
    buckets=(*_TIMES, 2.5, 5.0, 10.0, 30.0),
)

# -- The guard itself --------------------------------------------------------------------------

ERRORS: Final = Counter(
    "guard_errors_total", "Errors, by the part that failed; each is a block.", (_STAGE,)
)
FAIL_CLOSED: Final = Gauge(
    "guard_fail_closed", "1 while a part is failing and calls are blocked for it.", (_STAGE,)
)
AUDIT_LINES: Final = Gauge(
    "guard_audit_lines",
    "Lines that the workers have written to the audit log since they began.",
    combined="sum",
)
RECORDS_LOST: Final = Counter(
    "guard_records_lost_total", "Exchanges missing in the recordings, because nothing was writable."
)
SPANS_LOST: Final = Counter(
    "guard_spans_lost_total", "OpenTelemetry spans that the receiver did not take."
)
SELECTIONS: Final = Counter(
    "guard_selections_total",
    "Answers of graph memories by what their replay found, and ledgers that lack a write.",
    (
        Label(
            "outcome",
            (
                "stands",
                "diverged",
                "late",
                "error",
                "ledger_gap",
                "unknown_item",
                "items_gone",
                "unfaithful",
                "unrankable",
                "fidelity",
                "unread_answer",
                "no_grounding",
                "other_ranking",
                "no_replica",
                "unasked",
                "unwritten",
            ),
        ),
    ),
)
SELECTION_FIDELITY: Final = Gauge(
    "guard_selection_fidelity",
    "Share of a store's recent answers that the replica of its selector made alike.",
    (Label("store", None),),
    combined="min",
)
DETECTION_AGE: Final = Gauge(
    "guard_detection_age_seconds",
    "Seconds since the detector judged every committed save; 0 where the policy has none.",
    combined="max",
)
LABEL_SATURATION: Final = Share(
    "guard_label_saturation",
    "Share of the last hundred looks at a bound of labels that found it reached.",
    # Bounds of one result, or of a source or set: the latter mark its principal full.
    (Label("bound", ("result", "source")),),
)
LABELS_INCOMPLETE: Final = Gauge(
    "guard_labels_incomplete", "1 while labels that the store lost may be missing."
)
UNLABELLED_MARKS: Final = Gauge(
    "guard_unlabelled_marks",
    "Results released while the store could not be told, and not written since.",
)
POLICY_INFO: Final = Gauge(
    "guard_policy_info",
    "The policy in force; always 1.",
    (Label("digest", None), Label("name", None)),
)
POLICY_RELOADS: Final = Counter(
    "guard_policy_reloads_total",
    "Attempts to put changed policy files in force, by outcome.",
    (Label("outcome", ("swapped", "kept")),),
)
POLICY_STALE: Final = Gauge(
    "guard_policy_stale",
    "1 while the policy files have a problem and an earlier policy is in force.",
)
TRIAL_CALLS: Final = Counter(
    "guard_policy_trial_calls_total",
    "Calls that a policy on trial judged as well, by who decided and how its verdict stands to the "
    "other.",
    (
        Label("decided_by", ("base", "candidate")),
        Label("outcome", ("same", "stricter", "looser", "failed")),
    ),
)
TRIAL_SHARE: Final = Gauge(
    "guard_policy_trial_share",
    "Share of the principals for whom a policy on trial decides; 0 in shadow mode and without one.",
)
TRIALS_ENDED: Final = Counter(
    "guard_policy_trials_ended_total",
    "Trials of a policy that ended here, by how.",
    (Label("how", ("done", "stopped", "stepped_back", "lost")),),
)
ACTION_TRIAL: Final = Counter(
    "guard_action_trial_calls_total",
    "Calls that action rules on trial after an upgrade would have asked about or blocked.",
    (Label("action", ("ask", "block")),),
)
MODEL_INFO: Final = Gauge(
    "guard_model_info",
    "The models loaded; always 1.",
    (Label("model", None), Label("digest", None)),
)
WORKER_RESTARTS: Final = Gauge(
    "guard_worker_restarts",
    "Times the supervisor has started a worker anew.",
    combined="sum",
)
BUILD_INFO: Final = Gauge("guard_build_info", "The version; always 1.", (Label("version", None),))


def declared() -> tuple[Metric, ...]:
    """Return every metric of this module."""
    return tuple(value for value in globals().values() if isinstance(value, Metric))
