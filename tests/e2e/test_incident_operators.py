"""An operator's process that is killed with SIGKILL at any point leaves nothing half done."""

import signal
import subprocess
import sys

import pytest

from guard.adapters.redis.incidents import Given, IncidentOperator
from guard.policy_files import load_policies
from guard.propagation.incident import DONE, UNDONE
from guard.provenance.seal import Seal
from tests.e2e.incident_operators import NOW, TOLD
from tests.guards import KEY, guard_on
from tests.unit.propagation.test_incidents import everything, spread
from tests.unit.provenance.agents import POLICY, Agent

KILLED = -signal.SIGKILL


@pytest.fixture
def operators(redis_server, redis_namespace):
    """Return a function that has operators act, each in a process, and returns their ends."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.e2e.incident_operators",
            redis_server.url,
            redis_namespace,
            KEY.hex(),
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
async def poisoned(store, tmp_path):
    """Have agents share a poisoned item; return an operator and the incident about it."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY + "propagation: {events: 1000}\n", encoding="utf-8")
    await spread(Agent(guard_on(store, load_policies([path]))))
    operator = IncidentOperator(store, Seal(KEY))
    return operator, await operator.open(Given(item="rule", store="facts"), NOW, "op")


async def test_a_killed_step_is_finished_or_taken_back_whole(poisoned, operators, store):
    """Contain, release and undo, killed at each of their points, one after the other."""
    operator, incident = poisoned
    before = await everything(store)
    for point in ("journal", "planned", "changed", "epoch"):
        assert operators(incident.id, "contain", point, "first") == [KILLED]
        contained = await operator.contain(incident.id, NOW, "second")
        step = contained.steps[-1]
        assert step.state == DONE
        held = await everything(store)
        nodes = [name[1:].hex() for name in await operator._contained()]
        assert len(nodes) == 2

        for between in ("planned", "changed", "epoch"):
            assert operators(incident.id, "release", between, nodes[0]) == [KILLED]
            released = await operator.contain(incident.id, NOW, "op")
            last = released.steps[-1]
            assert (last.kind, last.state) == ("release", DONE)
            assert len(await operator._contained()) == 1
            await operator.undo(incident.id, last.number, NOW, "op")
            assert await everything(store) == held

        assert operators(incident.id, "undo", "changed", step.number) == [KILLED]
        with pytest.raises(Exception, match="can be undone"):
            await operator.undo(incident.id, step.number, NOW, "op")
        undone = await operator.incident(incident.id)
        assert next(s for s in undone.steps if s.number == step.number).state == UNDONE
        assert await everything(store) == before


async def test_operators_at_once_do_what_one_would(poisoned, operators, store):
    """Whoever comes too late is told; what is contained in the end is what one had contained."""
    operator, incident = poisoned
    before = await everything(store)
    for _ in range(3):
        ends = operators(incident.id, "contain", "-", "ann", "ben", "cleo")
        assert set(ends) <= {0, TOLD}
        found = await operator.contain(incident.id, NOW, "op")
        assert {step.state for step in found.steps} <= {DONE, UNDONE}
        assert len(await operator._contained()) == 2
        for step in reversed(found.steps):
            if step.state == DONE:
                await operator.undo(incident.id, step.number, NOW, "op")
        assert await everything(store) == before
