"""Policies proposed from tools: what is guessed, what is left open, and that the result holds."""

import itertools

import pytest
from ruamel.yaml import YAML

from guard.cli.running import shipped_detectors
from guard.core.calls import Claim
from guard.core.memory import MemoryClass
from guard.core.model import Identity, ToolCall
from guard.pipeline.classification import classify
from guard.policy.proposal import (
    ListedTool,
    ProposedServer,
    ask_text,
    guess,
    hooks_text,
    policy_text,
    suite_text,
    usable,
)
from guard.replay.policy_tests import Coverage, load_suite, run_suite

TEXT = {"type": "string"}
WHERE = "tools.test:443/mcp"
TOOLS = [
    ListedTool("send_email", {"to": TEXT, "cc": TEXT, "subject": TEXT, "body": TEXT}),
    ListedTool("post-message", {"channel_id": TEXT, "text": TEXT}),
    ListedTool("fetch", {"url": {"type": "string", "format": "uri"}, "max_length": TEXT}),
    ListedTool("createDraft", {"recipients": {"type": "array"}, "body": TEXT}),
    ListedTool("search_nodes", {"query": TEXT}),
    ListedTool("list_all_facts", {}),
    ListedTool("add_observations", {"observations": TEXT}),
    ListedTool("read_file", {"path": TEXT}),
    ListedTool("frobnicate", {"x": TEXT}),
    ListedTool("notify", {"text": TEXT}),
    ListedTool("get_report", {"it's odd": {"type": "string", "format": "email"}}),
    ListedTool("share_file", {"odd 'name": {"type": "string", "format": "email"}}),
]


def proposed(*tools):
    """Return what is proposed about one server that nobody knows."""
    return [ProposedServer("tools", WHERE, "npx tools", guesses=tuple(map(guess, tools)))]


VERBS = ("get", "read", "list", "view", "lookup", "run", "open", "create", "draft", "search", "x")
NOUNS = ("draft", "image", "dns", "query", "dm", "file", "memory_fact", "all_nodes", "note", "")
JOINS = ("", "_and_send", "_then_post")
ARGUMENTS = (
    {},
    {"src": TEXT},
    {"dsn": TEXT},
    {"name": TEXT},
    {"path": TEXT, "annotations": {"readOnlyHint": True}},
    {"user": TEXT},
    {"user_google_email": TEXT, "script": TEXT},
    {"to": TEXT, "body": TEXT},
    {"q": {"type": "string", "format": "uri"}},
    {"id": TEXT},
)


def test_no_name_no_schema_and_no_annotation_makes_an_allow(load):
    """A generator of names and schemas: nothing in a listing maps a tool."""
    made = [
        ListedTool(f"{verb}_{noun}{join}_{number}", arguments)
        for verb, noun, join in itertools.product(VERBS, NOUNS, JOINS)
        for number, arguments in enumerate(ARGUMENTS)
    ]
    policy = load(policy_text("mine", "corp.example", proposed(*made)))

    assert len(made) > 2000
    assert {policy.mapping(tool.name, upstream=WHERE) for tool in made} == {None}


def test_the_proposed_policy_is_valid_and_passes_its_own_tests(tmp_path):
    """Each test has the verdict for the reason that it names, and nothing is left untested."""
    servers = proposed(*TOOLS)
    policy, tests = tmp_path / "mine.yaml", tmp_path / "mine_test.yaml"
    policy.write_text(policy_text("mine", "corp.example", servers), "utf-8")
    tests.write_text(suite_text(servers), "utf-8")
    suite = load_suite(tests)
    outcomes = run_suite(suite, shipped_detectors(None), Coverage(suite.policy))

    assert len(outcomes) == len(TOOLS) + 1
    assert [one.complaints for one in outcomes if one.complaints] == []


@pytest.mark.parametrize("rules", [(), ("ask-unmapped",)])
def test_a_question_reaches_the_person_at_the_client(load, rules):
    """By the client's own form where it has one; else the request is held for an answer."""
    text = policy_text("mine", "corp.example", proposed(TOOLS[0]))
    loaded = load(text + hooks_text() + ask_text(rules))

    assert loaded.ask.hold > 0
    assert loaded.ask.elicits("anonymous", frozenset({"ask-unmapped"})) == ["form"] * len(rules)
    assert loaded.ask.elicits("anonymous", frozenset({"another"})) == []
    assert loaded.mapping("Read", "hook:agent", "hook:agent") is not None
    assert loaded.mapping("Read", "stdio:x", "stdio:x") is None


def test_a_name_cannot_write_the_policy():
    """A server chooses its tools' names; one that is no name is left out."""
    evil = 'x"]\n    role: other\n  - match: ["*'
    kept, odd = usable([ListedTool(evil, {}), ListedTool("ok", {}), ListedTool("ok", {})])

    assert [tool.name for tool in kept] == ["ok"]
    assert odd == [evil]
    argument = ListedTool("send", {'to"]\n    role: other #': TEXT})
    text = policy_text("p", "corp.example", proposed(argument))
    (server,) = YAML(typ="safe", pure=True).load(text)["servers"]
    assert server.keys() == {"name", "upstream", "pins"}


@pytest.mark.parametrize("name", ["add_memory", "remember", "create_entities", "storeFact"])
@pytest.mark.parametrize("with_profile", [False, True])
def test_a_server_that_seems_to_keep_memories_gets_a_store_and_the_gate(load, name, with_profile):
    """The gate restricts: the tool is unmapped, and asked about, as any other."""
    profiles = ("builtin:qdrant",) if with_profile else ()
    servers = [
        *proposed(ListedTool(name, {"value": TEXT}), ListedTool("recall_memories", {})),
        ProposedServer("known", "stdio:known", "uvx mcp-server-qdrant", profiles=profiles),
    ]
    policy = load(policy_text("mine", "corp.example", servers))
    reads = proposed(ListedTool("read_file", {"path": TEXT}), ListedTool("frobnicate", {}))
    assert load(policy_text("mine", "corp.example", reads)).memory is None

    call = ToolCall("c", Identity("p", "s"), name, {"value": "v"}, "mcp", 0.0, upstream=WHERE)
    found = classify(policy, call, Claim.LISTED)
    assert found.mapping is None
    write = found.memory_write
    assert (write.store, write.target, write.fallback) == ("tools", MemoryClass.L3, MemoryClass.L4)
    assert policy.memory.read("recall_memories").store == "tools"
    # The matrix of a profile stays in force where there is one.
    assert policy.memory.is_default is not with_profile
