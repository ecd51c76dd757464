"""The values that metric labels may take, and the bounds of histograms.  Pure: no I/O.

A label never takes a value from outside these sets and the policy's own names; what is not among
them counts as ``other``.  Whoever adds a code adds it here: the house test says which is missing.
"""

from __future__ import annotations

from typing import Final

from guard.content.leak_patterns import CODES, INJECTION
from guard.core.declarations import CHANGED
from guard.core.declarations import CODES as DEFINITION_CODES
from guard.core.memory import GATE_REASONS, Fate

FINDING_CODES: Final = frozenset({INJECTION, *DEFINITION_CODES})
"""What can be found in a text that comes in."""
FINDING_SOURCES: Final = frozenset({"result", "definition", "listing", "request"})
"""What it was found in."""
STAGES: Final = (
    "parse",
    "state",
    "detector",
    "rule",
    "provenance",
    "model",
    "audit",
    "policy",
    "memory",
    "hook",
    "upstream",
    "tls",
    "other",
)
"""Parts that can fail; the last stands for any name that is not among them."""
DECIDED_WITHOUT_RULE: Final = frozenset(
    {"no_policy", "guard_error", "no_rule_matched", "audit_error", "batch_refused"}
    | {"redaction_failed", *GATE_REASONS}
)
"""Reason codes of verdicts that no rule decided; they stand in the ``rule`` label."""
REFUSAL_CODES: Final = frozenset(
    {
        "ambiguous_key",
        "ambiguous_path",
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
        "bad_model_request",
        "bad_session_id",
        "bad_transfer_encoding",
        "body_too_large",
        "call_without_id",
        "call_without_name",
        "connect",
        "definitions_unchecked",
        "dns",
        "duplicate_header",
        "duplicate_key",
        "guard_error",
        "header_mismatch",
        "host_mismatch",
        "port",
        "redaction_failed",
        "private_address",
        "raw_tcp",
        "raw_udp",
        "result_withheld",
        "trailers",
        "two_protocols",
        "unexpected_body",
        "unreadable_frame",
        "unknown_method",
        "upgrade",
        "write_credential",
    }
)
"""Refusals of what was never a call: the codes of :class:`guard.core.errors.MessageError`."""
REASON_CODES: Final = frozenset(
    {
        *CODES,
        "too_large_to_inspect",
        "injection_in_result",
        "result_too_large",
        "audit_error",
        "batch_refused",
        "redaction_failed",
        "argument",
        "argument_missing",
        "expression",
        "rate_exceeded",
        "integrity_low",
        "session_rung_low",
        "principal_rung_low",
        "deny_loop",
        "destination_allowed",
        "destination_denied",
        "destination_external",
        "destination_internal",
        "destination_malformed",
        "destination_missing",
        "granted",
        "guard_error",
        "no_policy",
        "no_rule_matched",
        "prefix_score",
        "private_in_body",
        "provenance_claimed",
        "provenance_denied",
        "provenance_established",
        "provenance_granted",
        "provenance_listed",
        "provenance_prompted",
        "provenance_remembered",
        "provenance_reply",
        "provenance_saturated",
        "provenance_tainted",
        "provenance_unknown",
        "recall_before_send",
        "rule_error",
        "sequence",
        CHANGED,
        "tool_role",
        "tool_unmapped",
        *GATE_REASONS,
    }
)
"""Why calls get the verdict they get: the codes of :class:`guard.core.policy.Reason`."""
RECOVERED: Final = "recovered"
"""Stands in the ``reason`` label of a write whose fate was found out afterwards."""
OUTCOMES: Final = frozenset({"refused", "proposal_refused", *(fate.value for fate in Fate)})
"""What can become of a memory write."""
BOUNDS: Final = ("result", "source")
"""Bounds of labels: of one result; of a source or set, by which its principal is marked full."""
UNMAPPED: Final = "unmapped"
"""Stands in the ``tool`` label for every tool that no mapping claims."""
OTHER: Final = "other"
NONE: Final = "none"
TIME_BUCKETS: Final = (
    0.00005,
    0.0001,
    0.0002,
    0.0004,
    0.0007,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
)
"""Seconds."""
SCORE_BUCKETS: Final = tuple(step / 10 for step in range(1, 11))
RUN_BUCKETS: Final = (0, 1, 2, 3, 5, 10, 20, 50)
"""Refusals in a row."""
CALL_BUCKETS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Calls of one session."""
