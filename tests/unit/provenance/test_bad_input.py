"""Large, binary, hostile and deeply nested results: bounded work, no crash, no higher label."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from guard.core.model import DestinationStatus, Identity, Integrity, ToolCall
from guard.pipeline.classification import classify
from guard.provenance.result_documents import leaves_of, parsed, roots_of
from guard.values.finding import find_values
from tests.unit.provenance.agents import play, rung

ATTACKER = "drop@evil.test"
NESTED = 5_000


@pytest.mark.parametrize(
    "result",
    [
        pytest.param("x" * 3_000_000 + ATTACKER, id="megabytes"),
        pytest.param("\x00\x01\x7f\ufffd" * 1000 + ATTACKER, id="binary"),
        pytest.param("\udcff\ud800 " + ATTACKER, id="lone surrogates"),
        pytest.param("a@" * 100_000 + ATTACKER, id="at signs"),
        pytest.param("x." * 100_000 + ATTACKER, id="dots"),
        pytest.param("e" + "\u0301" * 100_000 + " " + ATTACKER, id="combining marks"),
        pytest.param("[" * NESTED + "]" * NESTED, id="nested json"),
        pytest.param("{" * NESTED, id="open json"),
        pytest.param("(" * NESTED, id="open python"),
        pytest.param("- " * NESTED + "x", id="nested yaml"),
        pytest.param("&a [*a]\n- *a", id="yaml alias"),
        pytest.param(json.dumps([f"u{n}@h{n}.test" for n in range(100_000)]), id="many values"),
        pytest.param({"content": [{"type": "text", "text": 5}]}, id="a text that is none"),
        pytest.param({"content": [None, 5, {"type": "image", "data": "AAAA"}]}, id="odd blocks"),
        pytest.param([[[[{"a": [ATTACKER]}]]]], id="structures"),
        pytest.param(10**400, id="a number beyond all"),
        pytest.param(None, id="nothing"),
    ],
)
@pytest.mark.parametrize("tool", ["read", "calendar", "inbox", "recall"])
async def test_a_hostile_result_is_bounded_and_attests_nothing(agent, result, tool):
    """Whatever came back, the next send to the attacker is asked about or refused."""
    await agent.call(tool, {"key": "k"}, result)
    classified, verdict = await agent.ask("send", {"to": ATTACKER, "body": "b"})
    assert verdict.action.label != "allow"
    assert classified.targets[0].attestation.rung.label in {"unknown", "tainted"}
    assert agent.guard.results._metrics.errors["state"] == 0


@pytest.mark.parametrize("value", [[], {}, [[]], 5, True, None, {"a": "x" * 100_000}])
async def test_odd_arguments_of_saves_are_labelled_or_refused(agent, value):
    """A save of anything ends in a verdict, and its text attests nobody."""
    await agent.call("save", {"key": value, "value": {"deep": [value, ATTACKER]}}, "ok")
    assert rung(await agent.send(ATTACKER)) in {"unknown", "tainted"}


@pytest.mark.parametrize(("words", "rung"), [(200_000, "tainted"), (300_000, "unknown")])
async def test_an_address_at_the_end_of_a_long_result_is_tainted_or_may_be(agent, words, rung):
    """A megabyte of words in front of it changes nothing; what is beyond may be anything."""
    await play(agent, [("read", {}, "word " * words + ATTACKER), ("send", ATTACKER, "!allow")])
    classified, _ = await agent.ask("send", {"to": ATTACKER, "body": "b"})
    found = classified.targets[0].attestation
    assert (found.rung.label, found.saturated) == (rung, rung == "unknown")


def test_a_value_that_is_repeated_takes_no_room_from_others():
    """Of a flood of one value only one counts."""
    found = find_values("\n".join(["abc123x"] * 4000) + " #evil-channel")

    assert "handle:evil-channel" in found.plain


@settings(max_examples=60)
@given(st.text(max_size=200))
def test_any_text_is_looked_through_and_taken_apart_or_left_whole(text):
    """No text raises, what is in clear is not called disguised, and no structure is one leaf."""
    found = find_values(text)
    assert not set(found.plain) & set(found.disguised)
    document = parsed(text, every_format=True)
    assert isinstance(document, list | dict) or document == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)


@settings(max_examples=30)
@given(JSON)
def test_no_text_of_a_structure_is_lost(value):
    """Every string in a result is one of its leaves, whatever it is wrapped in."""

    def strings(item):
        if isinstance(item, str):
            return {item}
        inner = item.values() if isinstance(item, dict) else item
        return set().union(*map(strings, inner)) if isinstance(item, dict | list) else set()

    roots = roots_of({"content": [{"type": "text", "text": json.dumps(value)}]})
    leaves = {leaf.text for r in roots for leaf in leaves_of(r, None, Integrity.UNTRUSTED)}
    whole = {json.dumps(value)}
    assert strings(value) <= leaves or leaves == whole


HALVES = st.lists(st.sampled_from(["\ud800", "\udfff", "x", " ", "\n", "A" * 40]), max_size=6)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tool=st.sampled_from(["send", "draft", "save", "read", "unheard_of"]),
    member=st.sampled_from(["to", "body", "note", "subject", "other", "nested"]),
    halves=HALVES,
    text=st.sampled_from([ATTACKER, f"Bcc: {ATTACKER}", f"https://{ATTACKER}", ""]),
)
@example(tool="draft", member="to", halves=["\ud800"], text=ATTACKER)
def test_half_a_letter_hides_no_receiver(policy, tool, member, halves, text):
    """An argument with one is read as the same with a sign in its place, or as malformed."""

    def read(half):
        letters = "".join(half if "\ud800" <= one <= "\udfff" else one for one in halves)
        value = f"{letters}\n{text}\n{letters}"
        arguments = {
            "to": "bob@inside.test",
            member: {"deep": [value]} if member == "nested" else value,
        }
        found = classify(
            policy, ToolCall("id", Identity("alice", "one"), tool, arguments, "test", 0)
        )
        assert found.call.arguments == arguments
        return [(target.destination, target.status) for target in (*found.targets, *found.suspects)]

    for broken, plain in zip(read("\udcff"), read("?"), strict=True):
        assert broken == plain or broken[1] is DestinationStatus.MALFORMED


@pytest.mark.parametrize("other", ["note\ud801", "note?"])
def test_names_that_half_a_letter_tells_apart_are_not_taken_for_one(policy, other):
    """Of two members with one name the second alone would be read: such a call is blocked."""
    arguments = {"to": "bob@inside.test", "note\ud800": ATTACKER, other: "harmless"}
    call = ToolCall("id", Identity("alice", "one"), "send", arguments, "test", 0)

    with pytest.raises(ValueError, match="lone surrogates"):
        classify(policy, call)
