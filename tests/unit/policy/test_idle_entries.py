"""Warnings about rules and mappings without an effect, and about internal domains of everybody."""

import pytest

from guard.policy import load_policies

FIXED = """
version: 1
name: idle
internal_domains: [{domain}]
tools:
  - {{match: [send_email], role: send, destinations: ['$.to']}}
  - {{match: [find_mail], role: retrieve}}
  - {{match: [save_note], role: {role}}}
rules:
  - {{id: reads, type: tool, effect: allow, roles: [retrieve, list, recall, other]}}
  - {{id: first, type: tool, effect: block, tools: [{tools}]}}
  - {{id: outside, type: destination, effect: ask, roles: [send], status: [external, missing]}}
  - {{id: second, type: destination, effect: {effect}, roles: [send], status: [{status}]}}
"""
HARMLESS = {
    "domain": "example.com",
    "role": "list",
    "tools": "send_email",
    "effect": "allow",
    "status": "internal",
}


def warnings(path, **changed):
    """Return what the policy with some changes is warned about."""
    path.write_text(FIXED.format(**HARMLESS | changed), encoding="utf-8")
    return [
        f"{problem.rule}: {problem.message}" for problem in load_policies([path]).source.warnings
    ]


def test_a_policy_whose_entries_all_count_has_no_warning(tmp_path):
    """The base of the cases below."""
    assert warnings(tmp_path / "p.yaml") == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tools": "send_emial"}, "`send_emial`; did you mean `send_email`?"),
        ({"tools": "send_email, find_mial"}, "`find_mial`; did you mean `find_mail`?"),
        ({"tools": "buy_*"}, "no mapped or pinned tool is called `buy_*`"),
        ({"role": "save"}, "no rule allows or asks about role `save`"),
        ({"domain": "'*.gmail.com'"}, "anybody can have a mailbox at `*.gmail.com`"),
        ({"effect": "ask", "status": "external"}, "second: `outside` is about the same calls"),
        ({"effect": "block", "status": "external, missing"}, "outside: `second` is about"),
    ],
)
def test_an_entry_without_an_effect_is_named(tmp_path, changed, said):
    """One warning each, with what is near where it may be a slip."""
    (warning,) = warnings(tmp_path / "p.yaml", **changed)

    assert said in warning


@pytest.mark.parametrize(
    "changed",
    [
        {"tools": "send_email, buy_*"},
        {"effect": "block", "status": "external"},
        {"effect": "ask", "status": "external, internal"},
    ],
)
def test_an_entry_that_may_decide_is_not(tmp_path, changed):
    """A precaution beside a name that is there, and rules about more or stricter."""
    assert warnings(tmp_path / "p.yaml", **changed) == []
