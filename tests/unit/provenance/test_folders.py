"""Answers for a directory: files below it, and no way out of it."""

import pytest

from guard.operations.approvals import Decided
from guard.provenance import ladder
from guard.provenance.approvals import Scope
from guard.provenance.questions import Answer
from guard.values.folders import KIND, above
from lab.trust.harness import OTHER, TOOLS

POLICY = """
version: 1
name: folders
internal_domains: [corp.example]
tools:
  - {match: [read_file, edit_file], role: retrieve}
  - {match: [write_file], role: other, action: overwrite, object: ["$.path"], body: ["$.content"]}
rules:
  - {id: outside, type: argument, tools: [read_file, edit_file], path: "$..['path','paths']",
     re2: '(?s).*', effect: ask, remember: directory}
  - {id: keys, type: argument, tools: [read_file], path: $.path, re2: '(?s).*[.]pem', effect: ask}
  - {id: rest, type: tool, mapped: true, effect: allow}
  - {id: unrequested, type: action, tools: [write_file], actions: [overwrite], effect: ask}
"""
FOLDER = "/data/ann/notes"
FILE = f"{FOLDER}/a.md"
FORMS = (
    "{0}/../x", "{0}/./x", "{0}//x", "{0}/a/../../x", "{0}/%2e%2e/x", "{0}%2f..%2fx", "{0}\\..\\x",
    "{0}/..\\x", "{0}/.. /x", "{0}/...", "{0}x/y", "{0}", "{0}/", "{1}/x", "/DATA/ann/notes/x",
    "/data/ann/Notes/x", "/data/ann/n\u043etes/x", "/data/ann/notes\u200b/x", "{0}/\uff0e\uff0e/x",
    "{0}/\u2025/x", "{0}\uff0f..\uff0fx", "{0}/*/x", "{0}/{{a,..}}/x", "{0}/$HOME/x", "{0}/\n/x",
    "{0}/a\0/x", "file://{0}/x", "/{0}/x", "~/notes/x", "{0}/`x`/y", "{0}/" + "x" * 200,
    "/x/../data/ann/notes/x", "/proc/self/root{0}/x", "/x\n{0}/y",
)  # fmt: skip
OTHER_CALLS = (
    {"path": f"{FOLDER}/k.pem"},
    {"paths": ["/etc/passwd"]},
    {"paths": [f"{FOLDER}/x"] * 40},
    {"tool": "edit_file"},
    {"principal": "bob"},
    {"listener": OTHER},
)
ESCAPES = [form.format(FOLDER, "/data/ann") for form in FORMS]


async def answered(world, tool, path, answer=Answer.DIRECTORY, scope=Scope.PRINCIPAL):
    """Ask, answer for the directory, and make the call."""
    agent, at = world.agent(), world.clock.now()
    asked = await agent.call(tool, {"path": path})
    assert asked.verdict == "ask"
    request = await world.operator.asked(asked.decision_id)
    grant = Decided(answer=answer, scope=scope).grant(request, at, "ann")
    await world.operator.approve(asked.decision_id, at, grant)
    assert (await agent.call(tool, {"path": path})).forwarded


async def verdict(world, tool, path, principal="alice", listener=TOOLS, **more):
    """Return the verdict on a call of a new session."""
    agent = world.agent(principal, f"s{world.number()}", listener)
    return (await agent.call(tool, {"path": path, **more})).verdict


@pytest.mark.parametrize("tool", ["read_file", "write_file"])
async def test_an_answer_covers_files_below_and_nothing_else(world, tool):
    """It is one principal's, one tool's and one server's, and no other rule's."""
    await answered(world, tool, FILE)
    for path in (f"{FOLDER}/b.md", f"{FOLDER}/deep/er/c.md", FILE):
        assert await verdict(world, tool, path) == "allow", path
    assert [path for path in ESCAPES if await verdict(world, tool, path) != "ask"] == []
    if tool == "read_file":
        for more in OTHER_CALLS:
            assert await verdict(world, **{"tool": tool, "path": FILE, **more}) == "ask", more


@pytest.mark.parametrize(("tool", "verb"), [("write_file", "touch"), ("read_file", "read")])
async def test_a_file_that_the_user_refuses_is_not_covered(world, tool, verb):
    """A later no to one file stands above an answer for its directory."""
    await answered(world, tool, FILE)
    await world.clock.advance(5)
    agent = world.agent("alice", f"s{world.number()}")
    await agent.prompt(f"Tidy up. Never {verb} {FOLDER}/b.md!")
    told = [await agent.call(tool, {"path": f"{FOLDER}/{name}"}) for name in ("b.md", "c.md")]
    assert [one.verdict for one in told] == ["ask", "allow"]
    # The list names the directory; without it the next call is asked about.
    [one] = await world.operator.remembered(world.clock.now())
    assert one.kind.endswith(KIND)
    assert (one.recipient, one.by, one.tool) == (FOLDER, "ann", tool)
    await world.operator.revoke_remembered(bytes.fromhex(one.mark))
    assert await verdict(world, tool, f"{FOLDER}/c.md") == "ask"


@pytest.mark.parametrize(
    "path", ["/x.md", "/data/x.md", "/data/ann/x.md", f"{FOLDER}/k.pem", *ESCAPES[:5]]
)
async def test_no_answer_is_offered_for_a_wide_directory_or_another_reason(world, path):
    """A home directory, a path with a step up, and a key are asked about each time."""
    agent = world.agent()
    asked = await world.operator.asked((await agent.call("read_file", {"path": path})).decision_id)
    assert not asked.calls[0].folders


async def test_without_the_one_reading_an_escape_passes(world, monkeypatch):
    """Switch-off: text that only begins with the directory would be let out of it."""
    monkeypatch.setattr(
        ladder,
        "above",
        lambda path, kind=KIND: above(FILE, kind) if path.startswith(FOLDER) else (),
    )
    monkeypatch.setattr("guard.provenance.lookups.above", ladder.above)
    await answered(world, "read_file", FILE)
    assert await verdict(world, "read_file", f"{FOLDER}/../x") == "allow"
