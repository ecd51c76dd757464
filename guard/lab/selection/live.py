"""A peer's six edges through the live proxy: the transfer that they misdirect is asked about."""

from __future__ import annotations

from typing import Any

from guard.replay.reports import Check


def stopped_end_to_end(details: dict[str, Any]) -> list[Check]:
    """Return whether the wrong transfer was asked about."""
    details["end_to_end"] = None
    return [
        Check(
            id="e2e_stopped",
            value=None,
            unit="fraction",
            target="1.0",
            reason="the proxy does not replay selections yet",
        )
    ]
