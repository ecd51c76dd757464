"""A peer's edges through a real guard, to a real MCP server with PageRank search."""

import pytest

from lab.selection import derived
from lab.selection.live import POLICY, run
from tests.graph_world import with_namespaces

pytestmark = pytest.mark.e2e
SCENES = 2


def test_a_misdirected_transfer_is_asked_about_and_the_right_one_goes_out():
    """Six edges of a peer bring a wrong record forward; the guard names whose they are."""
    outcomes = run(POLICY, SCENES)
    assert outcomes.honest == outcomes.wrong_first == outcomes.right_paid == [True] * SCENES
    assert outcomes.wrong_paid == [False] * SCENES
    assert all("selection_diverged" in reason for reason in outcomes.reasons)
    assert [line["writer"]["principal"] for line in outcomes.lines] == ["peer"] * SCENES
    assert [line["rose"] for line in outcomes.lines] == [
        [f"invoice rival {number}"] for number in range(SCENES)
    ]


def test_a_store_that_nobody_can_replay_is_asked_twice(tmp_path):
    """A peer's edges go into a namespace of their own on the wire, whose answer is another."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(with_namespaces(POLICY.read_text(encoding="utf-8")), "utf-8")
    outcomes = run(policy, SCENES)
    assert outcomes.honest == outcomes.wrong_first == outcomes.right_paid == [True] * SCENES
    assert outcomes.wrong_paid == [False] * SCENES
    assert all("selection_diverged" in reason for reason in outcomes.reasons)
    assert {line["road"] for line in outcomes.lines} == {"dual_query"}


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "switched-off"])
def test_structure_that_a_store_derives_from_a_peers_text_is_untrusted(tmp_path, declared):
    """A peer invalidates a fact, merges an entity or fills a report: the transfer is asked."""
    policy = tmp_path / "policy.yaml"
    text = derived.POLICY.read_text(encoding="utf-8")
    policy.write_text(text if declared else derived.without_mechanism(text), "utf-8")
    outcomes = derived.run(policy, 6)
    assert outcomes.swapped == [True] * 6
    assert outcomes.harmed == [not declared] * 6
    assert outcomes.asked == [False] * 3
    assert not declared or all("selection_unreplayed" in one for one in outcomes.reasons)
