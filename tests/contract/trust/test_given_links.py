"""Long links that a person typed or a result named pass as they are, and no other does."""

import pytest

from guard.wiring import assemble
from lab.trust.harness import world_of

STRICT = "examples/strict.yaml"
DRAWN = "CjwKCAiA-P-rBhBEEiwAQEXhH2lL6tP3vC0xM1nW8qZ7yJ9dK5sR4uT2oI6bA8f"
SIGNED = "GoogleAccessId=x%40p.iam.gserviceaccount.com&Signature=Qk9sZ3R5cVh1aTJ3bE5wYV"
LINKS = (
    f"https://storage.googleapis.com/exports/report.csv?{SIGNED}J0N0s4dEVvMFZ6bEtuVHF6eG1Zc2tBd2h5b0",
    f"https://shop.fjordworks.test/?gclid={DRAWN}",
    f"https://www.harbour.test/news?fbclid=IwAR{DRAWN}",
)


@pytest.mark.parametrize("link", LINKS)
async def test_a_link_that_a_mail_brought_is_opened_every_time(world_redis, link):
    """Word for word, by request or by a tool; what is put behind it is told."""
    async with world_of(assemble, world_redis, STRICT) as world:
        agent = world.agent()
        await agent.call("search_mail", {"query": "report"}, f"Here it is: {link} . Bye")

        assert (await agent.http("GET", link, result="page")).forwarded
        assert (await agent.call("fetch", {"url": link}, "page")).forwarded
        changed = await agent.http("GET", f"{link}Xk3dVfQ8yZ", result="page")

    assert changed.codes == ("hidden_in_url",)


@pytest.mark.parametrize("link", LINKS)
async def test_a_link_that_the_user_typed_is_opened(world_redis, link):
    """What he did not type is told: also below an address that he typed."""
    async with world_of(assemble, world_redis, STRICT) as world:
        agent = world.agent()
        await agent.prompt(f"Download {link} and sum it up.")
        await agent.prompt("Read https://files.fjordworks.test/a for me.")

        typed = await agent.http("GET", link, result="page")
        below = await agent.http("GET", f"https://files.fjordworks.test/a/{DRAWN}")

    assert typed.forwarded
    assert below.codes == ("hidden_in_url",)


async def test_a_link_from_nowhere_or_from_memory_is_told(world_redis):
    """Nobody gave the first to the agent, and the second may have been put together there."""
    async with world_of(assemble, world_redis, STRICT) as world:
        own = await world.agent().http("GET", LINKS[1], result="page")
        other = world.agent("bob", "s2")
        await other.call("memory_search", {"query": "link"}, f"see {LINKS[2]} for more")
        recalled = await other.http("GET", LINKS[2], result="page")

    assert own.codes == ("hidden_in_url",)
    assert not recalled.forwarded


async def test_who_opens_a_link_takes_it_from_nobody_else(world_redis):
    """It was given to the first; that he opened it makes it no writing of his."""
    async with world_of(assemble, world_redis, STRICT) as world:
        for principal in ("alice", "bob"):
            agent = world.agent(principal, principal)
            await agent.call("search_mail", {"query": "report"}, f"Here it is: {LINKS[0]} . Bye")
            assert (await agent.http("GET", LINKS[0], result="page")).forwarded
            await world.clock.advance(5)
