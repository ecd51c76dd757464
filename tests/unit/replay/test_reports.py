"""The object behind every ``--json`` output."""

import pytest
from pydantic import ValidationError

from guard.replay.reports import Check


def test_a_figure_that_was_not_measured_needs_a_reason():
    """Null without a reason is refused, and so is what JSON has no word for."""
    with pytest.raises(ValidationError, match="say in `reason`"):
        Check(id="a", value=None, unit="ms")
    with pytest.raises(ValidationError):
        Check(id="a", value=float("nan"), unit="ms")
