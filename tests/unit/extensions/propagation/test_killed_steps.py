"""A release and a repair whose operator is killed: the next operator finishes them, once."""

from collections import Counter

import pytest

from guard.core.errors import GuardError
from guard.extensions.propagation.graph import SAVED
from guard.extensions.propagation.repair import RESTORE, RESTORED
from guard.operations.incidents import WRITING, Given, IncidentOperator
from tests.unit.extensions.propagation.test_incidents import (
    HONEST,
    NOW,
    KilledError,
    die_at,
    spread,
)


@pytest.fixture
def sections():
    """Return what keeps the texts of saves."""
    return "propagation: {events: 1000, versions: 100}\n"


async def repaired(operator, incident, agent, at=NOW):
    """Restore by writes through the guard; return what came of each item."""

    async def write(tool, arguments):
        verdict = await agent.in_session("repair").call(tool, arguments, "ok", at=at)
        assert verdict.enforced.forwards

    found, texts = await operator.proposals(incident)
    return [
        await operator.repair(incident, one, (texts, b""), write, at, "op")
        for one in found
        if one.action in {RESTORE, RESTORED}
    ]


async def saves(operator):
    """Return how often each item was saved."""
    graph = await operator.graph()
    events = [graph.event(place) for place in range(len(graph))]
    return Counter(event.place for event in events if event.what in SAVED)


@pytest.mark.parametrize(("point", "writes"), [("planned", 1), ("written", 0)])
async def test_a_killed_repair_is_finished_and_written_once(
    point, writes, agent, operator, store, seal
):
    """Before its write it is made again, after it only put on record; never at once by two."""
    early = agent.in_session("early")
    await early.call("save", {"key": "rule", "value": HONEST}, "ok", at=agent.at - 60)
    await spread(agent)
    given = Given(item="rule", store="facts", since=agent.at)
    incident = await operator.open(given, NOW, "op")
    await operator.contain(incident.id, NOW, "op")
    before = await saves(operator)
    dying = IncidentOperator(store, seal, reached=die_at(point))
    with pytest.raises(KilledError):
        await repaired(dying, incident.id, agent)
    if writes:
        with pytest.raises(GuardError, match="wait"):
            await repaired(operator, incident.id, agent)
    assert sum((await saves(operator) - before).values()) == 1 - writes

    done = await repaired(operator, incident.id, agent, NOW + WRITING)
    assert done == ["written" if writes else "repaired"]
    assert sum((await saves(operator) - before).values()) == 1
    assert len((await operator.incident(incident.id)).repaired) == 1
    assert await repaired(operator, incident.id, agent, NOW + WRITING) == ["repaired"]
