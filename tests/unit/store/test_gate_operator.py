"""What an operator does: tokens for one content, quarantine, review, trust again."""

import pytest

from guard.core.errors import GuardError
from guard.core.memory import GateDecision, MemoryClass, TokenState
from guard.core.model import Identity
from tests.staged_writes import staged_write

RAISED = GateDecision(commits=True, target=MemoryClass.L2, tainted=False, uses_token=True)


@pytest.fixture
async def refused(staging):
    """A candidate that was refused for want of a token."""
    made = staged_write()
    await staging.stage(made, "r")
    await staging.refuse(made, ("promotion_token_missing",))
    return made


@pytest.fixture
def binding(staging, refused):
    """The key of the token for that candidate."""
    return staging.keys("default").of("binding", refused.digest, MemoryClass.L2.name, "p")


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        pytest.param({}, TokenState.VALID, id="the content it is for"),
        pytest.param({"digest": "e" * 64}, TokenState.OTHER, id="other content"),
        pytest.param({"identity": Identity("q", "s")}, TokenState.OTHER, id="other principal"),
        pytest.param({"target": MemoryClass.L1}, TokenState.OTHER, id="other class"),
    ],
)
async def test_a_presented_token_fits_one_content_class_and_principal(
    staging, operator, refused, seal, fields, state
):
    """A token that is shown for anything else belongs to something else."""
    token = await operator.promote(refused.id, MemoryClass.L2, 60, "operator", seal)
    shown = staged_write("c2", token=token, **fields)

    assert (await staging.stage(shown, "r")).tokens[shown.target] is state


async def test_an_expired_token_says_so(staging, refused, binding, seal, redis_client):
    """Redis' own clock decides."""
    mac = seal.promotion("default", refused.digest, "L2", "p", 1)
    await redis_client.execute("HSET", binding, "expires", 1, "used", 0, "mac", mac)

    facts = await staging.stage(staged_write("c2"), "r")

    assert facts.tokens[MemoryClass.L2] is TokenState.EXPIRED


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"expires": 9_999_999_999_999}, id="lives longer"),
        pytest.param({"mac": "0" * 32}, id="another mac"),
        pytest.param({"mac": ""}, id="no mac"),
        pytest.param({"expires": "never"}, id="no time at all"),
    ],
)
async def test_who_writes_to_redis_cannot_mint_a_token(
    staging, operator, refused, binding, seal, redis_client, change
):
    """Nor change one that was issued."""
    await operator.promote(refused.id, MemoryClass.L2, 60, "operator", seal)
    await redis_client.execute("HSET", binding, *[part for pair in change.items() for part in pair])

    facts = await staging.stage(staged_write("c2"), "r")

    assert facts.tokens[MemoryClass.L2] is TokenState.FORGED


async def test_a_token_of_one_content_does_not_become_that_of_another(
    staging, operator, refused, binding, seal, redis_client
):
    """Copied in Redis, with its MAC, to where another content's would be."""
    await operator.promote(refused.id, MemoryClass.L2, 60, "operator", seal)
    other = staged_write("c2", digest="e" * 64)
    copy = staging.keys("default").of("binding", other.digest, MemoryClass.L2.name, "p")
    await redis_client.execute("COPY", binding, copy)

    assert (await staging.stage(other, "r")).tokens[MemoryClass.L2] is TokenState.FORGED


async def test_a_used_token_stays_used_for_the_process_that_saw_it(
    staging, operator, refused, binding, seal, redis_client
):
    """Even where somebody sets it back in Redis."""
    await operator.promote(refused.id, MemoryClass.L2, 60, "operator", seal)
    retry = staged_write("c2")
    assert await staging.commit(retry, RAISED, await staging.stage(retry, "r"), "r") == ""
    await redis_client.execute("HSET", binding, "used", 0)

    assert (await staging.stage(staged_write("c3"), "r")).tokens[MemoryClass.L2] is TokenState.USED


async def test_content_that_was_altered_in_redis_cannot_be_promoted(
    staging, operator, refused, seal, redis_client
):
    """A person would see one text and release another."""
    await redis_client.execute(
        "HSET", staging.keys("default").of("candidate", refused.id), "content", "nice"
    )

    with pytest.raises(GuardError, match="not what was staged"):
        await operator.promote(refused.id, MemoryClass.L2, 60, "operator", seal)
    with pytest.raises(GuardError, match="no memory write"):
        await operator.promote("unknown", MemoryClass.L1, 60, "operator", seal)


async def test_a_partition_closed_after_staging_stops_the_commit(staging, operator):
    """The commit looks again."""
    made = staged_write()
    facts = await staging.stage(made, "r")
    await operator.quarantine("facts", "default", "now", 60)

    assert await staging.commit(made, RAISED, facts, "r") == "partition_quarantined"
