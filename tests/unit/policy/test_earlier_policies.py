"""Policies as they were written before words of the language got other names."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from guard.cli import app
from guard.core.errors import InputError
from guard.core.policy import Action
from guard.policy import PolicyError, load_policies
from guard.policy.migrate import migrated

EARLIER = Path(__file__).parent / "earlier"
DIGESTS = {
    "agentdojo.yaml": "4a6e77f9599977d77ee135ee9cfc18e89d834f1c01238acbab054a78d2ace265",
    "coding_agent.yaml": "9b964b9b701e1c321d653eed75c7aec5ef3446b369dbae6419835955b64962c9",
    "customer_support.yaml": "0aac1e6da5476c2cddc6bbb46e0219b9d4041715f9a1f5594da06359383a5950",
    "default.yaml": "e8ba0d88c2ffccb3e727f93dac1acbeeff8567e0d2bed7626789c63e6b5e93d8",
    "fact-store.yaml": "e96e5a60631d9ee5527339a98ed1dcb3bb94c4519e24cf0631989ba0403c971b",
    "finance.yaml": "0dd6eef8c7c06f0e15391a963538a81a3d2a745f7a5b6012dc3909e4a773342b",
    "graphiti.yaml": "b598776f50611403ac0d9b476a64566427c23f75bfd5a9d71ea3c6a3b48f898e",
    "mail_assistant.yaml": "7eec88c31667a310b6db9fa0a177b5e2fd22643be6978681f159e2c2f196f38e",
    "mail_provenance_only.yaml": "c036ae558c7f705bcd5f5ebdd3aac01e033238c43dbca74d15613f4b400db9d9",
    "mcp-memory.yaml": "426257363142d45cfa27a99ccc17b4e1ca76f84c53b4091b007e4baabafcc6b2",
    "mem0.yaml": "5e8cdf6cf4c2c242eb721e27dbee38a611c6a3e7dcad3023c78775bb7892c781",
    "multi_agent.yaml": "bacc15c1e776d02a469b621a1110807932a1ae38d32c53bc87ff05287fa4c364",
    "observe.yaml": "d229e36f83f24fade8aedebbc253b76b7371bc9d3e7ed06bd34426513d7a3529",
    "research_agent.yaml": "9ea0625e2a7e9750302c5fd961240c547a62ab449c2188c91dc86d055443db3c",
    "vector-store.yaml": "f6ca9f0d5bceb36bc84d8e521245b09c4749adbcecc75ff80ddcd8f84ef542aa",
}
"""Names of the policies in audit lines, as first written; strict lacks a removed find."""
REMOVED = (
    "dangerous_command",
    "sensitive_path",
    "injection_text",
    "hidden_in_host",
    "nested_encoding",
)
"""Findings that `strict.yaml` names and the guard lacks."""
RULES = """version: 1
name: spelling
tools:
  - {{match: [mail_send], role: send, destinations: ["$.to"]}}
rules:
  - {{id: inside, type: destination, {filters}, effect: allow}}
"""


NAMES = sorted(path.name for path in EARLIER.iterdir() if path.stem != "strict")


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_of_an_earlier_guard_loads_and_keeps_its_digest(name):
    """Old spellings are accepted and mean what they meant; the new one of a status is the same."""
    assert load_policies([EARLIER / name]).digest == DIGESTS[name]


@pytest.mark.parametrize("detector", [None, "instruction_patterns"])
def test_a_policy_that_names_what_was_removed_fails_until_it_is_migrated(policy_from, detector):
    """The error names each removed part; the migration keeps comments and every other rule."""
    text = (EARLIER / "strict.yaml").read_text(encoding="utf-8")
    with pytest.raises(PolicyError, match="unknown detector `injection_text`") as raised:
        load_policies([EARLIER / "strict.yaml"])
    assert all(f"`{code}` is no longer searched for" in str(raised.value) for code in REMOVED)
    assert "guard detectors add" in str(raised.value)

    migrated_text, changes = migrated(text, detector)

    policy = policy_from(migrated_text)
    assert all(any(f"`{code}`" in line for line in changes) for code in REMOVED)
    assert all("weaker" in line or "`--detector" in line or detector for line in changes)
    assert [
        line for line in migrated_text.splitlines() if "# " not in line and line not in text
    ] == ([f"    finds: [{detector}]"] if detector else [])
    assert len(migrated_text.splitlines()) == len(text.splitlines()) + bool(detector)
    assert [rule.id for rule in policy.rules if rule.effect is Action.ALLOW] == ["allow-the-rest"]
    assert len(policy.index.result_rules) == (1 if detector else 0)
    assert migrated(migrated_text, detector) == (migrated_text, [])


def test_both_spellings_of_status_are_one_policy(load):
    """Rule and digest are the same."""
    filters = ("standing: [internal]", "status: [internal]")
    old, new = (load(RULES.format(filters=one)) for one in filters)

    assert old.rules == new.rules
    assert old.digest == new.digest


def test_the_command_rewrites_the_file_on_request_only(tmp_path):
    """It prints the result otherwise; a second run has nothing to do."""
    path, before = tmp_path / "strict.yaml", (EARLIER / "strict.yaml").read_bytes()
    path.write_bytes(before)
    command = ["policy", "migrate", str(path)]

    printed = CliRunner().invoke(app, command)
    assert path.read_bytes() == before
    written, again = (CliRunner().invoke(app, [*command, "--write"]) for _ in range(2))
    assert path.read_text(encoding="utf-8") in printed.stdout
    assert "the policy is weaker" in written.stderr
    assert "nothing to migrate" in again.stderr


@pytest.mark.parametrize(
    "rules",
    [
        (
            "  - # a well-known rule - of old\n    id: r\n    type: content\n    effect: ask\n"
            "    finds: [dangerous_command]\n"
        ),
        (
            "- id: r\n  type: content\n  effect: ask\n  finds:\n  - # an item - of old\n"
            "    dangerous_command\n  - secret_found\n"
        ),
        (
            "  - &a-b\n    id: r\n    type: content\n    effect: ask\n    finds: !!seq\n"
            "      - &c-d\n        sensitive_path\n      - !!str dangerous_command\n"
        ),
    ],
)
def test_an_item_is_removed_with_its_own_dash_only(load, rules):
    """Comments, anchors and tags between a dash and its item may hold other dashes."""
    kept = "  - {id: s, type: tool, effect: allow}\n"[0 if rules.startswith(" ") else 2 :]

    text, changes = migrated(f"version: 1\nname: dashes\nrules:\n{rules}{kept}", None)

    assert kept in text
    assert changes
    assert load(text).rules[-1].id == "s"


@pytest.mark.parametrize(
    "rules",
    [
        "- {id: a, type: &t result, detector: x, effect: ask}\n- {id: b, type: *t, effect: ask}\n",
        (
            "- {id: a, type: content, finds: &f [dangerous_command], effect: ask}\n"
            "- {id: b, type: content, finds: *f, effect: ask}\n"
        ),
        "- &r {id: a, type: content, finds: [dangerous_command], effect: ask}\n- *r\n",
    ],
)
def test_an_alias_beside_what_changes_is_refused(rules):
    """The node of an alias is where its anchor is: a change there never ends, or hits others."""
    with pytest.raises(InputError, match=r"line 5: alias `\*"):
        migrated(f"version: 1\nname: aliases\nrules:\n{rules}", "instruction_patterns")
