"""Incidents on the pages and by the API: opened, contained, repaired, undone, by whom it may be."""

import re

import pytest

from guard.console.resources import answered, local_api
from guard.console.routes import openapi
from guard.operations.deployment import Deployment
from guard.operations.incidents import IncidentOperator
from guard.provenance.seal import Seal
from guard.telemetry.audit_log import NoAuditLog
from tests.guards import KEY
from tests.unit.console.conftest import NOW, events
from tests.unit.extensions.propagation.test_incidents import HONEST, spread
from tests.unit.provenance.agents import agent, guard, policy

__all__ = ["agent", "guard", "policy"]


HOSTILE = "<script>xss()</script>"


@pytest.fixture
def sections():
    """The guard keeps the propagation graph, and what saves said."""
    return "propagation: {events: 1000, versions: 100}\n"


async def _opened(client, **form):
    answer = await client.post("/incidents", data={"tenant": "default", **form})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def _contained(client, agent):
    """Have a good version overwritten by poison, and contain it; return the incident's page."""
    await agent.in_session("early").call("save", {"key": "rule", "value": HONEST}, "ok")
    await spread(agent)
    await agent.call("save", {"key": "html", "value": f"{HOSTILE} to drop@evil.test"}, "ok")
    path = await _opened(client, value="drop@evil.test")
    await client.post(path, data={"act": "contain"})
    return path


async def _restorable(client, path):
    """Return the mark of the item that has a good version, and the node of that."""
    found = (await client.get(f"/api{path}/repair")).json()["proposals"]
    [one] = [one for one in found if one["action"] == "restore"]
    return one["item"], one["version"]


@pytest.mark.parametrize(
    "form",
    [
        {"pick": "00" * 8},
        {"server": "http://127.0.0.1:9/mcp"},
        {"item": "00" * 8},
    ],
    ids=["a text that nobody proposed", "a listener of somebody else", "another item"],
)
async def test_a_repair_writes_only_what_is_proposed_and_where_the_operator_said(
    console, agent, form
):
    """Neither the text nor the place is the browser's to choose."""
    async with console.as_("approver") as client:
        path = await _contained(client, agent)
        item, version = await _restorable(client, path)
        asked = {"act": "repair", "item": item, "pick": version, **form}
        answer = await client.post(path, data=asked)

    assert answer.status_code == 409
    assert console.writes.done == []


async def test_what_gives_back_waits_for_a_second_person_where_the_policy_says_so(
    console, agent, store
):
    """One contains; undo and repair are done by nobody alone, nor by the printed link."""
    console.writes.two = True
    operator = IncidentOperator(store, Seal(KEY))
    async with console.as_("approver") as pat, console.as_("approver", name="ann") as ann:
        path = await _contained(pat, agent)
        held = await operator.contained()
        item, version = await _restorable(pat, path)
        first = await pat.post(f"/api{path}", json={"act": "repair", "item": item, "pick": version})
        alone = await pat.post(f"/api{path}/second", json={"id": first.json()["wanted"]})
        before = list(console.writes.done)
        done = await ann.post(f"/api{path}/second", json={"id": first.json()["wanted"]})
        await pat.post(path, data={"act": "undo", "step": "1"})
        still = await operator.contained()
        page = (await ann.get(path)).text
        [wanted] = re.findall(r'name="id" value="([0-9a-f]+)"', page)
        mine = await pat.post(f"{path}/second", data={"id": wanted})
        other = await ann.post(f"{path}/second", data={"id": wanted})
        twice = await ann.post(f"{path}/second", data={"id": wanted})
        freed = await operator.contained()

    assert (first.status_code, alone.status_code, before) == (202, 400, [])
    assert (done.json()["outcome"], len(console.writes.done)) == ("written", 1)
    assert (len(held) >= 2, still) == (True, held)
    assert "pat wants to undo step 1" in page
    assert HOSTILE not in page
    assert (mine.status_code, other.status_code, twice.status_code) == (400, 303, 409)
    assert freed == {}
    steps = (await operator.incident(path.rpartition("/")[2])).steps
    assert {one.by for one in steps} == {"pat", "pat and ann"}
    lines = events(console, "guard.incident")
    assert [one["by"] for one in lines if one.get("wanted")] == ["pat", "pat"]
    assert {one["first"] for one in lines if one["by"] == "ann"} == {"pat"}


@pytest.fixture
def pages(store):
    """The operations of a command without a console."""

    async def tenants():
        return ["default"]

    return local_api(Deployment(store, Seal(KEY), NoAuditLog(), lambda: NOW, tenants), None, ())


def test_a_command_without_a_console_has_the_same_operations(console, pages):
    """Neither more nor other bodies than the console's own document says."""
    local, known = openapi(pages)["paths"], openapi(console.console.pages)["paths"]

    assert {path: known.get(path) for path in local} == local


async def test_a_command_without_a_console_holds_to_two_people(console, agent, store, pages):
    """The incident itself says what the policy was; containing is done at once all the same."""
    operator = IncidentOperator(store, Seal(KEY))
    answers = []
    for console.writes.two in (True, False):
        async with console.as_("approver") as pat:
            path = await _contained(pat, agent)
        undo = {"act": "undo", "step": 1}
        answers.append(await answered(pages, "POST", f"/api{path}", {}, undo))
        assert bool(await operator.contained()) is console.writes.two
        if console.writes.two:
            again = await answered(pages, "POST", f"/api{path}", {}, {"act": "contain"})
            assert again.status_code == 200
            async with console.as_("approver") as pat, console.as_("approver", name="ann") as ann:
                first = await pat.post(f"/api{path}", json=undo)
                id_ = {"id": first.json()["wanted"]}
                assert (await ann.post(f"/api{path}/second", json=id_)).status_code == 200

    assert [one.status_code for one in answers] == [400, 200]
    assert "two people" in answers[0].json()["error"]


async def test_a_value_is_traced_from_the_text_that_named_it_to_every_save(console, agent):
    """Each event leads to its own page; the value is in no URL."""
    await spread(agent)
    async with console.as_("viewer") as client:
        page = (await client.post("/lineage", data={"value": "drop@evil.test"})).text
        nodes = set(re.findall(r'href="(/lineage/default/[0-9a-f]+)"', page))
        each = [(await client.get(path)).status_code for path in nodes]

    assert "read in untrusted text" in page
    assert page.count("saved in facts") >= 2
    assert (len(nodes), set(each)) == (2, {200})
