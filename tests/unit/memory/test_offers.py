"""Which servers offer tools of one name."""

import pytest

from guard.core.calls import Claim
from guard.core.declarations import ToolDefinition
from guard.core.model import Identity
from guard.memory.pins import Pins, ToolOffers
from guard.provenance.seal import KEY_BYTES, Seal
from guard.store.pin_records import PinOperator

LISTED, CONTESTED, UNLISTED = Claim.LISTED, Claim.CONTESTED, Claim.UNLISTED


@pytest.mark.parametrize(
    ("listings", "at", "tool", "origin", "shared", "claim", "place"),
    [
        ([("a", "search read"), ("a", "search")], "a", "search", "", False, LISTED, "a"),
        ([("a", "search read"), ("b", "search")], "a", "search", "", True, CONTESTED, "a"),
        ([("a", "search read"), ("b", "search")], "a", "read", "", False, LISTED, "a"),
        ([("a", "search")], "b", "search", "", False, CONTESTED, "b"),
        ([("a", "search")], "b", "read", "", False, UNLISTED, "b"),
        ([("a", "search")], "a", "search", "https://api.test:443", False, CONTESTED, "a"),
        ([("a", "search")], "", "search", "", False, LISTED, "a"),
        ([("a", "search")], "", "read", "https://api.test:443", False, None,
         "https://api.test:443"),
        ([("a", "search"), ("b", "search")], "", "search", "", True, UNLISTED, ""),
    ],
)  # fmt: skip
def test_a_name_belongs_to_who_alone_has_listed_it(
    listings, at, tool, origin, shared, claim, place
):
    """A second server makes it shared; a call without a server goes to the one that lists it."""
    offers = ToolOffers()
    for upstream, names in listings:
        offers.note(upstream, names.split())

    assert (tool in offers.shared) is shared
    assert claim is None or offers.claim(at, tool, origin) is claim
    assert offers.place(at, tool, origin) == place


def test_names_without_room_count_as_shared():
    """Who floods the table opens nothing."""
    offers = ToolOffers(limit=2)
    offers.note("a.test/mcp", [f"t{number}" for number in range(5)])

    assert "t4" in offers.shared


async def test_what_servers_offered_before_the_process_began_is_known(store):
    """Pins of every tenant say it; a server that no listener leads to any more shares nothing."""
    pins, offers = Pins(Seal(b"k" * KEY_BYTES)), ToolOffers()
    for upstream, names in (("a:80/mcp", "xy"), ("b:80/mcp", "yz"), ("old:80/mcp", "z")):
        identity = Identity("p", "s", tenant=upstream)
        definitions = [ToolDefinition(name, {"name": name}) for name in names]
        records = await store.look_up(identity, pins.lookup(upstream, definitions))
        await store.note(identity, pins.compare(upstream, definitions, records, 1.0).writes)
    await PinOperator(store, pins).note_offers(offers, lambda place: place in {"a:80", "b:80"})

    assert [name in offers.shared for name in "xyz"] == [False, True, False]
