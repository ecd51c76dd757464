"""A peer's edges through a real guard, to a real MCP server with PageRank search."""

import pytest

from lab.selection.live import POLICY, Scene, run

pytestmark = pytest.mark.e2e
SCENES = 2


def test_a_misdirected_transfer_is_asked_about_and_the_right_one_goes_out():
    """Six edges of a peer bring a wrong record forward; the guard names whose they are."""
    outcomes = run(POLICY, [Scene(number) for number in range(SCENES)])
    assert outcomes.honest == outcomes.wrong_first == outcomes.right_paid == [True] * SCENES
    assert outcomes.wrong_paid == [False] * SCENES
    assert all("selection_diverged" in reason for reason in outcomes.reasons)
    assert [line["writer"]["principal"] for line in outcomes.lines] == ["peer"] * SCENES
    assert [line["rose"] for line in outcomes.lines] == [
        [f"invoice rival {number}"] for number in range(SCENES)
    ]
