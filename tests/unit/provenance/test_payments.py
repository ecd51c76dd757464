"""A remembered payee is good up to the approved amount, in the approved currency."""

import random
import re
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from types import SimpleNamespace

import pytest

from guard.core.errors import GuardError
from guard.operations.labels import unkept
from guard.provenance import payments, tracing
from guard.provenance.approvals import Grant, Scope

POLICY = """
version: 1
name: bank
extends: builtin:office@2
tools:
  - match: [pay]
    role: send
    action: pay
    destinations: ["$.to"]
    ignore: ["$.amount", "$.currency"]
    amount: "$.amount"
    currency: "$.currency"
  - {match: [transfer], role: send, action: pay, destinations: ["$.to"], ignore: ["$.amount"]}
"""
PAID = {"to": "NL91ABNA0417164300", "amount": 10, "currency": "EUR"}


async def remembered(world, tool, arguments, limit=""):
    """Have a payment approved and remembered."""
    asked, now = await world.agent().call(tool, arguments), world.clock.now()
    grant = Grant(Scope.PRINCIPAL, now + 3600, limit=limit)
    await world.operator.approve(asked.decision_id, now, grant)
    assert (await world.agent().call(tool, arguments)).forwarded


@pytest.mark.parametrize(
    ("limit", "changed", "verdict"),
    [
        ("", {}, "allow"),
        ("", {"amount": 9.99}, "allow"),
        ("", {"amount": "10.00", "currency": "eur"}, "allow"),
        ("", {"amount": 10.01}, "ask"),
        ("", {"amount": 9999}, "ask"),
        ("", {"amount": "9999"}, "ask"),
        ("", {"amount": "1e4"}, "ask"),
        ("", {"amount": -5}, "ask"),
        ("", {"amount": [1, 9999]}, "ask"),
        ("", {"amount": None}, "ask"),
        ("", {"amount": "ten"}, "ask"),
        ("", {"currency": "BTC"}, "ask"),
        ("", {"currency": None}, "ask"),
        ("", {"to": "DE89370400440532013000"}, "ask"),
        ("500", {"amount": 500}, "allow"),
        ("500", {"amount": 500.01}, "ask"),
        ("500", {"amount": 1, "currency": "BTC"}, "ask"),
        ("5", {"amount": 10}, "ask"),
    ],
)
async def test_a_remembered_payee_is_good_up_to_the_amount(world, limit, changed, verdict):
    """More money, another currency and an amount that cannot be read are asked about.

    The limit of a person replaces the amount of the approved payment, in its currency.
    """
    await remembered(world, "pay", PAID, limit)
    assert (await world.agent(session="s2").call("pay", PAID | changed)).verdict == verdict


async def test_only_one_payment_has_a_limit(world):
    """An answer that would lose its limit is refused: a mail has none, two payments may differ."""
    now = world.clock.now()
    grant = Grant(Scope.PRINCIPAL, now + 60, limit="5")
    mail = {"to": "new@partner.test", "subject": "s", "body": "b"}
    asked = await world.agent().call("email_send_email", mail)
    with pytest.raises(GuardError, match="not one payment"):
        await world.operator.approve(asked.decision_id, now, grant)
    await world.approve(asked.decision_id)

    asked = await world.agent().call("pay", PAID)
    request = await world.operator.asked(asked.decision_id)
    assert not unkept(request, grant)
    assert "not one payment" in unkept(replace(request, calls=request.calls * 2), grant)


async def test_without_a_declared_amount_or_its_comparison_nothing_bounds_it(world, monkeypatch):
    """So a tool that declares none is asked about each time; switched off, 9,999 EUR pass."""
    arguments = {"to": PAID["to"], "amount": 10}
    await remembered(world, "transfer", arguments)
    assert (await world.agent(session="s2").call("transfer", arguments)).verdict == "ask"
    monkeypatch.setattr(tracing, "within", lambda *_: True)
    await remembered(world, "pay", PAID)
    more = PAID | {"amount": 9999}
    assert (await world.agent(session="s2").call("pay", more)).verdict == "allow"


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "", "0x10", True, {}])
def test_what_is_no_amount_is_within_nothing(amount):
    """Neither as the payment nor as the limit."""
    assert not payments.within(f"{amount} EUR", "100 EUR")
    assert not payments.within("1 EUR", f"{amount} EUR")


def paid(amount):
    """Return the amount of a payment as a record has it."""
    path = SimpleNamespace(find=lambda arguments: [("$.amount", arguments["amount"])])
    action = SimpleNamespace(name="pay", amount=path, currency=None)
    call = SimpleNamespace(arguments={"amount": amount})
    return payments.amount_of(SimpleNamespace(mapping=SimpleNamespace(action=action), call=call))


def by_prefix(text):
    """Read what stands before the first other sign, as programs do that forgive."""
    return Decimal(re.match(r"\s*[0-9]*\.?[0-9]*", text)[0])


def by_groups(text):
    """Read a dot between groups of three digits as their separator."""
    grouped = re.fullmatch(r"[0-9]{1,3}(\.[0-9]{3})+", text.strip())
    return Decimal(text.replace(".", "") if grouped else text)


@pytest.mark.parametrize("off", [False, True], ids=["", "off"])
def test_an_amount_that_two_programs_read_otherwise_is_not_remembered(monkeypatch, off):
    """Three readers agree on each amount that can be remembered; not so on all that one reads."""
    if off:
        monkeypatch.setattr(payments, "_PLAIN", re.compile(r"(?s).*"))
    rng, differ = random.Random(1), False
    texts = (
        "".join(rng.choices("0123456789.._e \uff11", k=rng.randint(1, 7))) for _ in range(4000)
    )
    known = {text: paid(text) for text in texts if paid(text) != payments.UNKNOWN}
    for text, amount in known.items():
        for reader in (Decimal, by_prefix, by_groups):
            with suppress(InvalidOperation):
                differ |= reader(text) != Decimal(amount)
    assert differ is off
    assert len(known) > 100
    assert paid(10.125) == "10.125 "
