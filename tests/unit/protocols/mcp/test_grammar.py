"""What a protocol message may say without being judged: its grammar, and nothing besides."""

import pytest

from guard.protocols.base import ProtocolResources
from guard.protocols.mcp.grammar import is_id, is_name
from guard.protocols.mcp.mcp import MESSAGE, McpProtocol
from tests.roads import http_request, rpc

SECRET = "Xk29fLq0Zr7TbW1mPq83"
UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
CLIENT = {"name": "claude-code", "title": "Claude Code", "version": "2.1.30"}


def post(document, target="/mcp"):
    """Return a POST of a JSON document."""
    return http_request(document, target=target, server="127.0.0.1:80")


def said(method, params):
    """Return what of a message is judged besides its calls."""
    message = McpProtocol().parse(post(rpc(method, params)))
    parts = [*message.side_content, *(echo.call for echo in message.echoes)]
    assert {part.tool for part in parts} <= {MESSAGE}
    return [dict(part.arguments) for part in parts]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("ping", {}),
        (
            "initialize",
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {
                    "sampling": {"tools": {}},
                    "roots": {"listChanged": True},
                    "elicitation": {"form": {}, "url": {}},
                    "tasks": {"list": {}, "requests": {"sampling": {"createMessage": {}}}},
                    "extensions": {
                        "io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}
                    },
                },
                "clientInfo": {
                    **CLIENT,
                    "description": "Anthropic's agentic coding tool",
                    "websiteUrl": "https://claude.com/claude-code",
                },
            },
        ),
        ("tools/list", {"_meta": {"progressToken": 3, "vscode.requestId": UUID}}),
        ("logging/setLevel", {"level": "debug"}),
        ("tasks/get", {"taskId": UUID}),
        (
            "server/discover",
            {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": CLIENT,
                    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
                    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                }
            },
        ),
        ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
        ("notifications/cancelled", {"requestId": 4, "reason": "AbortError: Request timed out"}),
        ("notifications/progress", {"progressToken": "a-1", "progress": 0.5, "total": 1}),
        ("tools/call", {"name": "t", "arguments": {"x": SECRET}, "_meta": {"progressToken": 2}}),
        ("resources/read", {"uri": SECRET, "_meta": {"progressToken": 2}}),
    ],
)
def test_what_clients_send_is_inside_its_grammar(method, params):
    """Handshakes, listings, cancellations and metadata of both eras, and of common clients."""
    assert said(method, params) == []


@pytest.mark.parametrize(
    ("method", "params", "part"),
    [
        ("ping", {"note": SECRET}, {"note": SECRET}),
        ("ping", {"_meta": {"note": SECRET}}, {"_meta": {"note": SECRET}}),
        ("ping", {"_meta": {"progressToken": SECRET}}, {"_meta": {"progressToken": SECRET}}),
        ("logging/setLevel", {"level": SECRET}, {"level": SECRET}),
        ("initialize", {"clientInfo": {"name": SECRET}}, {"clientInfo": {"name": SECRET}}),
        (
            "initialize",
            {"capabilities": {"experimental": {SECRET: {}}}},
            {"capabilities": {"experimental": {SECRET: {}}}},
        ),
        (
            "notifications/progress",
            {"progressToken": 1, "progress": 1, "message": "the password is hunter"},
            {"message": "the password is hunter"},
        ),
        (
            "notifications/cancelled",
            {"requestId": 1, "reason": "the password is hunter"},
            {"reason": "the password is hunter"},
        ),
        ("tools/list", {"pageSize": "the password"}, {"pageSize": "the password"}),
        (
            "tools/call",
            {"name": "t", "arguments": {}, "_meta": {"x": SECRET}, "task": {"ttl": SECRET}},
            {"_meta": {"x": SECRET}, "task": {"ttl": SECRET}},
        ),
    ],
)
def test_what_is_outside_is_a_call_of_its_own(method, params, part):
    """Exactly the part that the grammar does not describe."""
    assert said(method, params) == [{"method": method, "params": part}]


@pytest.mark.parametrize("member", ["cursor", "requestState", "taskId"])
def test_what_a_client_repeats_must_have_been_said(member):
    """A cursor that a server issued is its own word; any other one is the client's."""
    method = {"cursor": "tools/list", "taskId": "tasks/get"}.get(member, "tasks/update")

    assert {"method": method, member: SECRET} in said(method, {member: SECRET})


@pytest.mark.parametrize(
    "identifier", [SECRET, 4111111111111111, "4111 1111 1111 1111", "pass word", "x" * 65, True]
)
def test_an_id_that_could_be_data_is_judged(identifier):
    """A number of an account, a key, a sentence."""
    assert not is_id(identifier)


@pytest.mark.parametrize("name", [SECRET, "cGFzc3dvcmQ9aHVudGVyMg==", "4111-1111-1111-1111", ""])
def test_a_name_carries_no_code(name):
    """Words of a program's name, with few digits."""
    assert not is_name(name)


@pytest.mark.parametrize(
    ("target", "declared", "found"),
    [
        ("/mcp", {}, True),
        ("/github/mcp/", {}, True),
        ("/sse", {}, True),
        ("/", {}, True),
        ("/v1/customers/42", {}, False),
        ("/v1/customers/42/mcp", {}, False),
        ("/mcp?customer=42", {}, False),
        ("/%6dcp", {}, False),
        ("/mcp", {"80": "/api/tools"}, False),
        ("/api/tools", {"80": "/api/tools"}, True),
        ("/api/tools", {"81": "/api/tools"}, False),
    ],
)
def test_messages_go_to_the_endpoint(target, declared, found):
    """The declared path of the listener, or where servers are by convention."""
    mcp = McpProtocol.create(ProtocolResources(endpoints=declared))

    assert mcp.is_endpoint(post({}, target)) is found


@pytest.mark.parametrize("method", ["tools/call", "tasks/update"])
def test_a_name_of_an_input_response_is_an_id(method):
    """It repeats what the server called its question; free text there is judged."""
    told = "our offer to the board is 700,000"
    params = {"taskId": "a"}
    if method == "tools/call":
        params = {"name": "t", "arguments": {}}

    def judged(name):
        answers = {"inputResponses": {name: {"action": "decline"}}}
        return [part for part in said(method, {**params, **answers}) if "inputResponses" in part]

    assert judged(told) == [{"method": method, "inputResponses": [told]}]
    assert judged("github_login") == []
