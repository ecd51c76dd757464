"""What is withheld of a listing is left out, and everything else stays as it came."""

from __future__ import annotations

from typing import Any

import pytest

from guard.protocols.mcp.declarations import without


def bad(source: str, entry: Any) -> bool:
    """Return whether an entry says that it is bad."""
    return "bad" in str(entry)


@pytest.mark.parametrize("member", ["tools", "prompts", "resources", "resourceTemplates"])
def test_an_entry_of_a_listing_is_left_out(member: str) -> None:
    """The others, and the rest of the result, stay."""
    entries = [{"name": "good"}, {"name": "x", "description": "bad"}]
    message = {"jsonrpc": "2.0", "id": 1, "result": {member: entries, "nextCursor": "c"}}

    left = without(message, bad)

    assert left == {**message, "result": {member: entries[:1], "nextCursor": "c"}}


def test_instructions_are_left_out() -> None:
    """Of an answer to ``initialize``."""
    result = {"protocolVersion": "2025-11-25", "instructions": "bad"}

    left = without([{"id": 1, "result": result}], bad)

    assert left == [{"id": 1, "result": {**result, "instructions": ""}}]


@pytest.mark.parametrize(
    "content",
    [
        {"id": 1, "result": {"tools": [{"name": "good"}]}},
        {"id": 1, "result": {"content": [], "tools": [{"name": "bad"}]}},
        {"method": "tools/list", "id": 1},
        [{"id": 1, "error": {"message": "bad"}}],
        "bad",
        None,
    ],
)
def test_nothing_is_changed_where_nothing_is_withheld(content: Any) -> None:
    """Results of calls, requests, errors, texts."""
    assert without(content, bad) is None
