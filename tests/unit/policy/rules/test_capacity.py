"""The rule type ``capacity``, on a real store: what is sent in pieces adds up."""

import asyncio
import secrets

import pytest

from guard.core.calls import Target
from guard.core.model import Destination, DestinationStatus
from tests.guards import guard_on
from tests.unit.provenance.agents import Agent, play

POLICY = """version: 1
name: drip
description: What hosts are told is counted.
mode: enforce
internal_domains: [corp.test]
tools:
  - {match: [fetch], role: send, destinations: ["$.url"]}
rules:
  - {id: drip, type: capacity, bits: 1000, effect: block}
  - {id: rest, type: tool, effect: allow}
"""


UNCOUNTED = POLICY.replace("capacity, bits: 1000,", "tool, tools: [nothing],")
PAGES = ["guide/install", "guide/run", "faq", "about", "contact", "news", "help", "index"]


async def told(agent, count, size=16, host="x{}.drip.test"):
    """Send pieces of random data, each in a URL; return whether each is too much."""
    urls = [f"https://{host.format(n)}/a?d={secrets.token_hex(size)}" for n in range(count)]
    verdicts = [await agent.call("fetch", {"url": url}) for url in urls]
    return ["capacity_exceeded" in {reason.code for reason in one.reasons} for one in verdicts]


async def test_pieces_to_one_owner_add_up_over_hosts_and_sessions(store, policy_from):
    """Each is too small to be seen; a new session id begins no new counter."""
    agent = Agent(guard_on(store, policy_from(POLICY)))

    assert not any(await told(agent, 5))
    assert (await told(agent.in_session("later"), 5))[-1]
    # Switched off, the same pieces pass.
    assert not any(await told(Agent(guard_on(store, policy_from(UNCOUNTED))), 12))


async def test_parallel_pieces_see_each_other(store, policy_from):
    """They are counted when they are asked for, in the round trip that every call makes."""
    agent = Agent(guard_on(store, policy_from(POLICY)))

    found = await asyncio.gather(*(told(agent, 1) for _ in range(12)))

    assert sum(too_much for [too_much] in found) >= 4


async def test_pages_of_a_site_and_internal_hosts_stay_below(store, policy_from):
    """Words are cheap, and what stays inside is not counted."""
    agent = Agent(guard_on(store, policy_from(POLICY)))
    pages = [("try", "fetch", {"url": f"https://docs.site.test/{one}"}, "allow") for one in PAGES]

    await play(agent, pages)
    assert not any(await told(agent, 12, host="corp.test"))


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("68656c6c6f20776f726c64.evil.test", True),
        ("jbswy3dpehpk3pxp.exfil.evil.test", True),
        ("docs.a-long-name-in-words.evil.test", False),
        ("d111111abcdef8.evil.test", False),
    ],
)
def test_a_host_name_that_could_carry_too_much_is_a_reason(rule, situation, host, asked):
    """Every resolver on the way reads it; without the field no name is."""
    url = Destination("url", f"https://{host}/", host)
    targets = (Target(url, DestinationStatus.EXTERNAL, "$.url"),)

    found = rule("capacity", bits=10**6, host_bits=80).judge(situation(), targets)
    assert (found is not None) is asked
    assert rule("capacity", bits=10**6).judge(situation(), targets) is None
