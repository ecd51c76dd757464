"""The graph and its incidents with the state in this process, by the public API."""

import pytest

from guard import Guard, Refused
from guard.operations.incidents import Given, IncidentOperator
from tests.unit.extensions.propagation.test_incidents import HONEST, POISON
from tests.unit.provenance.agents import POLICY


@pytest.fixture
async def contained(tmp_path):
    """Open a guard in which an item was saved and is contained."""
    pytest.importorskip("fakeredis", reason="the extra `in-process` is not installed")
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY + "propagation: {events: 1000, versions: 10}\n", encoding="utf-8")
    async with Guard.open(path) as opened:
        session = opened.session(principal="alice", session="one")
        await session.call("save", {"key": "rule", "value": POISON}, lambda _: "ok")
        parts = opened.parts
        operator = IncidentOperator(parts.store, parts.seal)
        incident = await operator.open(Given(value="drop@evil.test"), 1.0, "op")
        await operator.contain(incident.id, 2.0, "op")
        yield opened


async def test_a_list_loses_the_contained_entry(contained):
    """The caller gets the rest as objects of its own."""
    found = [{"text": POISON}, {"text": HONEST}]
    session = contained.session(principal="bob", session="two")

    assert await session.call("recall", {"key": "x"}, lambda _: found) == [{"text": HONEST}]


async def test_a_contained_text_alone_is_refused(contained):
    """What cannot be taken apart raises, as every other result that is withheld."""
    session = contained.session(principal="bob", session="two")

    with pytest.raises(Refused):
        await session.call("recall", {"key": "rule"}, lambda _: POISON)
    with pytest.raises(Refused):
        await session.call("save", {"key": "copy", "value": POISON}, lambda _: "ok")
