"""``guard policy import-openapi``: a proposal that loads, whatever the document does."""

import json
from pathlib import Path

from typer.testing import CliRunner

from guard import cli
from guard.core.model import Role
from guard.policy import load_policies

DEFAULT = Path(__file__).parents[3] / "policies" / "default.yaml"
HEAD = {"openapi": "3.1.0", "servers": [{"url": "https://api.example.com/v1/"}]}


def run(tmp_path, document, *options):
    """Import a document; return the result, and the policy that the proposal makes."""
    path = tmp_path / "api.yaml"
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli.app, ["policy", "import-openapi", str(path), *options])
    if result.exit_code != 0:
        return result, None
    proposal = tmp_path / "proposal.yaml"
    proposal.write_text(result.stdout, encoding="utf-8")
    return result, load_policies([DEFAULT, proposal])


def api(paths, **components):
    """Return a document."""
    return {**HEAD, "paths": paths, "components": components}


def body(schema, media="application/json"):
    """Return an operation with a body."""
    return {"requestBody": {"content": {media: {"schema": schema}}}}


def tools(policy, origin="api.example.com"):
    """Return the HTTP tools at an origin by name."""
    return {tool.tool: tool for tool in policy.http_tools.at("https", origin)}


def test_operations_become_tools_that_a_policy_can_use(tmp_path):
    """Names, URLs, bodies, repeated fields, roles and destinations are proposed."""
    email = {"type": "string", "format": "email"}
    _, policy = run(tmp_path, api({
        "/notes": {
            "get": {"operationId": "listNotes", "parameters": [
                {"name": "tag", "in": "query", "schema": {"type": "array"}},
            ]},
            "post": {"operationId": "create note!", "summary": "Make\na \x1b[2J note",
                     **body({"properties": {"text": {}}})},
        },
        "/notes/{note-id}/share": {"post": body(
            {"properties": {"to": {"type": "array"}}}, "application/x-www-form-urlencoded"
        )},
        "/invite": {"put": body({"properties": {"who": {"type": "array", "items": {
            "properties": {"e-mail": email}}}}}, "multipart/form-data; x=1")},
    }))  # fmt: skip

    found = tools(policy)
    assert {name: (t.body, t.repeat) for name, t in found.items()} == {
        "listNotes": ("none", {"tag"}),
        "create_note": ("json", frozenset()),
        "post_notes_note-id_share": ("form", {"to"}),
        "put_invite": ("multipart", {"who"}),
    }
    roles = {name: policy.mapping(name).role for name in found}
    assert roles == {
        "listNotes": Role.RETRIEVE,
        "create_note": Role.OTHER,
        "post_notes_note-id_share": Role.SEND,
        "put_invite": Role.SEND,
    }
    [query] = policy.mapping("put_invite").destinations
    assert query.text == "$.body.who[*]['e-mail']"


def test_a_document_that_multiplies_ends(tmp_path):
    """Schemas that name each other many times are cut off, not walked for ever."""
    schemas = {
        f"S{level}": {"allOf": [{"$ref": f"#/components/schemas/S{level + 1}"}] * 50}
        for level in range(8)
    }
    schemas["S8"] = {"properties": {"to": {}}}
    document = api({"/x": {"post": body({"$ref": "#/components/schemas/S0"})}}, schemas=schemas)
    result, policy = run(tmp_path, document)

    assert "too many fields" in result.stderr
    assert set(tools(policy)) == {"post_x"}
