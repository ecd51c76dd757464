"""The rule type ``expression``."""

import pytest
from pydantic import ValidationError

from guard.core.policy import Action, Mode, Policy, decide


@pytest.mark.parametrize(
    ("when", "applies"),
    [
        ("args.amount > 100", True),
        ("args.amount > 1000", False),
        ("has(args.reason)", False),
        ("args.to.all(t, t.endsWith('@example.com'))", False),
        ("args.to.exists(t, t.endsWith('@example.com'))", True),
        ("tool.matches('^pay_') && role == 'send' && mapped", True),
        ("destinations.exists(d, d.standing == 'external' && d.kind == 'mail')", True),
        ("session.executed.recall > 0 && session.attempted.send == 0", True),
        ("owner.executed.recall > 0", False),
        ("session.executed.recall > 0 && size(session.attempted) == 7", True),
        ("['executed'].exists(k, session[k].recall == 1)", True),
        ("session.refused_in_a_row == 2 && owner.refused_in_a_row == 0", True),
        ("score > 0.5", True),
        ("facts.age < 7", True),
        ("has(facts.age) && !has(facts.name)", True),
        ("principal == 'p' && principal_rung == 'anonymous'", True),
        ("session_rung == 'connection' && protocol == 'mcp'", True),
    ],
)
def test_an_expression_sees_the_call(rule, situation, when, applies):
    """Every documented variable has the value its description says."""
    judged = situation(
        standings=["external"],
        tool="pay_out",
        arguments={"amount": 250, "to": ["a@example.com", "b@elsewhere.test"]},
        session=["recall"],
        refused_in_a_row=(2, 0),
        scores=[0.75],
        facts={"age": 3},
    )

    assert (rule("expression", when=when).match(judged) is not None) is applies


@pytest.mark.parametrize(
    "when",
    [
        "args.missing == 1",
        "args.text > 1",
        "1 / args.zero == 1",
        "int(args.text) == 1",
        "args.list[7] == 1",
        "args.text",
        "args.text.matches(args.bad)",
        "9223372036854775807 + args.one > 0",
        "args.nothing.x == 1",
        # A counter that does not exist is no false.
        "session.executed.sned > 0",
        "session.executed.recall.x > 0",
    ],
)
@pytest.mark.parametrize("effect", ["allow", "ask", "block"])
def test_an_expression_that_fails_blocks(rule, situation, when, effect):
    """Whatever goes wrong while it runs, the verdict is a block that names the rule.

    The engine's message may quote the call; the error does not.
    """
    arguments = {"text": "secret-7", "zero": 0, "list": [], "bad": "(", "one": 1, "nothing": None}
    judged = situation("other", arguments=arguments, session=["recall"])
    failing = rule("expression", effect, when=when)
    freeing = rule("tool", "allow").model_copy(update={"id": "free"})
    policy = Policy("p", "d", Mode.ENFORCE, (), (freeing, failing))

    verdict = decide(policy, judged)

    assert verdict.action is Action.BLOCK
    assert verdict.errors == ("rule `r`: ValueError",)
    assert verdict.reasons[0].code == "rule_error"
    with pytest.raises(ValueError, match=r"fails|gives a") as caught:
        failing.match(judged)
    assert "secret" not in f"{caught.value}{verdict}"
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("args.x ==", "not a CEL expression"),
        ("arg.x == 1", "unknown variable `arg`"),
        ("args.x.lowerAscii() == 'a'", "unknown function `lowerAscii`"),
        ("exec('x')", "unknown function `exec`"),
        ("tool.matches('(')", "matches"),
        ("tool.matches('((a{1000}){1000}){1000}')", "matches"),
        ("", "1 to 2000"),
        ("true || " * 400 + "true", "1 to 2000"),
        (5, "1 to 2000"),
        (True, "1 to 2000"),
    ],
)
def test_an_expression_is_checked_when_it_is_loaded(rule, when, message):
    """Misspelt names and broken regular expressions are found before any call is."""
    with pytest.raises(ValidationError, match=message):
        rule("expression", when=when)


def test_nested_macros_over_many_values_are_an_error(rule, situation):
    """A caller chooses the size of the arguments; it must not choose the time a rule takes."""
    nested = rule("expression", when="args.a.all(x, args.a.exists(y, x == y))")
    plain = rule("expression", when="args.a.all(x, x >= 0)")

    assert nested.match(situation(arguments={"a": list(range(100))})) is not None
    assert plain.match(situation(arguments={"a": list(range(5000))})) is not None
    # The engine of regular expressions does not backtrack.
    long = situation(arguments={"v": "a" * 200_000 + "b"})
    assert rule("expression", when="args.v.matches('^(a|aa)+$')").match(long) is None
    for judged, size in ((nested, 1000), (plain, 20_000)):
        with pytest.raises(ValueError, match="too many values"):
            judged.match(situation(arguments={"a": list(range(size))}))


@pytest.mark.parametrize("value", [None, "", " \n", [], {}, [{}], [[""], {"x": None}]])
def test_an_empty_member_is_a_missing_member(rule, situation, value):
    """`has` must not be true of a member that names nobody and says nothing."""
    judged = situation(arguments={"v": value, "o": {"v": value, "n": 0}, "l": [value, 1]})
    for when in ("!has(args.v)", "!has(args.o.v) && args.o.n == 0", "args.l[1] == 1"):
        assert rule("expression", when=when).match(judged) is not None
