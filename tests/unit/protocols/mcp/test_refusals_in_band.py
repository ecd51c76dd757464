"""What a client is told where its message was not judged: in the answer, where it reads."""

import json

import pytest

from guard.core.errors import MessageError
from guard.protocols.mcp.mcp import HEADER_MISMATCH, McpProtocol
from guard.protocols.refusals import UNREACHABLE, unanswered
from tests.roads import http_request, rpc

MCP = McpProtocol()
ID = "0123456789abcdef"


def request(body):
    """Return a POST with a body, which may be broken."""
    return http_request(body or None, host="tools.example:80", server="127.0.0.1:9001")


def refused(body, code="ambiguous_key", status=400):
    """Return the answer to a message that could not be read."""
    return MCP.unreadable(MessageError(code, "what is wrong", status=status), ID, request(body))


def call(identifier=7, method="tools/call"):
    """Return a request."""
    return rpc(method, {"name": "x"}, identifier)


def test_a_call_that_cannot_be_read_is_an_error_result_of_that_call():
    """Clients hand it to their model; with another status they wait, or end the session."""
    reply = refused(call("abc"))
    answer = json.loads(reply.body)

    assert (reply.status, answer["id"], answer["result"]["isError"]) == (200, "abc", True)
    assert answer["result"]["resultType"] == "complete"
    assert "structuredContent" not in answer["result"]
    guard = answer["result"]["_meta"]["guard"]
    assert (guard["code"], guard["decision_id"]) == ("ambiguous_key", ID)


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        [{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}}],
    ],
)
def test_what_has_no_answer_is_dropped_without_an_error(body):
    """A client takes another status for the end of its connection."""
    assert (refused(body).status, refused(body).body) == (202, b"")


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff",
        b"",
        b"[]",
        b'"text"',
        b"[" * 5000,
        call(True),
        call(None),
        call(1.5),
        call([]),
    ],
)
def test_without_an_id_that_can_be_made_out_the_status_says_it(body):
    """There is nothing to answer to."""
    reply = refused(body)
    document = json.loads(reply.body)
    answer = document[0] if isinstance(document, list) else document

    assert (reply.status, answer["id"]) == (400, None)


@pytest.mark.parametrize(
    ("code", "status"),
    [("bad_credential", 407), ("bad_http_method", 405), (HEADER_MISMATCH, 400)],
)
def test_what_is_about_the_connection_keeps_its_status(code, status):
    """A client must log in, use another method, or repeat its headers (2026-07-28)."""
    assert refused(call(), code, status).status == status


def test_a_server_that_gave_no_answer_may_have_carried_the_call_out():
    """The model must not take it for undone."""
    reply = MCP.unreadable(unanswered("no answer"), ID, request(call()))

    assert json.loads(reply.body)["result"]["_meta"]["guard"]["request"] == "unknown"


def test_open_requests_of_a_stream_that_ended_are_answered_each_in_its_way():
    """Ids keep their type; for one that no client takes nobody waits."""
    failure = MessageError(UNREACHABLE, "gone", status=502)
    told = MCP.lost({"i:1": True, "s:1": False, "?:null": True}, failure, ID)

    assert [one["id"] for one in told] == [1, "1"]
    assert told[0]["result"]["isError"]
    assert "error" in told[1]
