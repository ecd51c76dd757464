"""Honest flows: data that renders whole, told by every habit, and played to the end."""

from collections import Counter

import pytest

from guard.wiring import assemble
from lab.trust.flows import HABITS, shipped_policies, tell, tellings


def test_there_are_enough_flows_in_enough_domains():
    """As many as the suite promises, each by every habit."""
    flows = Counter(telling.domain for telling in tellings() if telling.habit is HABITS[0])

    assert sum(flows.values()) >= 80
    assert len(flows) >= 8
    assert min(flows.values()) >= 5
    assert sum(1 for _ in tellings()) == sum(flows.values()) * len(HABITS)


def test_nothing_in_the_shipped_policies_is_changed_but_the_domain():
    """What a user gets who names the house's own domain."""
    policy, *_ = shipped_policies(next(tellings()))

    assert "- lakeside.example" in policy
    assert "\n  - example.com\n" not in policy


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.name)
async def test_a_named_receiver_is_written_to_unasked(world_redis, habit):
    """However the model spells the address that the user typed."""
    wanted = ("mail", "status-to-a-named-address", habit)
    telling = next(one for one in tellings() if (one.domain, one.flow, one.habit) == wanted)

    course = await tell(assemble, world_redis, telling, prompts=True, remember=False)

    assert not course.first | course.second | course.again | course.blocked


async def test_who_is_asked_and_says_yes_is_not_blocked(world_redis):
    """Without the prompt channel a stranger is asked about, and the approval holds."""
    telling = next(one for one in tellings() if one.flow == "status-to-a-named-address")

    course = await tell(assemble, world_redis, telling, prompts=False, remember=False)

    assert course.first
    assert not course.again | course.blocked
