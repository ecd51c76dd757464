"""Which servers offer tools of one name."""

from guard.core.calls import Claim
from guard.core.declarations import ToolDefinition
from guard.core.model import Identity
from guard.memory.pins import Pins, ToolOffers
from guard.provenance.seal import KEY_BYTES, Seal
from guard.store.pin_records import PinOperator
from guard.store.store import RedisSessionStore


def test_a_name_is_shared_once_a_second_upstream_offers_it():
    """The same server may list its tools as often as it likes."""
    offers = ToolOffers()
    offers.note("a.test/mcp", ["search", "read"])
    offers.note("a.test/mcp", ["search"])

    assert "search" not in offers.shared

    offers.note("b.test/mcp", ["search"])

    assert "search" in offers.shared
    assert "read" not in offers.shared


def test_names_without_room_count_as_shared():
    """Who floods the table opens nothing."""
    offers = ToolOffers(limit=2)
    offers.note("a.test/mcp", [f"t{number}" for number in range(5)])

    assert "t4" in offers.shared


async def test_what_servers_offered_before_the_process_began_is_known(
    redis_server, redis_namespace
):
    """Pins of every tenant say it; a server that no listener leads to any more shares nothing."""
    seal, offers = Seal(b"k" * KEY_BYTES), ToolOffers()
    pins = Pins(seal)
    store = RedisSessionStore.at(redis_server.url, namespace=redis_namespace, timeout=60.0)
    try:
        for upstream, names in (("a:80/mcp", "xy"), ("b:80/mcp", "yz"), ("old:80/mcp", "z")):
            identity = Identity("p", "s", tenant=upstream)
            definitions = [ToolDefinition(name, {"name": name}) for name in names]
            records = await store.look_up(identity, pins.lookup(upstream, definitions))
            await store.note(identity, pins.compare(upstream, definitions, records, 1.0).writes)
        await PinOperator(store, pins).note_offers(offers, lambda place: place in {"a:80", "b:80"})
    finally:
        await store.aclose()

    assert [name in offers.shared for name in "xyz"] == [False, True, False]


def test_a_name_is_claimed_by_who_alone_has_listed_it():
    """One that nobody has listed is unlisted, and another server's is contested."""
    offers = ToolOffers()
    offers.note("a", ["search"])

    assert offers.claim("a", "search") is Claim.LISTED
    assert offers.claim("b", "search") is Claim.CONTESTED
    assert offers.claim("b", "read") is Claim.UNLISTED
    assert offers.claim("a", "search", "https://api.test:443") is Claim.CONTESTED
    offers.note("b", ["search"])
    assert offers.claim("a", "search") is Claim.CONTESTED


def test_a_call_without_a_server_goes_to_the_one_that_lists_its_tool():
    """A model's answer names none; of several servers nobody can say which one it is."""
    offers = ToolOffers()
    offers.note("a", ["search"])

    assert offers.place("", "search") == "a"
    assert offers.place("", "read", "https://api.test:443") == "https://api.test:443"
    assert offers.claim("", "search") is Claim.LISTED
    offers.note("b", ["search"])
    assert offers.place("", "search") == ""
    assert offers.claim("", "search") is Claim.UNLISTED
