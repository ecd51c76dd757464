"""A real client hands its model why it was refused: the core of `make conformance`'s matrix."""

import pytest

from lab.refusal_matrix import bench_refusals
from tests.e2e.running_guard import (
    ROOT,
    THE_RIG,
)

pytestmark = pytest.mark.e2e


def test_the_official_client_reads_every_kind_of_refusal():
    """Over HTTP, HTTP+SSE and stdio; what has an output schema is the harder half."""
    report = bench_refusals(
        ROOT / "tests" / "conformance",
        progress=lambda words, share: None,
        only="mcp 1 (Python)",
        schemas=("typed",),
        made=THE_RIG,
    )

    assert report.details["unreadable"] == []
    assert report.checks[0].n == 26
