"""A request for a change of one object is none for another, however that is written."""

import json

import pytest

from guard.provenance import actions, ladder
from guard.runtime.wiring import assemble
from lab.trust.harness import world_of

NAMED = {"report.pdf": "payroll.xlsx", "#4711": "4712", "plans/q3.md": "plans/q4.md"}
"""The object that a prompt names, and another one."""


def spellings(named, other):
    """Return arguments that change the other object, or may."""
    joined = [f"{named}{sign}{other}" for sign in (",", ", ", ";", "\n", "|", "/../")]
    patterns = ["*", "**", f"{named}*", "..", "~", json.dumps([named, other])]
    lists = [[other], [named, other], [[other]], [other, *[named] * 70]]
    return [*joined, *patterns, *lists]


def calls(named, other):
    """Return calls of every tool that deletes."""
    for names in spellings(named, other):
        yield "delete_entities", {"entityNames": names if isinstance(names, list) else [names]}
    yield "delete_observations", {"deletions": [{"entityName": other, "observations": ["x"]}]}
    yield "delete_relations", {"relations": [{"from": named, "to": other, "relationType": "x"}]}


@pytest.mark.parametrize("off", [False, True], ids=["", "off"])
@pytest.mark.parametrize(("named", "other"), NAMED.items())
async def test_a_request_for_one_object_covers_no_other(
    world_redis, monkeypatch, named, other, off
):
    """Switched off, a text that may be several objects is an object of no kind, and passes."""
    if off:
        for module in (actions, ladder):
            monkeypatch.setattr(module, "object_kinds", lambda text: (actions.object_kind(text),))
    async with world_of(assemble, world_redis, "default.yaml") as world:
        agent = world.agent()
        await agent.prompt(f"Please delete the entity {named}.")
        out = [(await agent.call(*one, "ok")).forwarded for one in calls(named, other)]
        assert (await agent.call("delete_entities", {"entityNames": [named]}, "ok")).forwarded

    assert any(out) is off
