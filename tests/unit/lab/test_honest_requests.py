"""Honest requests are passed by the content detectors, and others are not."""

from __future__ import annotations

from guard.lab.honest_requests import eval_honest, flags


def test_what_is_flagged_is_counted_by_kind_and_shown() -> None:
    """One of each kind, and one command that reads credentials."""
    requests = {
        "command": ["ls -la", "cat /etc/shadow"],
        "url": ["https://docs.example.com/guide?page=2"],
    }

    report = eval_honest(requests, lambda: None)

    assert report.checks[0].n == 3
    assert report.details["kinds"]["command"] == {"requests": 2, "flagged": 1}
    assert report.details["codes"] == {"sensitive_path": 1}
    assert flags("url", "https://user:hunter2secret@x.test/") == {"secret_found"}
