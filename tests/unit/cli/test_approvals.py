"""``guard approvals list | revoke | show | deny``, on a real Redis."""

import time

import pytest

POLICY = """
version: 1
name: office
tools:
  - {match: [send], role: send, destinations: ["$.to"], body: ["$.body"]}
rules:
  - {id: ask, type: provenance, roles: [send], rungs: [claimed, unknown, tainted], effect: ask}
  - {id: ok, type: provenance, roles: [send], rungs: [prompted, established], effect: allow}
"""


FIGURES = {"to": "drop@evil.test", "body": "figures"}


@pytest.fixture
def sends(played):
    """Send once to whom the user named, and once to a stranger; return the stranger's decision."""

    async def deed(agent):
        await agent.say("Send the figures to pat@partner.test.")
        assert (await agent.call("send", {**FIGURES, "to": "pat@partner.test"})).action.label == (
            "allow"
        )
        stranger, verdict = await agent.ask("send", FIGURES)
        assert verdict.action.label == "ask"
        return stranger.call.id

    # What waits for an answer does so for an hour of the machine's time.
    return played(POLICY, deed, at=time.time())


def test_an_established_receiver_is_listed_and_revoked(run, sends):
    """Who was sent to because the user named it can be taken away by its mark."""
    listed = run("approvals", "list")
    assert listed.exit_code == 0, listed.output
    waiting = [one for one in listed.stdout.splitlines() if one.startswith(sends)]
    assert "drop@evil.test" in waiting[0]
    assert "waits until" in waiting[0]
    [line] = run("grants", "list").stdout.splitlines()
    for part in ("alice", "pat@partner.test", "principal until", "the user's prompt", "last use"):
        assert part in line

    assert run("grants", "revoke", line.split()[0]).stdout.strip() == "revoked"
    assert "pat@partner.test" not in run("grants", "list").stdout
    assert "no answer" in run("grants", "revoke", line.split()[0]).stdout


def test_a_call_that_waits_is_shown_and_denied(run, sends):
    """Its receiver and what would leave; once denied it can no longer be approved."""
    shown = run("approvals", "show", sends)
    assert shown.exit_code == 0, shown.output
    assert "drop@evil.test" in shown.stdout

    assert "never, as far as is on record" in shown.stdout
    assert run("approvals", "deny", sends).stdout.strip() == "denied"
    assert run("approvals", "grant", sends).exit_code == 1


def test_what_is_to_be_remembered_is_shown_and_confirmed(run, sends):
    """Nothing is granted before the person has seen whom untrusted text may have named."""
    asked = run("approvals", "grant", sends, "--remember", "--until", "30d")
    assert asked.exit_code == 1
    assert "drop@evil.test" in asked.stdout
    assert "remember these receivers (alice, principal, until" in asked.stdout
    assert "waits until" in run("approvals", "list").stdout
    assert run("approvals", "grant", sends, "--remember", "--until", "30 moons").exit_code == 3
    assert run("approvals", "grant", sends, "--until", "30d").exit_code == 3
