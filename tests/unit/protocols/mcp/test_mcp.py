"""MCP messages are claimed however broken, read one way, and refused readably."""

import base64
import json
from dataclasses import replace

import pytest

from guard.core.errors import MessageError
from guard.core.policy import Action, Mode, Reason, Verdict
from guard.protocols.mcp.mcp import McpProtocol, endpoint_path, mirrored
from guard.protocols.refusals import Refusal
from tests.roads import JSON, SSE, http_request

MCP = McpProtocol()
JSON_TYPE = (JSON,)


def post(document, headers=JSON_TYPE, **more):
    """Return a POST of a document."""
    request = http_request(document, **more)
    return replace(request, headers=headers)


def rpc(method, ident=1, **params):
    """Return a JSON-RPC request, or a notification where the id is None."""
    message = {"jsonrpc": "2.0", "id": ident, "method": method, "params": params}
    return {key: value for key, value in message.items() if value is not None}


def refusal(action=Action.BLOCK):
    """Return a refusal by one rule."""
    reason = Reason("destination_external", "no-strangers", action)
    return Refusal("d1", Verdict(action, Mode.ENFORCE, (reason,), "digest"))


@pytest.mark.parametrize(
    ("sent", "tool", "arguments", "correlation"),
    [
        (rpc("tools/call", 1, name="t", arguments={"a": 1}), "t", {"a": 1}, "i:1"),
        (rpc("tools/call", "1", name="t"), "t", {}, "s:1"),
        # A resource URI is an argument like any other.
        (rpc("resources/read", uri="x:y", _meta={}), "resources/read", {"uri": "x:y"}, "i:1"),
        # Answers to the server's questions and its opaque state are no arguments of the tool.
        (rpc("tools/call", name="t", inputResponses={}, requestState="x"), "t", {}, "i:1"),
    ],
)
def test_a_tool_call_is_read_with_its_typed_id(sent, tool, arguments, correlation):
    """The ids 1 and "1" are different requests."""
    call = MCP.parse(post(sent)).calls[0]

    assert (call.tool, call.arguments, call.correlation) == (tool, arguments, correlation)


@pytest.mark.parametrize(
    "body",
    [
        b'{"\\u006asonrpc": "2.0", "id": 1, "method": "tools/call"}',
        b'{"METHOD": "tools/call", "Params": {}}',
        b'[{"jsonrpc": "2.0"}]',
        b'{"jsonrpc": ',
        b"\xff jsonrpc",
    ],
)
def test_whatever_looks_like_json_rpc_is_claimed(body):
    """Broken MCP must not become somebody else's request."""
    assert MCP.matches(post(body, headers=()))


@pytest.mark.parametrize(
    "document",
    [
        rpc("ping") | {"jsonrpc": "1.0"},
        rpc("ping") | {"more": 1},
        rpc("ping") | {"Method": "ping"},
        rpc("ping") | {"id": True},
        rpc("ping") | {"id": None},
        rpc("ping") | {"method": 7},
        rpc("ping") | {"params": []},
        rpc("ping") | {"result": {}},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "result": {}},
        [7],
    ],
    ids=str,
)
def test_what_is_no_message_is_refused(document):
    """Another server could take it for one."""
    with pytest.raises(MessageError):
        MCP.parse(post(document))


def test_a_session_id_in_meta_is_found_unless_messages_disagree():
    """A batch that names two sessions names none."""
    one = rpc("tools/call", 1, name="t", _meta={"session_id": "a"})
    two = rpc("tools/call", 2, name="t", _meta={"session_id": "b"})

    assert MCP.parse(post(one)).session_id == "a"
    assert MCP.parse(post([one, two])).session_id is None


def test_every_request_of_a_refused_batch_is_answered_and_no_notification_is():
    """A client must not wait for ever for a message that was never forwarded."""
    batch = [
        rpc("ping", 1),
        rpc("notifications/progress", None),
        rpc("tools/call", 2, name="t"),
        rpc("resources/read", 3, uri="x:y"),
    ]
    message = MCP.parse(post(batch))

    reply = json.loads(MCP.refuse(message, [refusal(), refusal(Action.ASK)]).body)

    assert [item["id"] for item in reply] == [1, 2, 3]
    assert ["error" in item for item in reply] == [True, False, True]


def test_results_are_found_by_id_and_requests_of_the_server_are_not_results():
    """Only a response ends a call."""
    found = MCP.results(
        [
            {"jsonrpc": "2.0", "id": 1, "result": {"content": []}},
            {"jsonrpc": "2.0", "id": "1", "error": {"code": 1}},
            {"jsonrpc": "2.0", "id": 2, "method": "elicitation/create", "params": {}},
            {"jsonrpc": "2.0", "method": "notifications/progress"},
            {"jsonrpc": "2.0", "id": True, "result": {}},
            "text",
        ]
    )

    assert [(r.correlation, r.is_error) for r in found] == [
        ("i:1", False),
        ("s:1", True),
        ("?:true", False),  # No request has it, so it is withheld.
    ]


