"""Staging on a real Redis: what is atomic, what is used once, what only grows worse."""

import asyncio
from dataclasses import replace

import pytest

from guard.core.errors import StateError
from guard.core.memory import (
    GateDecision,
    MemoryClass,
    SourceEvidence,
    SourceType,
    Trust,
)
from guard.core.model import Identity, Integrity
from guard.provenance.result_documents import source_mark
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.staging import RedisStaging
from tests.staged_writes import staged_write

EVIL, FINE = source_mark("evil.example"), source_mark("fine.example")
COMMIT = GateDecision(commits=True, target=MemoryClass.L3, tainted=False)


@pytest.fixture
async def replicas(redis_server, redis_namespace):
    """Two guards' staging stores on one Redis, each with its own connection."""
    clients = [RedisClient(parse_endpoint(redis_server.url), timeout=60.0) for _ in range(2)]
    yield [RedisStaging(client, namespace=redis_namespace) for client in clients]
    for client in clients:
        await client.aclose()


def _candidate(ident="c1", **fields):
    usual = {"target": MemoryClass.L3, "fallback": MemoryClass.L4, "nonce": "n", "digest": "d" * 64}
    return staged_write(ident, **(usual | fields))


async def _write(staging, candidate, decision=COMMIT):
    facts = await staging.stage(candidate, "receipt")
    return await staging.commit(candidate, decision, facts, "receipt")


async def test_a_nonce_is_committed_once_whoever_asks(replicas):
    """Of many writers on two guards with one nonce, exactly one commits."""
    candidates = [_candidate(f"c{i}", keys=(f"k{i}",)) for i in range(20)]

    answers = await asyncio.gather(
        *(_write(replicas[i % 2], candidate) for i, candidate in enumerate(candidates))
    )

    assert answers.count("") == 1
    assert set(answers) == {"", "nonce_replayed"}


async def test_of_two_writes_staged_on_one_item_one_commits(replicas):
    """What was checked against the item as it was is not committed over another."""
    first, second = _candidate("c1", nonce="1"), _candidate("c2", nonce="2")
    staged = [await replicas[0].stage(first, "r"), await replicas[1].stage(second, "r")]

    answers = await asyncio.gather(
        replicas[0].commit(first, COMMIT, staged[0], "r"),
        replicas[1].commit(second, COMMIT, staged[1], "r"),
    )

    assert sorted(answers) == ["", "write_conflict"]


async def test_a_staged_record_that_was_changed_is_not_committed(staging):
    """What is sent must be what was staged."""
    candidate = _candidate()
    facts = await staging.stage(candidate, "receipt")

    changed = replace(candidate, digest="e" * 64)

    assert await staging.commit(changed, COMMIT, facts, "receipt") == "content_hash_mismatch"
    assert await staging.commit(candidate, COMMIT, facts, "other") == "audit_mismatch"


async def test_a_candidate_is_committed_from_its_own_staging_only(staging):
    """Never staged, or committed before: there is nothing to commit."""
    candidate = _candidate()
    facts = await staging.stage(candidate, "receipt")

    assert await staging.commit(candidate, COMMIT, facts, "receipt") == ""
    assert await staging.commit(candidate, COMMIT, facts, "receipt") == "stage_lost"
    with pytest.raises(StateError):
        await staging.stage(candidate, "receipt")


async def test_a_proposals_nonce_binds_its_text(replicas):
    """The write of a proposal has its text, on whichever guard it arrives."""
    proposal = _candidate("c1.0", text_digest="a" * 64)
    assert await replicas[0].reserve(proposal)

    assert not await replicas[1].reserve(_candidate("c2.0", text_digest="b" * 64))
    facts = await replicas[1].stage(_candidate("c3", text_digest="b" * 64), "r")
    assert facts.nonce_digest == "a" * 64


async def _refused(staging, times=3, reason="source_class_refused", **fields):
    """Have so many writes refused; return the trust before each."""
    levels = []
    for number in range(times):
        made = _candidate(f"bad{number}", nonce=f"bad{number}", **fields)
        levels.append((await staging.stage(made, "r")).trust)
        await staging.refuse(made, (reason,))
    return levels


