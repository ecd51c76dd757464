"""What waits for an answer is listed by an index: no scan, two writes, nothing stale, bounded."""

from guard.core.model import Identity
from guard.provenance.approvals import ApprovalRequest, Approvals, AskedCall
from guard.provenance.label_sets import WAITING_LIMIT, waiting, waiting_part
from guard.provenance.seal import Seal
from tests.guards import KEY


def mail(number):
    """Return the arguments of a mail."""
    return {"to": "pat@partner.test", "body": f"b{number}"}


async def test_what_waits_no_longer_leaves_the_index(agent, operator, store):
    """Denied, approved or expired it is taken out; what an incident gives back is in again."""
    ids = [await agent.asked("send", mail(number)) for number in range(4)]
    await operator.deny(ids[0])
    await operator.approve(ids[1], agent.at)
    key = operator._requests._place(ids[2])
    raw = await store.client.execute("HGET", key, "q")
    await store.client.execute("DEL", key)

    assert [one.decision for one in await operator.waiting()] == [ids[3]]
    assert await members(store, agent.identity) == [ids[3].encode()]
    await store.client.execute("HSET", key, "q", raw)
    await operator.list_again([key])
    assert {one.decision for one in await operator.waiting()} == {*ids[2:]}


async def members(store, identity):
    """Return what the index lists of a principal's part."""
    part = waiting_part(Seal(KEY), identity.principal)
    key = store.key_of(identity.tenant, waiting(identity.tenant, part, 1))
    return await store.client.execute("ZRANGEBYSCORE", key, "-inf", "+inf")


async def test_the_index_is_bounded_and_one_principal_fills_its_own_part(agent, operator, store):
    """An agent that asks without end does not hide what others ask."""
    first = await agent.asked("send", mail(0))
    approvals, seal, flood = Approvals(Seal(KEY)), Seal(KEY), Identity("flood", "s")
    assert waiting_part(seal, "flood") != waiting_part(seal, agent.identity.principal)
    for number in range(WAITING_LIMIT + 50):
        call = AskedCall(f"f{number}", "", "", "", "send", "test", (), (), "{}")
        request = ApprovalRequest("default", "flood", "s", "", 1e9, 1e9 + number, 60, (call,))
        await store.note(flood, [approvals.indexed(request, call.decision)])

    assert len(await members(store, flood)) == WAITING_LIMIT
    assert first in {one.decision for one in await operator.waiting()}
