"""After an upgrade action rules count and do not ask; every other rule is enforced."""

from dataclasses import replace

import pytest

from guard.pipeline.trial import ACTION_FACT
from guard.policy import load_policies
from guard.store.action_trial import SECONDS, trial_end
from tests.guards import guard_on
from tests.unit.provenance.agents import Agent

POLICY = """
version: 1
name: trial
tools:
  - {match: [mail], role: send, action: send, destinations: ["$.to"]}
  - {match: [remove], role: other, action: delete, object: ["$.name"]}
  - {match: [wipe], role: other, action: delete, object: ["$.name"]}
rules:
  - {id: ask, type: provenance, roles: [send], rungs: [unknown, tainted], effect: ask}
  - {id: acts, type: action, effect: EFFECT}
  - {id: kept, type: tool, tools: [wipe], effect: block}
  - {id: ok, type: tool, tools: [remove, mail], effect: allow}
"""
CALLS = {
    "remove": {"name": "a.txt"},
    "wipe": {"name": "a.txt"},
    "mail": {"to": "pat@partner.test"},
    "other": {},
}


@pytest.mark.parametrize("effect", ["ask", "block"])
async def test_action_rules_on_trial_only_count(tmp_path, store, effect):
    """The verdict is that of the policy without them, until the trial ends."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("EFFECT", effect), encoding="utf-8")
    agent = Agent(guard_on(store, load_policies([path])))
    path.write_text(
        "\n".join(line for line in POLICY.splitlines() if "type: action" not in line),
        encoding="utf-8",
    )
    bare = Agent(guard_on(store, load_policies([path]))).as_principal("bob")
    await agent.say("Tidy up.")
    agent.guard.action_trial_end = agent.at + 10

    for tool, arguments in CALLS.items():
        _, verdict = await agent.ask(tool, arguments)
        _, without = await bare.ask(tool, arguments)
        assert verdict.action is without.action
        assert (ACTION_FACT in verdict.facts) is (tool == "remove" or (
            tool == "mail" and effect == "block"
        ))  # fmt: skip
    _, verdict = await replace(agent, at=agent.at + 11).ask("remove", CALLS["remove"])
    assert verdict.action.label == effect


@pytest.mark.parametrize(
    ("ran_before", "note", "seconds", "end"),
    [
        (False, None, SECONDS, 0.0),
        (True, None, SECONDS, 1000.0 + SECONDS),
        (True, None, 0, 0.0),
        (True, "1005\n", SECONDS, 1005.0),
        (True, "1005\n", 0, 0.0),
        (True, "900\n", SECONDS, 0.0),
        (True, "0\n", SECONDS, 0.0),
        (True, "1e12\n", SECONDS, 0.0),
        (True, "nan\n", SECONDS, 0.0),
        (True, "soon\n", SECONDS, 0.0),
    ],
)
def test_a_trial_runs_once_and_only_after_an_upgrade(tmp_path, ran_before, note, seconds, end):
    """A later start finds the same end; a note that nobody could have written counts as none."""
    key = tmp_path / "label.key"
    if ran_before:
        (tmp_path / "label.key.redis-birth").write_text("ab 1")
    if note is not None:
        (tmp_path / "label.key.redis-actions").write_text(note)
    assert trial_end(key, "redis", 1000.0, seconds=seconds) == end
    (tmp_path / "label.key.redis-birth").write_text("ab 1")
    assert trial_end(key, "redis", 1000.0, seconds=seconds) == end
    assert trial_end(key, "redis", max(end, 1000.0) + 1, seconds=seconds) == 0.0


def test_without_a_note_that_can_be_kept_action_rules_are_enforced(tmp_path):
    """Else every start would begin another trial."""
    assert trial_end(tmp_path / "missing" / "label.key", "redis", 1000.0) == 0.0
