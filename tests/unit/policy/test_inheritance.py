"""Policies that build on those that ship with the guard: what is taken, and what wins."""

from pathlib import Path

import pytest

from guard.core.errors import PolicyError
from guard.core.labels import Rung
from guard.core.model import Role
from guard.policy.inheritance import load_file
from guard.settings import BUILTIN

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
AT = ("stdio:files", "stdio:files/")


def test_a_policy_extends_a_shipped_one_and_its_own_rules_win(load):
    """Its rules and mappings hold; of one id the file's rule is asked, and that is told."""
    own = "rules:\n  - {id: ask-unknown, type: provenance, rungs: [unknown], effect: block}\n"
    policy = load(OFFICE + own)
    (rule,) = [one for one in policy.rules if one.id == "ask-unknown"]

    assert (policy.name, rule.rungs) == ("mine", (Rung.UNKNOWN,))
    assert policy.mapping("http.request").role is Role.SEND
    assert {"ask-tainted", "ask-unmapped", "ask-secrets"} <= {rule.id for rule in policy.rules}
    assert "builtin:office:" in str(policy.source.warnings[0])
    assert policy.source.warnings[0].line == 7


def test_a_profile_is_about_one_server_and_the_tools_that_were_pinned(load):
    """Neither another server's tool of that name nor one that came later inherits from it."""
    policy = load(OFFICE + FILES)

    assert policy.mapping("read_file", *AT).role is Role.RETRIEVE
    for tool, *at in (
        ("read_file", "stdio:impostor", "stdio:impostor/"),
        ("read_file",),
        ("write_file", *AT),
    ):
        assert policy.mapping(tool, *at) is None
    # What the operator writes comes before the profile.
    more = "    tools:\n      - {match: [read_file], role: recall}\n"
    assert load(OFFICE + FILES + more).mapping("read_file", *AT).role is Role.RECALL


def test_a_profile_brings_no_rule_that_allows(load):
    """What may pass is for the policy to say; the stores and what restricts come along."""
    files = FILES.replace("filesystem", "mcp-memory").replace("read_file", "create_entities")
    policy = load(OFFICE + files)

    assert "graph-memory" not in {rule.id for rule in policy.rules}
    assert (policy.mapping("create_entities", *AT).store, policy.memory is None) == ("graph", False)


def test_the_digest_knows_what_is_extended_and_which_tools_are_pinned(load):
    """A grant that was given under one does not hold under another."""
    texts = [OFFICE, OFFICE.replace("office@2", "default"), OFFICE + FILES]
    texts.append(OFFICE + FILES.replace("read_file", "read_text_file"))

    assert len({load(text).digest for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("builtin:office@7", "is at revision 2 here, not 7"),
        ("builtin:ofice", "did you mean `builtin:office`?"),
        ("./office.yaml", "must match"),
    ],
)
def test_what_cannot_be_extended_is_said_with_its_line(load, reference, expected):
    """Another revision, a slip of the pen, a file."""
    with pytest.raises(PolicyError) as caught:
        load(OFFICE.replace("builtin:office@2", reference))

    assert expected in str(caught.value)
    assert caught.value.problems[0].line == 4


def test_office_has_the_rules_of_default():
    """What one of them learns the other must."""
    rules = [load_file(Path(BUILTIN + name)).rules for name in ("office", "default")]
    office, default = ({(rule.id, repr(rule)) for rule in some} for some in rules)

    assert {name for name, _ in office ^ default} == {
        "ask-secrets",
        "ask-redefined",
        "allow-nobody",
    }


def test_two_memories_may_have_a_tool_of_one_name(load):
    """Each server's write is judged by what its own profile says it writes."""
    names = ("mem0", "graphiti")
    entry = '  - {{name: {0}, upstream: "stdio:{0}", profile: "builtin:{0}"}}\n'
    policy = load(OFFICE + "servers:\n" + "".join(map(entry.format, names)))
    for name in names:
        store = policy.mapping("add_memory", upstream=f"stdio:{name}").store
        assert policy.memory.write("add_memory", store=store).store == name
