"""Where a result comes from: URL hosts and senders."""

import json

import pytest

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.jsonpath import compile_path
from guard.core.mappings import MessageFields, MessageReading, ToolMapping
from guard.core.model import Identity, Integrity, Role, ToolCall
from guard.provenance.result_documents import sources_of


def _result(arguments, content="text", mapping=None):
    call = ToolCall("id", Identity("p", "s"), "fetch", arguments, "mcp", 0.0)
    return ToolResult(untraced(ClassifiedCall(call, Role.RETRIEVE, mapping)), content, 0.0)


def _mapping(**fields):
    return ToolMapping("", lambda _: True, Role.RETRIEVE, **fields)


@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ({"url": "https://evil.example/page?q=1"}, {"evil.example"}),
        ({"urls": ["https://a.example/x", "https://b.example/y"]}, {"a.example", "b.example"}),
        ({"query": "quarterly report"}, set()),
    ],
)
def test_a_page_comes_from_the_host_that_was_asked(arguments, hosts):
    """Never from the tool that fetched it."""
    assert sources_of(_result(arguments, mapping=_mapping())) == hosts


def test_a_message_comes_from_its_sender():
    """Where the policy says where senders are."""
    query = compile_path
    messages = MessageFields(each=query("$[*]"), id=query("$.id"), sender=query("$.from"))
    inbox = json.dumps([{"id": 1, "from": "mallory@evil.example", "body": "x"}])
    content = {"content": [{"type": "text", "text": inbox}]}

    assert sources_of(
        _result({}, content, _mapping(reading=MessageReading(messages=messages)))
    ) == {"mallory@evil.example"}


def test_a_trusted_tool_has_no_sources():
    """Nobody is to blame for what the policy trusts."""
    trusted = _mapping(source=Integrity.TRUSTED)

    assert sources_of(_result({"url": "https://in.example/"}, mapping=trusted)) == set()
