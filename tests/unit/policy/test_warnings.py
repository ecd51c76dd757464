"""Warnings of policies: entries without an effect, changes without an action, idle selections."""

import pytest

from guard.policy.proposal import suggested_action
from lab.selection.live import POLICY as SELECTION_FILE

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


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tools": "send_emial"}, "`send_emial`; did you mean `send_email`?"),
        ({"tools": "send_email, find_mial"}, "`find_mial`; did you mean `find_mail`?"),
        ({"tools": "buy_*"}, "no mapped or pinned tool is called `buy_*`"),
        ({"role": "save"}, "no rule allows or asks about role `save`"),
        ({"domain": "'*.gmail.com'"}, "anybody can have a mailbox at `*.gmail.com`"),
        # A precaution beside a name that is there.
        ({}, None),
        ({"tools": "send_email, buy_*"}, None),
    ],
)
def test_an_entry_without_an_effect_is_named(warnings, changed, said):
    """One warning each, with what is near where it may be a slip; none where it may decide."""
    found = warnings(FIXED.format(**HARMLESS | changed))
    assert [said in one for one in found] == ([True] if said else [])


DIRECTORIES = """
version: 1
name: services
tools:
  - match: [people]
    role: retrieve
    {service}fields: [{{path: "$[*].iban", as: directory, writer: owner, {kinds}}}]
  - {{match: [pay], role: send, {bank}destinations: ["$.to"]}}
{rooms}
rules: [{{id: all, type: tool, roles: [retrieve, send], effect: allow}}]
"""
SERVED = {
    "service": "service: people\n    ",
    "kinds": "kinds: [handle]",
    "bank": "service: bank, ",
    "rooms": "",
}
UNNAMED = SERVED | {"service": "", "bank": ""}
ROOMS = """  - match: [rooms]
    role: retrieve
    fields: [{path: "$[*]", as: directory, writer: owner}]"""


@pytest.mark.parametrize(
    ("entries", "said", "times"),
    [
        (SERVED, "name the services that take them", 1),
        (SERVED | {"kinds": "kinds: [handle], for: [bank]"}, "", 0),
        (SERVED | {"kinds": "kinds: [phone]"}, "", 0),
        # One directory of no named service needs no name; two may be of two services.
        (UNNAMED, "", 0),
        (UNNAMED | {"rooms": ROOMS}, "write `service: NAME`", 2),
    ],
)
def test_a_directory_that_no_send_can_use_is_warned_of(warnings, entries, said, times):
    """Its author may think that it vouches for what another service is told."""
    found = warnings(DIRECTORIES.format(**entries))
    assert [said in one for one in found] == [True] * times


ACTIONS = """
version: 1
name: hints
tools:
  - {{match: [remove_user], role: {role}{action}}}
{reads}
rules:
{rules}
  - {{id: work, type: tool, effect: allow, mapped: true}}
"""
ACTION_RULE = "  - {id: asked, type: action, effect: ask}"
READS = "  - {match: [read_page], role: retrieve}"


@pytest.mark.parametrize(
    ("name", "annotations", "method", "action"),
    [
        ("change_password", {}, "", "change_credential"),
        ("update_user_password", {"readOnlyHint": True}, "", "change_credential"),
        ("deleteFile", {}, "", "delete"),
        ("tidy", {"destructiveHint": True}, "", "delete"),
        ("send_it", {"destructiveHint": True}, "", "delete"),
        ("get_it", {"destructiveHint": True}, "", "delete"),
        ("users", {}, "DELETE", "delete"),
        ("users", {}, "PATCH", "overwrite"),
        ("get_order", {}, "", None),
        ("list_payments", {"destructiveHint": False}, "", None),
    ],
)
def test_the_gravest_action_is_suggested(name, annotations, method, action):
    """By annotation, method and name; a hint that a tool only reads takes nothing back."""
    assert suggested_action(name, annotations, method) == action


@pytest.mark.parametrize(
    ("rules", "role", "action", "warned"),
    [
        (ACTION_RULE, "other", "", True),
        (ACTION_RULE, "other", ", action: delete", False),
        (ACTION_RULE, "retrieve", "", False),
        ("", "other", "", False),
    ],
)
def test_a_change_without_an_action_is_warned_about(warnings, rules, role, action, warned):
    """Only where a rule about actions exists, and the tool does not only read."""
    more = '  - {match: [do_buy], role: other, action: buy, object: ["$.x"]}\n' + READS
    found = warnings(ACTIONS.format(rules=rules, role=role, action=action, reads=more))
    assert any("remove_user" in one and "action: delete" in one for one in found) is warned


@pytest.mark.parametrize("reads", ["", READS])
def test_values_that_nothing_records_are_warned_about(warnings, reads):
    """Without a tool that reads, no value is ever tainted."""
    guarded = "\n  - {id: bait, type: provenance, of: guarded, rungs: [tainted], effect: ask}"
    action = ', action: delete, object: ["$.user"]'
    text = ACTIONS.format(rules=ACTION_RULE + guarded, role="other", action=action, reads=reads)
    assert sum("no tool has results" in one for one in warnings(text)) == (0 if reads else 2)


SELECTION = SELECTION_FILE.read_text(encoding="utf-8").replace('"$.query"', "$.query")
WHO = "authenticated_by: {principals: [curator], label: advisory}"
SEEDS = "seeds: {path: $.query, match: text}"
RANKED = (
    '        ranked:\n          items: "$.results[*]"\n          id: "$.record"\n'
    f"          {SEEDS}\n"
)
IDLE = {
    "label-alone": (WHO, "authenticated_by: {label: authenticated}", "`advisory`"),
    "default-label": (WHO, "authenticated_by: {principals: [curator]}", "`advisory`"),
    "no-source-of-it": (
        *(WHO, "authenticated_by: {sources: [tool_result], label: trusted}"),
        "no structure counts",
    ),
    "no-selector": ("      selector: pagerank\n", "", "without `selector`"),
    "nothing-ranked": (RANKED, "", "has `ranked`"),
}


@pytest.mark.parametrize(("before", "after", "said"), IDLE.values(), ids=IDLE)
def test_a_selection_under_which_nothing_can_vouch_is_warned_of(warnings, before, after, said):
    """With file and line; the same policy as it is shipped is not."""
    assert before in SELECTION
    assert any(said in one for one in warnings(SELECTION.replace(before, after)))
    assert warnings(SELECTION) == []


def test_seeds_are_the_stores_unless_a_read_has_its_own(load):
    """As the whole selection is per store."""
    without = SELECTION.replace(f"          {SEEDS}\n", "")
    moved = without.replace("      top_k: 5\n", f"      top_k: 5\n      {SEEDS}\n")
    texts = (SELECTION, moved, without)
    own, stores, neither = (load(text).selections["graph"].ranked[0].seeds for text in texts)

    assert list(own.find({"query": "q"})) == list(stores.find({"query": "q"})) != []
    assert neither is None
