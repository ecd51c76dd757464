"""Audit lines in the formats of others: CSV, OCSF, OTLP log records."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from guard.core import VERSION

Entry = dict[str, Any]
COLUMNS: Final = (
    "at",
    "decision_id",
    "tenant",
    "principal",
    "session",
    "server",
    "protocol",
    "tool",
    "role",
    "action",
    "enforced",
    "mode",
    "reasons",
    "rules",
    "score",
    "milliseconds",
    "policy",
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_ALLOWED: Final = {"allow", "redact"}


def as_csv_row(entry: Entry) -> dict[str, str]:
    """Return a decision as a row of ``COLUMNS``; a cell that a spreadsheet would run is quoted."""
    reasons = entry.get("reasons", ())
    row = {name: entry.get(name, "") for name in COLUMNS}
    row["reasons"] = " ".join(str(reason.get("code", "")) for reason in reasons)
    row["rules"] = " ".join(str(rule) for rule in entry.get("decided_by", ()))
    return {name: _cell(value) for name, value in row.items()}


def as_ocsf(entry: Entry) -> Entry:
    """Return a decision as an OCSF 1.3 API Activity event (class 6003).

    ``disposition_id`` is 1 (allowed) or 2 (blocked); what is asked about is blocked until then.
    """
    allowed = entry.get("enforced") in _ALLOWED
    return {
        "category_uid": 6,
        "class_uid": 6003,
        "activity_id": 99,
        "activity_name": entry.get("role", ""),
        "type_uid": 600399,
        "time": _milliseconds(entry),
        "severity_id": 1 if allowed else 3,
        "status_id": 1 if allowed else 2,
        "status_detail": " ".join(str(r.get("code", "")) for r in entry.get("reasons", ())),
        "action_id": 1 if allowed else 2,
        "disposition_id": 1 if allowed else 2,
        "metadata": {
            "version": "1.3.0",
            "uid": entry.get("decision_id", ""),
            "product": {
                "name": "agent-egress-guard",
                "vendor_name": "agent-egress-guard",
                "version": VERSION,
            },
        },
        "actor": {
            "user": {"name": entry.get("principal", ""), "domain": entry.get("tenant", "")},
            "session": {"uid": entry.get("session", "")},
        },
        "api": {
            "operation": entry.get("tool", ""),
            "service": {"name": entry.get("server", "")},
            "request": {"uid": entry.get("decision_id", "")},
        },
        "policy": {"uid": entry.get("policy", "")},
        "unmapped": {name: entry[name] for name in ("action", "mode", "score") if name in entry},
    }


def as_otlp(entry: Entry) -> Entry:
    """Return a decision as an OTLP log record in its JSON form, with GenAI attributes.

    Attribute names are those of OpenTelemetry's semantic conventions where they have one.
    """
    allowed = entry.get("enforced") in _ALLOWED
    attributes = {
        "event.name": entry.get("event", ""),
        "gen_ai.tool.name": entry.get("tool", ""),
        "gen_ai.conversation.id": entry.get("session", ""),
        "gen_ai.operation.name": "execute_tool",
        "enduser.id": entry.get("principal", ""),
        "server.address": entry.get("server", ""),
        "guard.decision_id": entry.get("decision_id", ""),
        "guard.action": entry.get("action", ""),
        "guard.enforced": entry.get("enforced", ""),
        "guard.role": entry.get("role", ""),
        "guard.reasons": " ".join(str(r.get("code", "")) for r in entry.get("reasons", ())),
        "guard.policy": entry.get("policy", ""),
    }
    return {
        "timeUnixNano": str(_milliseconds(entry) * 1_000_000),
        "severityNumber": 9 if allowed else 13,
        "severityText": "INFO" if allowed else "WARN",
        "body": {"stringValue": f"{entry.get('action', '')} {entry.get('tool', '')}"},
        "attributes": [
            {"key": key, "value": {"stringValue": str(value)}} for key, value in attributes.items()
        ],
    }


def _milliseconds(entry: Entry) -> int:
    return round(datetime.fromisoformat(entry["at"]).timestamp() * 1000)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    # CSV injection: what begins like a formula is text that an outsider may have chosen.
    return f"'{text}" if text.startswith(_FORMULA) else text
