"""Messages between agents are sends to where they go; what comes back is a result."""

from dataclasses import replace

import pytest

from guard.core.errors import MessageError
from guard.protocols.a2a import MESSAGE, PUSH, TASK
from guard.protocols.base import discover_protocols
from tests import roads
from tests.roads import http_request

PROTOCOLS = discover_protocols()
A2A = next(p for p in PROTOCOLS if p.name == "a2a")
TEXT = {"message": {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}


def request(document, *headers):
    """Return a POST of JSON."""
    sent = http_request(document, scheme="https", host="agents.test:443", target="/a2a")
    return replace(sent, headers=headers or sent.headers)


def rpc(method, params=TEXT, **members):
    """Return a JSON-RPC request."""
    return {**roads.rpc(method, params), **members}


def claimants(sent):
    """Return who claims a request."""
    return [p.name for p in PROTOCOLS if not p.is_fallback and not p.model_api and p.matches(sent)]


@pytest.mark.parametrize(
    ("method", "tool"),
    [
        ("message/send", MESSAGE),
        ("message/stream", MESSAGE),
        ("SendMessage", MESSAGE),
        ("tasks/pushNotificationConfig/set", PUSH),
        ("tasks/get", TASK),
        ("tasks/resubscribe", TASK),
        ("GetTask", TASK),
    ],
)
def test_a_request_is_one_call_to_the_host_it_goes_to(method, tool):
    """With everything it says: text, data and files."""
    sent = request(rpc(method, {"id": "t", **TEXT}))

    (call,) = A2A.parse(sent).calls

    assert claimants(sent) == ["a2a"]
    assert (call.tool, call.correlation) == (tool, "i:1")
    assert call.arguments["url"] == "https://agents.test:443/a2a"
    assert call.arguments["params"]["message"] == TEXT["message"]


@pytest.mark.parametrize(
    ("sent", "who"),
    [
        (request(rpc("Message/Send")), ["mcp"]),
        (request([rpc("message/send")]), ["mcp"]),
        (request(rpc("tasks/get", {"taskId": "t"})), ["mcp"]),
        (request(rpc("tools/call", {"name": "x"})), ["mcp"]),
        (request(rpc("message/send"), ("mcp-session-id", "1")), ["a2a", "mcp"]),
        (request(b'{"jsonrpc":"2.0","method":"message/send","method":"ping"}'), ["mcp"]),
    ],
)
def test_what_is_not_exactly_a2a_is_mcp_or_two_things(sent, who):
    """And both of these are refused: the method is unknown, or there are two claimants."""
    assert sorted(claimants(sent)) == who


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize(
    ("document", "is_another"),
    [
        (rpc("eth_getBalance", ["0x10", "latest"]), True),
        (rpc("sum", []), True),
        (rpc("sum", {"a": 1}), False),
        (rpc("tools/call", [{"name": "x"}]), False),
        (rpc("sum", [1], Params={"name": "x"}), False),
        ([rpc("sum", [1])], False),
        (b'{"jsonrpc":"2.0","id":1,"method":"sum","params":[1],"params":{}}', False),
    ],
)
def test_params_in_a_list_are_of_another_protocol_than_mcp(document, is_another, chosen):
    """JSON-RPC 2.0 allows it and MCP does not; at an operator's own server it stays broken MCP."""
    sent = replace(request(document), chosen=chosen)

    assert claimants(sent) == ([] if is_another and chosen else ["mcp"])


@pytest.mark.parametrize(
    "sent",
    [
        request({"jsonrpc": "2.0", "method": "message/send", "params": TEXT}),
        request(rpc("message/send", {"Message": {}})),
        request(rpc("message/send", []), ("content-type", "application/json")),
        request(rpc("message/send"), ("content-type", "text/plain")),
        request(rpc("message/send"), ("content-type", "application/json; charset=utf-16")),
        request(rpc("message/send", extra=1)),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(sent):
    """As everywhere."""
    with pytest.raises(MessageError):
        A2A.parse(sent)


def test_answers_are_results_and_every_update_of_a_stream_is_text_that_is_read():
    """The first ends the call; all of them have one id."""
    update = {"jsonrpc": "2.0", "id": 1, "result": {"kind": "status-update", "status": {}}}

    (result,) = A2A.results(update)
    (told,) = A2A.declarations(update)

    assert (result.correlation, result.is_error) == ("i:1", False)
    assert (told.source, told.is_listing) == (MESSAGE, False)
    assert A2A.results({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}})[0].is_error
    assert A2A.results("text") == A2A.declarations([]) == ()
