"""The object behind every ``--json`` output."""

import json

import pytest
from pydantic import ValidationError

from guard.replay.reports import Check, Report


def test_a_report_is_one_line_with_only_what_is_there():
    """Optional fields that are absent are left out; a null value stays, with its reason."""
    report = Report(
        name="demo",
        machine={"cpus": 2},
        checks=[
            Check(id="a", value=1, unit="count", n=1),
            Check(id="b", value=None, unit="ms", reason="no load generator"),
            Check(id="c", value=0.5, unit="rate", interval=(0.4, 0.6), target=">= 0.4"),
        ],
    )

    text = report.to_json()

    assert "\n" not in text
    assert json.loads(text)["checks"] == [
        {"id": "a", "value": 1, "unit": "count", "n": 1},
        {"id": "b", "value": None, "unit": "ms", "reason": "no load generator"},
        {"id": "c", "value": 0.5, "unit": "rate", "interval": [0.4, 0.6], "target": ">= 0.4"},
    ]


def test_a_figure_that_was_not_measured_needs_a_reason():
    """Null without a reason is refused, and so is what JSON has no word for."""
    with pytest.raises(ValidationError, match="say in `reason`"):
        Check(id="a", value=None, unit="ms")
    with pytest.raises(ValidationError):
        Check(id="a", value=float("nan"), unit="ms")
