"""Published selections behind a guard, replayed live (`make live-stores` installs all of them)."""

import pytest

from lab.selection.live_stores import STORES, exercise, is_installed, policy_for

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("store", sorted(STORES))
def test_a_peers_edges_in_a_published_selection_move_no_transfer(store):
    """The replica ranks as the package does, so an honest transfer goes out and this one not."""
    if not is_installed(store):
        pytest.skip("`make live-stores` installs it")
    # A busy machine may take longer than the shipped deadline: then people are asked.
    text = policy_for(store).replace("deadline_ms: 10000", "deadline_ms: 60000")
    found = exercise(store, text)
    assert found.honest == found.rival_served == [True]
    assert found.wrong_paid == [False]
    assert "selection_diverged" in found.reasons[0]
    assert [one["reason"] for one in found.lines] == ["diverged"]
