"""Policies that build on those that ship with the guard: what is taken, and what wins."""

import pytest

from guard.core.errors import PolicyError
from guard.core.labels import Rung
from guard.core.model import Role
from guard.policy import load_policies
from guard.policy.compile import load_file
from guard.settings import BUILTIN, builtin_policies, policy_file

OFFICE = """
version: 1
name: mine
extends: builtin:office@2
internal_domains: [corp.example]
"""
FILES = """
servers:
  - name: files
    upstream: "stdio:files"
    profile: builtin:filesystem
    pins:
      read_file: "0123456789abcdef0123456789abcdef"
"""


def written(tmp_path, text, name="mine.yaml"):
    """Return a policy file with a text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def loaded(tmp_path, text):
    """Return the policy of a text."""
    return load_policies([written(tmp_path, text)])


def test_a_policy_extends_a_shipped_one(tmp_path):
    """Its rules and mappings hold; the name is the file's own."""
    policy = loaded(tmp_path, OFFICE)

    assert policy.name == "mine"
    assert policy.mapping("http.request").role is Role.SEND
    assert {"ask-tainted", "ask-unmapped", "ask-secrets"} <= {rule.id for rule in policy.rules}


def test_a_rule_of_the_same_id_wins_and_is_said(tmp_path):
    """One rule of that id is asked, the file's; whose place it takes is told."""
    text = (
        OFFICE
        + "rules:\n  - {id: ask-unknown, type: provenance, rungs: [unknown], effect: block}\n"
    )
    policy = loaded(tmp_path, text)
    (rule,) = [one for one in policy.rules if one.id == "ask-unknown"]

    assert rule.rungs == (Rung.UNKNOWN,)
    assert "builtin:office:" in str(policy.source.warnings[0])
    assert policy.source.warnings[0].line == 7


def test_a_profile_is_about_one_server_and_the_tools_that_were_pinned(tmp_path):
    """Neither another server's tool of that name nor one that came later inherits from it."""
    policy = loaded(tmp_path, OFFICE + FILES)

    assert policy.mapping("read_file", "stdio:files", "stdio:files/").role is Role.RETRIEVE
    assert policy.mapping("read_file", "stdio:impostor", "stdio:impostor/") is None
    assert policy.mapping("read_file") is None
    assert policy.mapping("write_file", "stdio:files", "stdio:files/") is None


def test_a_profile_brings_no_rule_that_allows(tmp_path):
    """What may pass is for the policy to say; the stores and what restricts come along."""
    text = OFFICE + FILES.replace("filesystem", "mcp-memory").replace(
        "read_file", "create_entities"
    )
    policy = loaded(tmp_path, text)

    assert "graph-memory" not in {rule.id for rule in policy.rules}
    assert policy.mapping("create_entities", "stdio:files", "stdio:files/").store == "graph"
    assert policy.memory is not None


def test_a_mapping_of_the_file_comes_before_the_profile(tmp_path):
    """What the operator writes wins."""
    more = "    tools:\n      - {match: [read_file], role: recall}\n"
    policy = loaded(tmp_path, OFFICE + FILES + more)

    assert policy.mapping("read_file", "stdio:files", "stdio:files/").role is Role.RECALL


def test_the_digest_knows_what_is_extended_and_which_tools_are_pinned(tmp_path):
    """A grant that was given under one does not hold under another."""
    texts = [OFFICE, OFFICE.replace("office@2", "default"), OFFICE + FILES]
    texts.append(OFFICE + FILES.replace("read_file", "read_text_file"))

    assert len({loaded(tmp_path, text).digest for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("builtin:office@7", "is at revision 2 here, not 7"),
        ("builtin:ofice", "did you mean `builtin:office`?"),
        ("./office.yaml", "must match"),
    ],
)
def test_what_cannot_be_extended_is_said_with_its_line(tmp_path, reference, expected):
    """Another revision, a slip of the pen, a file."""
    with pytest.raises(PolicyError) as caught:
        loaded(tmp_path, OFFICE.replace("builtin:office@2", reference))

    assert expected in str(caught.value)
    assert caught.value.problems[0].line == 4


def policy_file_of(name):
    """Return what a command line has for a shipped policy."""
    return type(policy_file(builtin_policies()[name]))(BUILTIN + name)


def test_office_has_the_rules_of_default():
    """What one of them learns the other must."""
    rules = {
        name: {rule.id: rule for rule in load_file(policy_file_of(name)).rules}
        for name in ("office", "default")
    }
    differing = {
        name
        for name in rules["office"] | rules["default"]
        if rules["office"].get(name) != rules["default"].get(name)
    }

    assert differing == {"ask-secrets", "ask-redefined", "allow-nobody"}


def test_two_memories_may_have_a_tool_of_one_name(tmp_path):
    """Each server's write is judged by what its own profile says it writes."""
    text = OFFICE + "servers:\n"
    for name in ("mem0", "graphiti"):
        text += f'  - {{name: {name}, upstream: "stdio:{name}", profile: "builtin:{name}"}}\n'
    policy = loaded(tmp_path, text)
    writes = {
        name: policy.memory.write(
            "add_memory", store=policy.mapping("add_memory", upstream=f"stdio:{name}").store
        )
        for name in ("mem0", "graphiti")
    }

    assert {name: write.store for name, write in writes.items()} == {
        "mem0": "mem0",
        "graphiti": "graphiti",
    }
