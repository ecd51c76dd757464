"""An operator's process that is killed with SIGKILL at any point leaves nothing half done."""

import signal
import subprocess
import sys
from collections import Counter

import pytest

from guard.core.errors import GuardError
from guard.extensions.propagation.graph import SAVED
from guard.extensions.propagation.incident import DONE, UNDONE
from guard.operations.incidents import WRITING, Given, IncidentOperator
from guard.policy import load_policies
from guard.provenance.seal import Seal
from lab.propagation.stored_state import differences, stored_state
from tests.e2e.incident_operators import NOW, repair, writer
from tests.guards import KEY, guard_on
from tests.unit.extensions.propagation.test_incidents import HONEST, spread
from tests.unit.provenance.agents import POLICY, Agent

KILLED = -signal.SIGKILL


@pytest.fixture
def policy(tmp_path):
    """Return the file of the policy, under which texts are kept."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY + "propagation: {events: 1000, versions: 100}\n", encoding="utf-8")
    return path


@pytest.fixture
def operators(redis_server, redis_namespace, policy):
    """Return a function that has operators act, each in a process, and returns their ends."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.e2e.incident_operators",
            redis_server.url,
            redis_namespace,
            KEY.hex(),
            str(policy),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def run(incident, act, point, *arguments):
        process.stdin.write(f"{incident} {act} {point} {','.join(map(str, arguments))}\n")
        process.stdin.flush()
        return [int(word) for word in process.stdout.readline().split()]

    yield run
    process.stdin.close()
    process.wait()
    process.stdout.close()


@pytest.fixture
async def poisoned(store, policy):
    """Have agents share a poisoned item; return an operator and the incident about it."""
    agent = Agent(guard_on(store, load_policies([policy])))
    good = {"key": "rule", "value": HONEST}
    await agent.in_session("early").call("save", good, "ok", at=agent.at - 60)
    await spread(agent)
    operator = IncidentOperator(store, Seal(KEY))
    given = Given(item="rule", store="facts", since=agent.at)
    return operator, await operator.open(given, NOW, "op")


async def test_a_killed_step_is_finished_or_taken_back_whole(poisoned, operators, store):
    """Contain, release and undo, killed at each of their points, one after the other."""
    operator, incident = poisoned
    before = await stored_state(store)
    for point in ("journal", "planned", "changed", "epoch"):
        assert operators(incident.id, "contain", point, "first") == [KILLED]
        contained = await operator.contain(incident.id, NOW, "second")
        step = contained.steps[-1]
        assert step.state == DONE
        held = await stored_state(store)
        nodes = [name[1:].hex() for name in await operator.contained()]
        assert len(nodes) == 2

        for between in ("planned", "changed", "epoch"):
            assert operators(incident.id, "release", between, nodes[0]) == [KILLED]
            released = await operator.contain(incident.id, NOW, "op")
            last = released.steps[-1]
            assert (last.kind, last.state) == ("release", DONE)
            assert len(await operator.contained()) == 1
            await operator.undo(incident.id, last.number, NOW, "op")
            assert differences(held, await stored_state(store)) == []

        end = "epoch" if point == "epoch" else "changed"
        assert operators(incident.id, "undo", end, step.number) == [KILLED]
        with pytest.raises(Exception, match="can be undone"):
            await operator.undo(incident.id, step.number, NOW, "op")
        undone = await operator.incident(incident.id)
        assert next(s for s in undone.steps if s.number == step.number).state == UNDONE
        assert differences(before, await stored_state(store)) == []


async def versions(operator):
    """Return how often each item was saved."""
    graph = await operator.graph()
    events = [graph.event(place) for place in range(len(graph))]
    return Counter(event.place for event in events if event.what in SAVED)


@pytest.mark.parametrize(("point", "writes"), [("planned", 1), ("written", 0)])
async def test_a_killed_repair_is_finished_and_written_once(
    point, writes, poisoned, operators, store, policy
):
    """Before its write it is made again, after it only put on record; never at once by two."""
    operator, incident = poisoned
    await operator.contain(incident.id, NOW, "op")
    before = await versions(operator)
    assert operators(incident.id, "repair", point, "first") == [KILLED]
    if writes:
        with pytest.raises(GuardError, match="wait"):
            await repair(operator, incident.id, writer(store, policy))
    cut_short = await versions(operator)
    done = await repair(operator, incident.id, writer(store, policy), NOW + WRITING)

    assert done == ["written" if writes else "repaired"]
    assert sum((cut_short - before).values()) == 1 - writes
    assert sum(((await versions(operator)) - before).values()) == 1
    found = await operator.incident(incident.id)
    assert found.unfinished is None
    assert len(found.repaired) == 1
    assert found.repaired <= set(found.steps[0].nodes)
    assert await repair(operator, incident.id, writer(store, policy), NOW + WRITING) == ["repaired"]
