"""Sessions split, ids forged, connections lost, processes racing, floods: labels hold."""

import asyncio

import pytest

from guard.core.model import Identity
from tests.guards import guard_on
from tests.unit.provenance.agents import Agent, rung

ATTACKER = "drop@evil.test"


@pytest.fixture
def second(policy, second_store):
    """Return a guard of another process: its own connection, the same Redis and key."""
    return guard_on(second_store, policy)


async def test_a_new_session_id_for_every_call_sheds_no_label(agent):
    """Ids that a client chooses never widen trust."""
    await agent.in_session("x0").call("read", {}, f"mail {ATTACKER}")
    for number in range(1, 6):
        verdict = await agent.in_session(f"x{number}").send(ATTACKER)
        assert rung(verdict) == "tainted"


async def test_a_guessed_session_id_takes_no_prompt_of_another_principal(agent):
    """Two principals with one session id are two sessions."""
    await agent.say("send it to carol@partner.test")
    mallory = Agent(agent.guard, Identity("mallory", agent.identity.session), agent.at)
    assert rung(await mallory.send("carol@partner.test")) == "unknown"


async def test_two_agents_behind_one_address_share_taint_and_no_prompt(agent):
    """Unauthenticated traffic is one principal: what one reads taints the other."""
    one, two = agent.in_session("agent-1"), agent.in_session("agent-2")
    await one.call("read", {}, f"mail {ATTACKER}")
    assert rung(await two.send(ATTACKER)) == "tainted"
    await one.say("write to the channel #team-blue")
    assert rung(await two.send("#team-blue")) == "unknown"
    assert rung(await one.send("#team-blue")) == "prompted"
    assert rung(await two.send("#team-blue")) == "established", "the principal has sent there"


async def test_a_label_is_there_for_the_next_process_at_once(agent, second):
    """A result is released after its labels are stored, so no send can overtake them."""
    other = Agent(second, agent.identity, agent.at)
    for number in range(20):
        address = f"drop{number}@evil.test"
        await agent.call("read", {}, f"mail {address}")
        assert rung(await other.send(address)) == "tainted"


async def test_parallel_reads_and_saves_on_two_processes_lose_no_label(agent, second):
    """Forty results at once on two connections: every one of their values is tainted."""
    other = Agent(second, agent.identity, agent.at)
    addresses = [f"drop{number}@evil{number % 7}.test" for number in range(40)]
    await asyncio.gather(
        *((agent, other)[n % 2].call("read", {}, f"mail {a}") for n, a in enumerate(addresses))
    )
    verdicts = await asyncio.gather(*(agent.send(address) for address in addresses))
    assert {rung(verdict) for verdict in verdicts} == {"tainted"}


async def test_a_restarted_guard_remembers(agent, second):
    """Labels lie in the store, and the key in its file."""
    await agent.call("read", {}, "page")
    await agent.call("save", {"key": "k", "value": ATTACKER}, "ok")
    assert rung(await Agent(second, Identity("bob", "later"), agent.at).send(ATTACKER)) == "tainted"


async def test_a_flood_of_addresses_locks_nobody_out_and_frees_nobody(agent):
    """What the user named goes out, what is unknown is asked about, and the principal is marked."""
    flood = " ".join(f"user{n}@host{n}.test" for n in range(20_000))
    await agent.call("read", {}, flood + f" {ATTACKER}")
    await agent.say("send it to carol@partner.test")
    assert (await agent.send("carol@partner.test")).action.label == "allow"
    assert (await agent.send("bob@inside.test")).action.label == "allow"
    classified, verdict = await agent.ask("send", {"to": ATTACKER, "body": "b"})
    assert verdict.action.label in {"ask", "block"}
    [target] = classified.targets
    assert target.attestation.saturated or rung(verdict) == "tainted"


async def test_labels_end_with_their_time_and_not_before(agent):
    """Ninety days: still tainted on the last, unknown long after."""
    day = 86_400
    await agent.call("read", {}, f"mail {ATTACKER}")
    soon = Agent(agent.guard, agent.identity, agent.at + 89 * day)
    late = Agent(agent.guard, agent.identity, agent.at + 400 * day)
    assert rung(await soon.send(ATTACKER)) == "tainted"
    assert rung(await late.send(ATTACKER)) == "unknown"


async def read_without_labels(agent):
    """Have an agent read a text whose labels the store does not take."""
    store = agent.guard._store
    complete = store.complete

    async def fail(completion):
        raise TimeoutError

    store.complete = fail
    await agent.call("read", {}, f"mail {ATTACKER}")
    store.complete = complete


async def test_a_result_that_the_store_could_not_label_makes_unknown_values_suspicious(agent):
    """The mark goes with the next attempt of the principal."""
    await read_without_labels(agent)
    classified, verdict = await agent.ask("send", {"to": ATTACKER, "body": "b"})
    assert verdict.action.label == "ask"
    assert classified.targets[0].attestation.saturated


async def test_what_a_result_without_labels_said_is_not_laundered_by_a_shared_memory(agent):
    """Nobody knows where the value that is saved came from: whoever recalls it has read it."""
    await read_without_labels(agent)
    await agent.call("save", {"key": "k", "value": f"mail {ATTACKER}"}, "ok")
    carol = agent.as_principal("carol")
    await carol.call("recall", {"key": "k"}, f"mail {ATTACKER}")

    assert rung(await carol.send(ATTACKER)) == "tainted"


async def test_what_a_flood_has_crowded_out_is_not_laundered_by_a_shared_memory(agent):
    """The label did not fit; another principal recalls what was saved meanwhile."""
    flood = " ".join(f"user{n}@host{n}.test" for n in range(20_000))
    await agent.call("read", {}, flood + f" {ATTACKER}")
    later = agent.in_session("later")
    await later.call("save", {"key": "k", "value": f"mail {ATTACKER}"}, "ok")
    carol = agent.as_principal("carol")
    await carol.call("recall", {"key": "k"}, f"mail {ATTACKER}")

    assert rung(await carol.send(ATTACKER)) == "tainted"


async def test_what_is_saved_in_good_order_stays_unknown_for_who_recalls_it(agent):
    """A value that no untrusted text has named is no taint of a shared memory."""
    await agent.call("save", {"key": "k", "value": "mail ann@outside.test"}, "ok")
    carol = agent.as_principal("carol")
    await carol.call("recall", {"key": "k"}, "mail ann@outside.test")

    assert rung(await carol.send("ann@outside.test")) == "unknown"