VERSION = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


def modern(*headers, **params):
    """Return a tool call of revision 2026-07-28 with headers."""
    call = {"name": "t", "arguments": {"a": {"b": "x y"}, "n": 7, "f": True, "u": "ü"}}
    message = rpc("tools/call", 1, **(call | {"_meta": VERSION} | params))
    return post(message, (*JSON_TYPE, ("mcp-protocol-version", "2026-07-28"), *headers))


def test_a_stateless_call_with_headers_that_agree_is_read():
    """Method, name and arguments may be repeated, coded where they must be."""
    message = MCP.parse(
        modern(
            ("mcp-method", "tools/call"),
            ("mcp-name", "t"),
            ("mcp-param-b", "x y"),
            ("mcp-param-n", "7"),
            ("mcp-param-f", "true"),
            ("mcp-param-u", "=?base64?w7w=?="),
        )
    )

    assert [call.tool for call in message.calls] == ["t"]


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(("mcp-method", "ping"), id="mcp-method that differs"),
        pytest.param(("mcp-method", "Tools/Call"), id="mcp-method in another case"),
        pytest.param(("mcp-name", "other"), id="mcp-name that differs"),
        pytest.param(("mcp-name", "=?base64?eA==?="), id="mcp-name coded"),
        pytest.param(("mcp-name", "=?base64?dB==?="), id="mcp-name coded twofold"),
        pytest.param(("mcp-param-x", "secret"), id="mcp-param that is no argument"),
        pytest.param(("x-original-url", "/v1/customers/42"), id="x-original-url"),
        pytest.param(("x-rewrite-url", "/v1/customers/42"), id="x-rewrite-url"),
        pytest.param(("x-http-method-override", "DELETE"), id="x-http-method-override"),
        pytest.param(("x_original_url", "/v1/customers/42"), id="x_original_url"),
    ],
)
def test_a_header_that_says_something_else_is_refused(header):
    """A gateway that routes by header would send the call elsewhere."""
    with pytest.raises(MessageError) as caught:
        MCP.parse(modern(header))

    assert caught.value.code == "header_mismatch"
    assert b"-32020" in MCP.unreadable(caught.value, "d1").body


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(modern(("mcp-method", "tools/call"), ("mcp-method", "ping")), id="two"),
        pytest.param(modern(_meta={next(iter(VERSION)): "2025-11-25"}), id="two revisions"),
        pytest.param(
            post([rpc("ping"), rpc("ping", 2)], (*JSON_TYPE, ("mcp-method", "ping"))),
            id="above a batch",
        ),
    ],
)
def test_headers_that_cannot_agree_are_refused(request_):
    """A header twice, another revision in the body, one header above many messages."""
    with pytest.raises(MessageError):
        MCP.parse(request_)


def test_listening_for_resources_is_judged_and_listening_for_lists_is_not():
    """A resource URI is a destination of the agent's choosing."""
    plain = rpc("subscriptions/listen", notifications={"toolsListChanged": True})
    named = rpc("subscriptions/listen", notifications={"resourceSubscriptions": ["https://e.test"]})

    assert MCP.parse(post(plain)).calls == ()
    [call] = MCP.parse(post(named)).calls
    assert call.tool == "subscriptions/listen"
    assert "https://e.test" in json.dumps(call.arguments)


def test_http_and_sse_of_the_first_revision_is_mcp():
    """Its stream opens without any header of ours, and its session is in the URL."""
    opening = http_request(None, SSE, method="GET", target="/sse")
    target = "/messages/?session_id=s7"

    assert MCP.matches(opening)
    assert MCP.parse(opening).calls == ()
    assert MCP.parse(post(rpc("tools/call", name="t"), target=target)).session_id == "s7"
    assert MCP.session_of_event("endpoint", target) == "s7"
    assert MCP.session_of_event("message", target) is None


@pytest.mark.parametrize(
    "target",
    ["/mcp/", "//mcp", "/%6dcp", "/%256dcp", "/x/../mcp", "/./mcp", "/MCP", "/mcp;v=1", "/mcp?a=b"],
)
def test_an_endpoint_has_one_spelling(target):
    """What a lenient server takes for the same endpoint has the same pins and marks."""
    assert endpoint_path(target) == endpoint_path("/mcp") == "/mcp"


def test_a_header_follows_its_argument_when_another_is_added():
    """What a call is given besides changes no header; what it had under one name does."""
    before = {"query": "q", "group": "main", "some": ["a"]}
    after = {**before, "group": "main-untrusted", "some": ["a", "b"], "more": "x"}
    headers = (("mcp-param-group", "main"), ("mcp-param-query", "q"), ("x", "main"))
    [group, query, other] = mirrored(headers, [(before, after)])
    assert base64.b64decode(group[1][len("=?base64?") : -2]) == b"main-untrusted"
    assert (query, other) == headers[1:]
