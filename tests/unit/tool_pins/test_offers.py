"""Which servers offer tools of one name."""

from __future__ import annotations

from guard.core.declarations import ToolDefinition
from guard.tool_pins.pins import ToolOffers


def definition(name):
    """Return a definition of which only the name matters."""
    return ToolDefinition(name, {"name": name})


def test_a_name_is_shared_once_a_second_upstream_offers_it():
    """The same server may list its tools as often as it likes."""
    offers = ToolOffers()
    offers.note("a.test/mcp", [definition("search"), definition("read")])
    offers.note("a.test/mcp", [definition("search")])

    assert "search" not in offers.shared

    offers.note("b.test/mcp", [definition("search")])

    assert "search" in offers.shared
    assert "read" not in offers.shared


def test_names_without_room_count_as_shared():
    """Who floods the table opens nothing."""
    offers = ToolOffers(limit=2)
    offers.note("a.test/mcp", [definition(f"t{number}") for number in range(5)])

    assert "t4" in offers.shared
