"""The stream benchmark measures what it says, against a real guard."""

from __future__ import annotations

from guard.settings import policies_directory
from lab.bench_stream import EVENTS, bench_stream


def test_the_stream_benchmark_reports_every_figure_it_promises() -> None:
    """Three figures in milliseconds, each over all rounds; no figure is judged here."""
    report = bench_stream(policies_directory() / "default.yaml", rounds=3, progress=lambda *_: None)

    figures = {check.id: (check.unit, check.n) for check in report.checks}
    assert figures == {
        "first_event_added_ms": ("ms", 3),
        "gap_added_ms": ("ms", 3 * (EVENTS - 1)),
        "ttft_added_ms": ("ms", 3),
    }
    assert all(check.value is not None for check in report.checks)
