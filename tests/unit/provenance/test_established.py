"""Whom the user named once, this principal may send to again with the same tool, for a while."""

import pytest

from guard.provenance.approvals import Scope
from tests.unit.provenance.agents import fields_of, play, rung

DAY = 86400
PAT, KIM = "pat@partner.test", "kim@partner.test"
MAIL = {"to": PAT, "body": "b"}
BOTH = {"to": [PAT, "eve@other.test"], "body": "b"}


def named(to=PAT):
    """Return the steps in which the user names a receiver and the agent sends to it."""
    mail = {"to": to, "body": "b"}
    return [("say", f"Please send the report to {to}"), ("try", "send", mail, "sent", "prompted")]


def approved(scope=Scope.CALL, seconds=0):
    """Return the steps in which a send is asked about, approved and made."""
    return [("yes", "send", MAIL, scope, seconds), ("try", "send", MAIL, "sent", "granted")]


ORDERS = [{"id": "7", "from": PAT, "subject": "Your order of May"}]
FAILED = {"content": [{"type": "text", "text": "no such mailbox"}], "isError": True}
REMEMBERED = approved(Scope.PRINCIPAL, 2 * DAY)
BEGUN = {"named": named(), "approved": approved(Scope.PRINCIPAL, 400 * DAY)}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [
                *named(),
                ("in", "two"),
                ("read", {}, f"write to {PAT}"),
                ("send", PAT, "allow established prompted_before"),
            ],
            id="whom the user named once may be sent to in a later session that reads of him",
        ),
        pytest.param(
            [
                *named(),
                ("in", "two"),
                ("send", PAT, "established"),
                ("say", f"Never write to {PAT} again."),
                ("send", PAT, "unknown"),
                ("say", f"Fine, send the report to {PAT}."),
                ("send", PAT, "prompted"),
            ],
            id="a refusal of the user beats what is established",
        ),
        pytest.param(
            [
                ("say", f"Mail it to {PAT}"),
                ("yes", "send", BOTH),
                ("send", BOTH["to"], "allow"),
                ("in", "two"),
                ("send", PAT, "established"),
                ("send", "eve@other.test", "unknown"),
            ],
            id="a grant for the whole call adds none to the receivers that the user named",
        ),
        pytest.param(
            [*approved(), ("send", PAT, "unknown")], id="a plain grant establishes nobody"
        ),
        pytest.param(
            [
                *REMEMBERED,
                ("in", "two"),
                ("later", DAY),
                ("send", PAT, "established approved_before"),
                ("later", DAY + 1),
                ("send", PAT, "unknown"),
            ],
            id="an approval to be remembered ends when it says",
        ),
        pytest.param(
            [
                *approved(Scope.SESSION, 2 * DAY),
                ("send", PAT, "established"),
                ("in", "two"),
                ("send", PAT, "unknown"),
            ],
            id="an approval for the session ends with it",
        ),
        *(
            pytest.param(
                [
                    *first,
                    ("in", "two"),
                    ("later", 89 * DAY),
                    ("send", PAT, "established"),
                    ("in", "three"),
                    ("later", DAY + 1),
                    ("send", PAT, "!established"),
                    ("later", -88 * DAY),
                    ("limits", {"established": DAY}),
                    ("send", PAT, "!established"),
                ],
                id=f"a send on this rung prolongs nothing that was {how}",
            )
            for how, first in [
                ("named", named()),
                ("approved", approved(Scope.PRINCIPAL, 400 * DAY)),
            ]
        ),
        pytest.param(
            [
                ("say", f"Mail it to {PAT}"),
                ("send", [PAT, "drop@denied.test"], "block"),
                ("gets", "send", MAIL, {"content": "no such mailbox", "is_error": True}),
                ("gets", "send", MAIL, {"content": "no such mailbox", "is_lost": True}),
                ("gets", "send", MAIL, {"content": FAILED}),
                ("in", "two"),
                ("later", 1),
                ("send", PAT, "!established"),
            ],
            id="a send that was refused, failed or had no answer establishes nobody",
        ),
        pytest.param(
            [
                ("send", "colleague@inside.test", "listed"),
                ("inbox", {}, ORDERS),
                ("say", "Answer the mail 'Your order of May'"),
                ("answer", {**MAIL, "message": "7"}, "ok"),
                ("send", PAT, "!established"),
                ("directory", {}, [{"name": "Kim", "mail": KIM}]),
                ("send", KIM, "!established"),
                ("send", KIM, "!established"),
            ],
            id="what a list, a message or a result vouches for establishes nobody",
        ),
    ],
)
async def test_whom_the_user_named_is_established_until_a_no(agent, steps):
    """For the principal, in its later sessions."""
    await play(agent, steps)


@pytest.mark.parametrize(
    "differs",
    [
        [("send", "pat2@partner.test", "!established")],
        [("as", "bob"), ("send", PAT, "!established")],
        [("try", "invite", {"guests": [PAT]}, "ok", "!established")],
        [("with", {"server": "127.0.0.1:9"}), ("send", PAT, "!established")],
    ],
    ids=["receiver", "principal", "tool", "listener"],
)
async def test_it_is_this_principal_this_tool_this_listener_and_this_receiver(agent, differs):
    """Nothing that differs is established with it."""
    later = await play(agent, [*named(), ("in", "two"), ("send", PAT, "established")])
    await play(later, differs)


async def test_an_operator_sees_who_is_established_and_revokes_it(agent, operator, store):
    """In Redis it is enciphered; what the operator is shown says who, what, whom and until when."""
    await play(agent, named())
    [one] = await operator.established()

    assert (one.principal, one.tool, one.kind, one.receiver) == ("alice", "send", "mail", PAT)
    assert (one.record.channel, one.record.until) == ("prompt", agent.at + 90 * DAY)
    assert not [raw async for *_, raw in fields_of(store, "e") if b"partner" in raw]

    assert [await operator.revoke(one.mark) for _ in range(2)] == [True, False]
    assert await operator.established() == []
    assert rung(await agent.in_session("two").send(PAT)) != "established"


@pytest.mark.parametrize("place", range(0, 56, 5))
async def test_an_altered_record_establishes_nobody(agent, operator, store, place):
    """Nor one that was copied to another receiver."""
    await play(agent, [*named(), *named(KIM)])
    fields = [(k, f, r) async for k, f, r in fields_of(store, "e") if f.endswith(b"E")]
    (key, field, first), (other_key, other, _) = fields
    await store.client.execute("HSET", other_key, other, first)
    broken = bytearray(first)
    broken[place % len(broken)] ^= 1
    await store.client.execute("HSET", key, field, bytes(broken))

    steps = [("in", "two"), ("send", PAT, "!established"), ("send", KIM, "!established")]
    await play(agent, steps)
    assert await operator.established() == []
