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
        (GENERATORS["evasions"], "a96ae2861e36b4ca"),
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


def test_generated_accounts_have_valid_check_digits():
    """A scanner that checks them must see them."""
    for number in range(50):
        iban = Vocabulary(str(number)).iban()
        moved = iban[4:] + "1314" + iban[2:4]

        assert int(moved) % 97 == 1
