"""The four promises of the PDP, with the rule types that ship and any situation."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core.calls import ActionAttestation, ClassifiedCall, Target, untraced
from guard.core.labels import RUNGS, ActionRung, Attestation, Rung
from guard.core.mappings import ToolMapping
from guard.core.model import Destination, DestinationStatus, Finding, Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Policy, Situation, decide
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.policy.rules import discover_rule_types

TYPES = discover_rule_types()


EMPTY = Policy("p", "digest", Mode.ENFORCE, (), ())


def _subset(enum):
    return st.lists(st.sampled_from(list(enum)), min_size=1, max_size=4, unique=True)


@st.composite
def rules(draw, effects=("allow", "redact", "ask", "block")):
    """Return one compiled rule of a shipped type."""
    kind = draw(st.sampled_from(["tool", "destination", "sequence", "score", "provenance"]))
    raw = {"id": draw(st.text("abc", min_size=1, max_size=4)), "type": kind}
    raw["effect"] = draw(st.sampled_from(effects))
    if draw(st.booleans()):
        raw["roles"] = draw(_subset(Role))
    if draw(st.booleans()):
        raw["tools"] = [draw(st.sampled_from(["*", "mail_*", "mail_send", "memory_*"]))]
    if draw(st.booleans()):
        raw["mapped"] = draw(st.booleans())
    if kind == "destination" or draw(st.booleans()):
        raw["status"] = draw(_subset(DestinationStatus))
    if kind == "provenance":
        raw["of"] = draw(st.sampled_from(["destinations", "guarded"]))
    if kind == "provenance" or draw(st.booleans()):
        raw["rungs"] = draw(_subset(RUNGS))
    if kind == "sequence":
        raw["after"] = draw(_subset(Role))
        raw["scope"] = draw(st.sampled_from(["session", "principal", "both"]))
    if kind == "score":
        raw |= {"model": "prefix-13", "at_least": draw(st.sampled_from([0.25, 0.5, 1.0]))}
    return TYPES[kind].model_validate_json(json.dumps(raw))


WINDOWS = st.lists(st.sampled_from(list(Role)), max_size=4).map(
    lambda roles: Window(Trajectory.of(roles), attempted=Trajectory.of(roles).executed)
)
TARGETS = st.lists(
    st.builds(
        Target,
        st.just(Destination("mail", "a@b.example")),
        st.sampled_from(list(DestinationStatus)),
        st.just("$.to"),
        st.none() | st.sampled_from(list(Rung)).map(lambda rung: Attestation(rung, "drawn")),
    ),
    max_size=3,
).map(tuple)


@st.composite
def situations(draw):
    """Return a call with targets, the state before it and perhaps a score."""
    tool = draw(st.sampled_from(["mail_send", "memory_read", "other"]))
    call = ToolCall("id", Identity("p", "s"), tool, {}, "mcp", 0.0)
    mapped = draw(st.booleans())
    role = draw(st.sampled_from(list(Role))) if mapped else Role.OTHER
    score = draw(st.none() | st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    found = (
        () if score is None else (Finding("d", "prefix_score", score, data={"model": "prefix-13"}),)
    )
    # A policy has one mapping for the calls of one role to one tool.
    mapping = ToolMapping("*", bool, role, may_lack_receivers=tool == "other") if mapped else None
    classified = ClassifiedCall(
        call,
        role,
        mapping,
        targets=draw(TARGETS) * draw(st.sampled_from([1, 9])),
        guarded=draw(TARGETS),
        contested=draw(st.booleans()),
    )
    return Situation(
        untraced(classified),
        Snapshot(draw(WINDOWS), draw(WINDOWS)),
        found,
    )


class Broken:
    """A rule that raises; its effect says allow, which must not matter."""

    id = "broken"
    effect = Action.ALLOW

    def __init__(self, error):
        self._error = error

    def match(self, situation):
        raise self._error


@given(chosen=st.lists(rules(), max_size=6), situation=situations(), data=st.data())
def test_the_order_of_the_rules_never_changes_a_verdict(chosen, situation, data):
    """The whole verdict is the same, its reasons and their order included."""
    shuffled = data.draw(st.permutations(chosen))

    one = decide(replace(EMPTY, rules=tuple(chosen)), situation)
    other = decide(replace(EMPTY, rules=tuple(shuffled)), situation)

    assert one.action is other.action
    assert one.decided_by == other.decided_by
    assert sorted(map(repr, one.reasons)) == sorted(map(repr, other.reasons))
    assert sorted(one.errors) == sorted(other.errors)


@given(
    chosen=st.lists(rules(), max_size=6),
    added=rules(effects=("block",)),
    situation=situations(),
)
def test_adding_a_rule_that_blocks_never_frees_a_call(chosen, added, situation):
    """The verdict with the rule is at least as strict as without it."""
    without = decide(replace(EMPTY, rules=tuple(chosen)), situation)
    assert decide(replace(EMPTY, rules=(*chosen, added)), situation).action >= without.action


@given(chosen=st.lists(rules(), max_size=6), situation=situations())
def test_a_grant_answers_questions_and_nothing_else(chosen, situation):
    """A call that is blocked stays blocked, and one that is asked about passes."""
    policy = replace(EMPTY, rules=tuple(chosen))
    before = decide(policy, situation)
    after = decide(policy, replace(situation, granted=True))

    assert after.action is Action.BLOCK or before.action is not Action.BLOCK
    assert after.action is not Action.ASK


def test_a_verdict_has_the_highest_score_and_every_fact():
    """A finding of another kind has no score."""
    call = ToolCall("id", Identity("p", "s"), "t", {}, "mcp", 0.0)
    found = [Finding("d", "prefix_score", score) for score in (0.3, 0.7, 0.2)]
    found += [Finding("d", "other", 0.9, facts={"a": 1}), Finding("e", "other", facts={"b": 2})]
    situation = Situation(untraced(ClassifiedCall(call, Role.SEND)), Snapshot(), tuple(found))
    verdict = decide(EMPTY, situation)
    assert (verdict.score, verdict.facts) == (0.7, {"a": 1, "b": 2})


@given(situation=situations(), chosen=st.lists(rules(effects=("allow",)), max_size=4))
def test_without_a_policy_without_rules_or_after_an_error_a_call_is_blocked(situation, chosen):
    """There is no default that allows; errors of state or detectors beat every rule."""
    assert decide(None, situation).enforced is Action.BLOCK
    assert decide(EMPTY, situation).reasons[0].code == "no_rule_matched"
    failed = replace(situation, errors=("state: StateError",))
    for policy in (EMPTY, replace(EMPTY, rules=tuple(chosen))):
        assert decide(policy, failed).action is Action.BLOCK


@given(
    chosen=st.lists(rules(), max_size=4),
    error=st.sampled_from([ValueError("x"), KeyError("x"), RecursionError(), MemoryError()]),
    situation=situations(),
)
def test_a_rule_that_raises_never_allows(chosen, error, situation):
    """The call is blocked, the rule named, and the error's text kept out of the verdict."""
    verdict = decide(replace(EMPTY, rules=(*chosen, Broken(error))), situation)

    assert verdict.action is Action.BLOCK
    assert "broken" in verdict.decided_by
    assert f"rule `broken`: {type(error).__name__}" in verdict.errors


