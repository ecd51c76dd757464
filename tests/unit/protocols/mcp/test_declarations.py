"""What is withheld of a listing is left out, and everything else stays as it came."""

import pytest

from guard.protocols.mcp.declarations import without
from guard.protocols.mcp.mcp import McpProtocol


def bad(source, entry):
    """Return whether an entry says that it is bad."""
    return "bad" in str(entry)


@pytest.mark.parametrize("member", ["tools", "prompts", "resources", "resourceTemplates"])
def test_an_entry_of_a_listing_is_left_out(member):
    """The others, and the rest of the result, stay; of an ``initialize``, the instructions."""
    entries = [{"name": "good"}, {"name": "x", "description": "bad"}]
    message = {"jsonrpc": "2.0", "id": 1, "result": {member: entries, "nextCursor": "c"}}
    first = {"id": 1, "result": {"instructions": "bad"}}

    assert without([message, first], bad) == [
        {**message, "result": {member: entries[:1], "nextCursor": "c"}},
        {"id": 1, "result": {"instructions": ""}},
    ]


def test_the_result_of_a_call_is_bare():
    """As most servers answer; one with a cursor is not, nor is a request of the server."""
    protocol = McpProtocol()
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "isError": False}}
    assert protocol.is_bare_result(answer)
    assert not protocol.is_bare_result({**answer, "method": "ping"})
    assert not protocol.is_bare_result({**answer, "result": {"content": [], "nextCursor": "c"}})
    assert not protocol.is_bare_result([answer])
