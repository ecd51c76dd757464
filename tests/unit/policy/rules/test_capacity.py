"""The rule type ``capacity``, on a real store: what is sent in pieces adds up."""

import asyncio
import secrets

import pytest

from guard.core.calls import Target
from guard.core.model import Destination, DestinationStatus
from tests.guards import guard_on
from tests.unit.provenance.agents import Agent

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


@pytest.fixture
def policy(policy_from):
    """Return a way to write the policy and to load it."""

    def loaded(text=POLICY):
        return policy_from(text)

    return loaded


async def told(agent, count, size=16, host="x{}.drip.test"):
    """Send pieces of random data, each in a URL; return the reason codes of each."""
    codes = []
    for number in range(count):
        url = f"https://{host.format(number)}/a?d={secrets.token_hex(size)}"
        verdict = await agent.call("fetch", {"url": url})
        codes.append([reason.code for reason in verdict.reasons])
    return codes


async def test_pieces_to_one_owner_add_up_over_hosts_and_sessions(store, policy):
    """Each is too small to be seen; a new session id begins no new counter."""
    agent = Agent(guard_on(store, policy()))

    first = await told(agent, 5)
    later = await told(agent.in_session("later"), 5)

    assert "capacity_exceeded" not in {code for codes in first for code in codes}
    assert "capacity_exceeded" in later[-1]


async def test_without_the_rule_nothing_is_counted(store, policy):
    """Switched off, the same pieces pass."""
    text = "\n".join(line for line in POLICY.splitlines() if "capacity" not in line)
    agent = Agent(guard_on(store, policy(text)))

    codes = await told(agent, 12)

    assert "capacity_exceeded" not in {code for found in codes for code in found}


async def test_parallel_pieces_see_each_other(store, policy):
    """They are counted when they are asked for, in the round trip that every call makes."""
    agent = Agent(guard_on(store, policy()))

    found = await asyncio.gather(*(told(agent, 1) for _ in range(12)))

    assert sum("capacity_exceeded" in codes[0] for codes in found) >= 4


async def test_pages_of_a_site_and_internal_hosts_stay_below(store, policy):
    """Words are cheap, and what stays inside is not counted."""
    agent = Agent(guard_on(store, policy()))
    pages = ["guide/install", "guide/run", "faq", "about", "contact", "news", "help", "index"]

    for page in pages:
        verdict = await agent.call("fetch", {"url": f"https://docs.site.test/{page}"})
        assert verdict.action.label == "allow"
    inside = await told(agent, 12, host="corp.test")

    assert "capacity_exceeded" not in {code for codes in inside for code in codes}


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
