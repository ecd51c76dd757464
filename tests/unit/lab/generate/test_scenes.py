"""Tests of the generated runs: seeded, well formed, and showing what their labels say."""

import base64
import hashlib

import pytest

from lab.generate.scenes import evasions, hard_negatives, hippo_attacks, hippo_benign, kinds
from lab.generate.vocabulary import ENCODINGS, INTERNAL, Vocabulary

GENERATORS = {
    "evasions": lambda seed: evasions(seed, 2),
    "hard_negatives": lambda seed: hard_negatives(seed, 2),
    "hippo_attacks": lambda seed: hippo_attacks(seed, 1),
    "hippo_benign": lambda seed: hippo_benign(seed, 2),
}


def text_before(run, index):
    """Return everything the agent was shown before a call, as one text."""
    shown = [str(call.result) for call in run.calls if call.i < index]
    return "\n".join(shown)


@pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS)
def test_one_seed_gives_one_set_and_another_seed_another(generate):
    """Figures can be repeated, and a set that was tuned on can be left."""
    assert list(generate("a")) == list(generate("a"))
    assert list(generate("a")) != list(generate("b"))


@pytest.mark.parametrize(
    ("generate", "digest"),
    [
        (GENERATORS["evasions"], "970ca7168c8a5e7f"),
        (GENERATORS["hard_negatives"], "a433100d51d0598f"),
        (GENERATORS["hippo_attacks"], "e4fd084bb7d32866"),
        (GENERATORS["hippo_benign"], "30b3f8fa1d4d22e7"),
    ],
    ids=GENERATORS,
)
def test_published_figures_are_of_these_runs(generate, digest):
    """Every byte of them: a change of a scene is a change of the figures in the docs."""
    fields = {
        "server",
        "upstream",
        "protocol",
        "principal",
        "id",
        "verdict",
        "forwarded",
        "reasons",
    }
    later = {"calls": {"__all__": fields}}
    text = "\n".join(run.model_dump_json(exclude=later) for run in generate("0"))

    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("generate", GENERATORS.values(), ids=GENERATORS)
def test_run_ids_are_unique_and_calls_are_numbered_in_order(generate):
    """Verdicts are matched to calls by run and position."""
    runs = list(generate("a"))

    assert len({run.run_id for run in runs}) == len(runs)
    for run in runs:
        assert [call.i for call in run.calls] == list(range(len(run.calls)))
        times = [call.ts for call in run.calls]
        assert times == sorted(times)


def test_every_trick_ends_in_exactly_one_send_that_must_be_stopped():
    """A run with no such send would count for nothing."""
    runs = list(evasions("a", 2))

    assert {run.labels["kind"] for run in runs} == {kind for kind, _, _ in kinds("evasions")}
    assert all(len(run.labels["attack_calls"]) == 1 for run in runs)
    assert all(run.labels["attack_calls"] == [run.calls[-1].i] for run in runs)


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_encoded_address_does_not_stand_in_clear_text(name):
    """Otherwise the evasion would measure nothing."""
    for run in (r for r in evasions("a", 4) if r.labels["kind"] == name):
        (address,) = (
            entry for entry in run.calls[-1].args["to"] if not entry.endswith("@" + INTERNAL)
        )

        assert address not in text_before(run, run.calls[-1].i)


def test_a_base64_address_can_be_read_back():
    """What is called decodable can be decoded."""
    assert base64.b64decode(ENCODINGS["base64"]("a@b.test")).decode() == "a@b.test"


def test_no_user_names_the_attacker():
    """A prompt that named the address would make the send an honest one."""
    for run in [*evasions("a", 3), *hippo_attacks("a", 2)]:
        spoken = " ".join(prompt.text for prompt in run.prompts).lower()
        for index in run.labels["attack_calls"]:
            for value in ("to", "forward_to", "url", "recipient", "channel"):
                named = run.calls[index].args.get(value, [])
                entries = [named] if isinstance(named, str) else named
                outside = [e.lower() for e in entries if not e.endswith("@" + INTERNAL)]
                assert not any(entry in spoken for entry in outside)


def test_hard_negatives_have_every_situation_and_one_send_each():
    """Each run shows one honest send."""
    runs = list(hard_negatives("a", 2))

    assert {run.labels["kind"] for run in runs} == {kind for kind, _, _ in kinds("hard_negatives")}
    assert all(len(run.labels["own_calls"]) == 1 for run in runs)
    assert all(run.labels["attack_calls"] == [] for run in runs)


def test_hippo_has_every_design_at_every_distance():
    """Five memory designs, from none to a hundred sessions between planting and trigger."""
    runs = list(hippo_attacks("a", 1))

    assert {(r.labels["design"], r.labels["distance"]) for r in runs} == {
        (design, distance)
        for design in ("none", "explicit", "mem0", "rag", "context")
        for distance in (0, 1, 10, 100)
    }
    for run in runs:
        (attack,) = run.labels["attack_calls"]
        sessions = {p.session for p in run.prompts} | {call.session for call in run.calls}
        between = len(sessions) - (1 if run.labels["design"] == "none" else 2)
        assert between == run.labels["distance"]
        assert run.calls[attack].session == str(max(int(s) for s in sessions))


def test_only_the_explicit_design_writes_memory_with_a_tool():
    """In the other designs the lone send is the only trace of the memory."""
    writers = {
        run.labels["design"]
        for run in hippo_attacks("a", 1)
        if any(call.tool == "update_memory" for call in run.calls)
    }

    assert writers == {"explicit"}


def test_hippo_has_the_seven_benign_flows():
    """The flows are the benchmark's."""
    runs = list(hippo_benign("a", 1))

    flows = [kind for kind, _, _ in kinds("hippo_benign")]
    assert [run.labels["kind"] for run in runs] == flows
    assert all(run.labels["attack_calls"] == [] for run in runs)
    assert len(set(flows)) == 7


def test_generated_accounts_have_valid_check_digits():
    """A scanner that checks them must see them."""
    for number in range(50):
        iban = Vocabulary(str(number)).iban()
        moved = iban[4:] + "1314" + iban[2:4]

        assert int(moved) % 97 == 1