async def _trust(staging, name, **fields):
    return (await staging.stage(_candidate(name, nonce=name, **fields), "r")).trust


"""The paper's timeline."""


def came_from(*sources, certain=False):
    """Return the evidence of a write whose text has values of these sources."""
    kinds = frozenset({SourceType.TOOL_RESULT})
    return SourceEvidence(kinds, Integrity.UNTRUSTED, sources, certain=certain)


@pytest.mark.parametrize(
    ("read", "evidence", "times", "levels"),
    [
        pytest.param((), came_from(EVIL), 4, "UNTRUSTED TRUSTED TRUSTED", id="the text's source"),
        pytest.param((EVIL,), None, 4, "UNTRUSTED TRUSTED TRUSTED", id="the only one read"),
        pytest.param((EVIL, FINE), None, 4, "TRUSTED TRUSTED UNTRUSTED", id="one of several"),
        pytest.param(
            (EVIL,),
            came_from(FINE),
            1,
            "TRUSTED TRUSTED DEGRADED",
            id="a page that quotes another",
        ),
        pytest.param(
            (FINE,),
            came_from(EVIL, certain=True),
            1,
            "DEGRADED TRUSTED TRUSTED",
            id="the proposal's source",
        ),
    ],
)
async def test_blame_is_on_the_one_source_or_on_the_reader(replicas, read, evidence, times, levels):
    """On every guard: trust in the bad page, in the other one, and in whoever has read them."""
    staging, other = replicas
    await staging.read(Identity("p", "s"), frozenset(read))
    given = {"evidence": evidence} if evidence else {}
    await _refused(staging, times, identity=Identity("p", "s"), **given)
    pages = [
        await _trust(other, name, identity=Identity("z", name), evidence=came_from(source))
        for name, source in (("evil", EVIL), ("fine", FINE))
    ]

    reader = await _trust(other, "reader", identity=Identity("p", "fresh"))
    assert [*pages, reader] == [Trust[one] for one in levels.split()]


@pytest.mark.parametrize("target", [MemoryClass.L3, MemoryClass.L4], ids=["same", "lower"])
async def test_an_untrusted_source_is_stopped_at_the_commit_too(replicas, target):
    """Trust that fell since counts, for a write over a higher item as well."""
    [staging, other] = replicas
    await _write(staging, _candidate("first", nonce="first"))
    candidate = _candidate("late", nonce="late", target=target)
    facts = await staging.stage(candidate, "r")
    await _refused(other, reason="nonce_replayed")

    answer = await staging.commit(candidate, replace(COMMIT, target=target), facts, "r")
    assert answer == "source_untrusted"


async def test_two_principals_never_share_a_nonce(staging):
    """One tenant's agents cannot use up each other's nonces."""
    await _write(staging, _candidate())

    other = _candidate("c2", identity=Identity("q", "s"), keys=("other",))

    assert await _write(staging, other) == ""


@pytest.mark.parametrize(
    ("periods", "level"), [(0.9, Trust.UNTRUSTED), (1.1, Trust.DEGRADED), (2.1, Trust.TRUSTED)]
)
async def test_time_restores_trust_and_a_new_session_does_not(
    replicas, redis_client, periods, level
):
    """Each period without a refused write raises the principal by one level, in any session."""
    [staging, other] = replicas
    fall = [Trust.TRUSTED, Trust.DEGRADED, Trust.DEGRADED, Trust.UNTRUSTED]
    assert await _refused(staging, 4, reason="nonce_replayed") == fall
    fresh = await _trust(other, "new", identity=Identity("p", "a-new-session"))
    assert fresh is Trust.UNTRUSTED

    key = staging.keys("default").trust("principal", "p")
    moved = int(periods * staging.limits.recover_after * 1000)
    await redis_client.execute("HINCRBY", key, "changed", -moved)

    later = _candidate("later", nonce="later")
    facts = await other.stage(later, "r")
    assert facts.trust == level
    decision = GateDecision(commits=True, target=MemoryClass.L2, tainted=True)
    blocked = "source_untrusted" if level is Trust.UNTRUSTED else ""
    assert await other.commit(later, decision, facts, "r") == blocked
