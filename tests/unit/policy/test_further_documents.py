"""Documents beside a policy: further words and grants, merges, hooks, manifests, OpenAPI."""

import json

import pytest
from ruamel.yaml import YAML

from guard.core.errors import GuardError, ModelError, PolicyError
from guard.core.labels import Channel
from guard.core.model import Destination, Role
from guard.policy.client_config import FILES, SIGN, hook_command, with_hooks
from guard.policy.detector_manifest import MANIFEST, read_manifest
from guard.policy.openapi import propose
from guard.policy.proposal import ListedTool, mapping_text
from guard.policy.yaml_loader import merged_yaml

BASE = """version: 1
name: base
tools:
  - {match: ["mail_*"], role: send, action: send, destinations: ["$.to"]}
  - {match: [people, other], role: retrieve}
rules:
  - {id: acts, type: action, actions: [send], effect: ask}
  - {id: allows, type: tool, effect: allow, roles: [retrieve]}
"""
FURTHER = """version: 1
name: further
established:
  - {to: ann@shop.test, tool: mail_send, principal: p, until: 2027-01-31}
  - {to: "https://shop.test/a", tool: mail_send, principal: p, until: 2027-01-31}
directories:
  - {tool: people, path: "$[*].mail", writer: owner, until: 2027-01-31}
  - {tool: other, path: "$[*].mail", until: 2027-01-31}
actions:
  listed: [{action: delete, tools: ["tmp_*"]}]
  words: {send: {en: [beam~]}}
"""


def test_further_files_add_words_grants_and_directories(load):
    """A directory without a writer vouches for nothing, and is warned about."""
    policy = load(BASE, FURTHER)
    ends = policy.destinations.established["p", "mail_send"]
    ann = Destination("mail", "ann@shop.test", "shop.test")

    assert [matches(ann) for matches, _ in ends] == [True, False]
    words = [one.needs.actions.words("beaming it to ann") for one in (policy, load(BASE))]
    assert words == [("send",), ()]
    assert [policy.needs.actions.lists("delete", one) for one in ("tmp_a", "a")] == [True, False]
    people, other = (policy.mapping(name).fields for name in ("people", "other"))
    assert ([one.channel for one in people], [*other]) == ([Channel.DIRECTORY], [])
    assert any("writer" in str(one) for one in policy.source.warnings)


def test_a_merge_keeps_what_the_author_wrote():
    """Lists are joined by name; other values stay as they are."""
    own = "a: 1\nservers:\n  - {name: x, tools: [p]}\ndeep: {b: {}}\nnone:\n"
    more = (
        "a: 2\nservers:\n  - {name: x, tools: [q], role: r}\n  - {name: y}\n"
        "deep: {b: {c: 1}}\nnone: {d: 1}\nleft: 1\n"
    )
    keys = ["a", "servers", "deep", "none", "absent"]

    def merged(**options):
        return YAML(typ="safe").load(merged_yaml(own, more, keys, **options))

    plain, extended = merged(), merged(extends=True)
    assert plain == {
        "a": 1,
        "servers": [{"name": "x", "tools": ["p"]}, {"name": "y"}],
        "deep": {"b": {"c": 1}},
        "none": {"d": 1},
    }
    assert extended["servers"][0] == {"name": "x", "tools": ["p", "q"], "role": "r"}
    for broken in ("- a", "a: [", "a: b: c"):
        with pytest.raises(GuardError, match="cannot be added to"):
            merged_yaml(broken, more, keys)


@pytest.mark.parametrize("client", FILES)
def test_hooks_replace_earlier_ones_of_the_guard_only(client):
    """Those of the user stay, and settings that are none are refused."""
    event = FILES[client].events[0]
    own = json.dumps({"model": "x", "hooks": {event: [{"command": "mine"}]}}).encode()
    once = with_hooks(client, own, hook_command(["guard", "hook"]))
    twice = json.loads(with_hooks(client, once, hook_command(["guard", "hook"])))

    assert json.loads(once) == twice
    assert twice["model"] == "x"
    assert twice["hooks"][event][0] == {"command": "mine"}
    assert [SIGN in json.dumps(one) for one in twice["hooks"][event]] == [False, True]
    assert all(json.dumps(twice["hooks"][one]).count(SIGN) == 1 for one in FILES[client].events)
    assert {*json.loads(with_hooks(client, b"", "x"))["hooks"]} == {*FILES[client].events}
    for broken in (b"{", b"[]", b'{"hooks": []}', b'{"hooks": {"%s": 1}}' % event.encode()):
        with pytest.raises(GuardError, match="is not a JSON object"):
            with_hooks(client, broken, "x")


@pytest.mark.parametrize("text", ["{", '{"a/b": {}}', "[]"])
def test_a_damaged_manifest_of_detectors_is_an_error(tmp_path, text):
    """A missing one names none."""
    assert read_manifest(tmp_path) == {}
    (tmp_path / MANIFEST).write_text(text, "utf-8")
    with pytest.raises(ModelError):
        read_manifest(tmp_path)


def api(paths, **more):
    """Return an OpenAPI document."""
    servers = [{"url": "https://{host}/v1", "variables": {"host": {"default": "x.test"}, "b": 1}}]
    return {"openapi": "3.1.0", "servers": servers, "paths": paths, **more}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "not an OpenAPI 3 document"),
        ({"openapi": "2.0"}, "not an OpenAPI 3 document"),
        ({"openapi": "3.0.1"}, "no `paths`"),
        ({"openapi": "3.0.1", "paths": {"/a": {"get": {}}}}, "server"),
        ({"openapi": "3.0.1", "paths": {}, "servers": [{"url": "x://y"}]}, "server"),
    ],
)
def test_a_document_that_is_no_openapi_is_refused(document, words):
    """With what is missing."""
    with pytest.raises(GuardError, match=words):
        propose(document)


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"$ref": "#/paths/~1a/post"}, "leads outside, nowhere or back"),
        ({"$ref": "https://other.test/x"}, "leads outside, nowhere or back"),
        ({"$ref": "#/nowhere/0"}, "leads outside, nowhere or back"),
        ({"requestBody": {"content": {"text/plain": {}}}}, "neither json"),
        (
            {"requestBody": {"content": {"application/json": {}, "text/xml": {}}}},
            "only its json body",
        ),
        ({"parameters": [{"name": "h", "in": "header"}, 1], "requestBody": {"content": {}}}, ""),
    ],
)
def test_what_an_operation_leaves_open_is_warned_about(operation, words):
    """References, bodies, servers of a path, and paths of one shape."""
    paths = {"/a": {"post": operation, "servers": []}, "/p/{x}": {"get": {}}, "/p/{y}": {"get": {}}}
    found = " ".join(propose(api(paths)).warnings)
    assert words in found
    assert "its own `servers`" in found
    assert "same shape" in found


@pytest.mark.parametrize("role", [None, Role.SEND, Role.OTHER])
def test_a_tool_is_mapped_as_its_definition_suggests(load, role):
    """The text loads beside a policy; without a file there is no policy."""
    schema = {"to": {"type": "string", "format": "email"}, "text": {"type": "string"}}
    tool = ListedTool("send_note", schema, digest="0" * 32)
    mapping, test = mapping_text("notes.test:443/mcp", tool, role)
    policy = load(f"{BASE}{mapping}")
    found = policy.mapping("send_note", "", "notes.test:443/mcp")
    assert found.role is (role or Role.SEND)
    assert ("block" in test) is (found.role is Role.SEND)
    with pytest.raises(PolicyError, match="no policy file"):
        load()