class Asked:
    """A rule without filters to ask it by: the PDP always asks it."""

    def __init__(self, rule):
        self.id, self.effect, self.match = rule.id, rule.effect, rule.match
        self.roles = rule.roles


@given(chosen=st.lists(rules(), max_size=6), calls=st.lists(situations(), min_size=1, max_size=5))
def test_a_rule_that_is_not_asked_would_have_said_nothing(chosen, calls):
    """What is remembered of one call never changes the verdict on another."""
    policy = replace(EMPTY, rules=tuple(chosen))
    thorough = replace(EMPTY, rules=tuple(map(Asked, chosen)))

    for situation in calls:
        assert decide(policy, situation) == decide(thorough, situation)


@pytest.mark.parametrize(
    ("kind", "fields", "found"),
    [
        ("definition", {}, {"redefined": True}),
        ("action", {}, {"action": ActionAttestation("delete", ActionRung.TAINTED, "x")}),
        ("capacity", {"bits": 50}, {"carried": 99}),
    ],
)
def test_a_rule_that_was_left_out_is_asked_once_there_is_something_to_say(kind, fields, found):
    """What is remembered of calls without a finding is not used for a call with one."""
    raw = {"id": "r", "type": kind, "effect": "block", **fields}
    policy = replace(EMPTY, rules=(TYPES[kind].model_validate_json(json.dumps(raw)),))
    call = ToolCall("id", Identity("p", "s"), "mail_send", {}, "mcp", 0.0)
    plain = Situation(untraced(ClassifiedCall(call, Role.SEND)), Snapshot(), ())
    for _ in range(3):
        assert decide(policy, plain).decided_by == ()

    assert decide(policy, replace(plain, call=replace(plain.call, **found))).decided_by == ("r",)


@given(situation=situations())
def test_a_rule_whose_filters_raise_is_asked_and_blocks(situation):
    """An error in what was meant to save work is an error of the rule."""
    rule = Broken(ValueError("x"))
    rule.concerns = lambda call: 1 / 0

    assert decide(replace(EMPTY, rules=(rule,)), situation).action is Action.BLOCK


@given(chosen=st.lists(rules(), max_size=6), situation=situations())
def test_the_strictest_rule_that_matches_wins(chosen, situation):
    """Block beats ask beats redact beats allow, and the winners are named."""
    verdict = decide(replace(EMPTY, rules=tuple(chosen)), situation)
    effects = [reason.action for reason in verdict.reasons]

    assert verdict.action is max(effects)
    assert effects == sorted(effects, reverse=True)


@given(situation=situations())
def test_no_allowing_rule_frees_what_nobody_can_mean(situation):
    """A denied, malformed or missing destination passes no rule that allows everything."""
    allow = TYPES["tool"].model_validate_json('{"id": "a", "type": "tool", "effect": "allow"}')
    standings = {target.status for target in situation.call.targets}
    if standings & {
        DestinationStatus.DENIED,
        DestinationStatus.MALFORMED,
        DestinationStatus.MISSING,
    }:
        assert decide(replace(EMPTY, rules=(allow,)), situation).action is Action.BLOCK
