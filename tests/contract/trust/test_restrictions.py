"""Restrictions of a principal and their ends; links that are previewed; open selections."""

import pytest

from guard.core.errors import PolicyError
from guard.policy import load_policies
from guard.runtime.wiring import assemble
from lab.selection.live import POLICY
from lab.trust.harness import world_of

ANA = "ana@fjordworks.test"
MAIL = {"to": [ANA], "subject": "Plans", "body": "as asked"}
LETTER = [{"id": "m1", "from": ANA, "subject": "Plans", "body": "What are the plans?"}]
LONGER = "version: 1\nname: state\nextends: builtin:default\nstate: {memory_read: 2h}\n"
CHAT = ("default.yaml", "services/slack.yaml")
CHANNELS = {"channels": [{"id": "C0GENERAL", "name": "general"}]}


async def _answered(agent):
    await agent.prompt("Answer message m1.")
    await agent.call("search_emails", {"query": "plans"}, LETTER)
    return await agent.call("send_email", MAIL, "sent")


@pytest.mark.parametrize(
    ("policy", "seconds", "verdict"),
    [("default.yaml", 60.0, "ask"), ("default.yaml", 3601.0, "allow"), (LONGER, 3601.0, "ask")],
    ids=["a minute", "an hour", "an hour of a policy's two"],
)
async def test_a_reply_is_asked_about_for_a_while_after_any_session_read_memory(
    world_redis, policy, seconds, verdict
):
    """The agent may still know what it recalled; an hour later the principal replies freely."""
    async with world_of(assemble, world_redis, policy) as world:
        await world.agent(session="one").call("memory_search", {"query": "plans"}, "offer 4711")
        await world.clock.advance(seconds)
        answered = await _answered(world.agent(session="two"))
        other = await _answered(world.agent("bob", "three"))

    assert (answered.verdict, other.verdict) == (verdict, "allow")


async def test_a_no_ends_with_the_next_request_or_approval(world_redis):
    """In whatever session; a colleague is not touched."""
    async with world_of(assemble, world_redis, "default.yaml") as world:
        one, two, three = (world.agent(session=name) for name in ("one", "two", "three"))
        bob = world.agent("bob", "four")
        for agent in (one, bob):
            await agent.prompt(f"Send the plans to {ANA}.")
            assert (await agent.call("send_email", MAIL, "sent")).forwarded
        await world.clock.advance(1)
        await two.prompt(f"Do not send anything to {ANA} any more.")
        await world.clock.advance(1)
        assert (await bob.call("send_email", MAIL, "sent")).forwarded
        assert (await one.call("send_email", MAIL)).verdict == "ask"

        asked = await three.call("send_email", MAIL)
        await world.approve(asked.decision_id, remember=True)
        assert (await three.call("send_email", MAIL, "sent")).forwarded
        assert (await one.call("send_email", MAIL, "sent")).forwarded

        await world.clock.advance(1)
        await two.prompt(f"Never write to {ANA} again.")
        await world.clock.advance(1)
        assert (await three.call("send_email", MAIL)).verdict == "ask"
        await one.prompt(f"Send the plans to {ANA}.")
        assert (await one.call("send_email", MAIL, "sent")).forwarded
        await world.clock.advance(1)
        assert (await three.call("send_email", MAIL, "sent")).forwarded


@pytest.mark.parametrize(
    "text",
    [
        "Reopened: https://news.harbour.test/today",
        "<https://news.harbour.test/today|The harbour> has reopened.",
        "See https://example.com/plans?id=7 and README.md, setup.py or v1.2.3.",
    ],
)
async def test_a_link_that_the_user_typed_or_an_internal_one_is_posted(world_redis, text):
    """Word for word, whatever stands around it; a file name is no link."""
    async with world_of(assemble, world_redis, CHAT) as world:
        posted = await _posted(world, text)

    assert posted.forwarded


@pytest.mark.parametrize("link", ["https://news.harbour.test/today?d=4711", "4711.harbour.test"])
async def test_a_link_that_nobody_gave_is_asked_about_once(world_redis, link):
    """The service asks its host for a preview before anybody reads the post."""
    async with world_of(assemble, world_redis, CHAT) as world:
        asked = await _posted(world, f"See {link}")
        received = len(world.received)
        await world.approve(asked.decision_id, remember=True)
        again = await _posted(world, f"See {link}")

    assert (asked.verdict, asked.codes[0]) == ("ask", "provenance_unknown")
    assert received == 1
    assert again.forwarded


async def _posted(world, text):
    agent = world.agent()
    await agent.prompt("Post https://news.harbour.test/today in #general.")
    await agent.call("slack_list_channels", {}, CHANNELS)
    return await agent.call("slack_post_message", {"channel_id": "C0GENERAL", "text": text}, "ok")


@pytest.mark.parametrize(
    ("who", "loads"),
    [
        ("{label: advisory}", False),
        ("{label: untrusted}", False),
        ("{sources: [model_inference], label: advisory}", False),
        ("{sources: [user_input], label: advisory}", True),
        ("{principals: [curator], label: advisory}", True),
        ("{label: authenticated}", True),
    ],
)
def test_a_selection_that_counts_every_agent_does_not_load(tmp_path, who, loads):
    """The error names the line and the fix."""
    path = tmp_path / "policy.yaml"
    text = POLICY.read_text(encoding="utf-8")
    path.write_text(text.replace("{principals: [curator], label: advisory}", who), "utf-8")
    if loads:
        assert load_policies([path]).selections
    else:
        with pytest.raises(PolicyError, match=r"policy.yaml:\d+: .*list the `principals`"):
            load_policies([path])
