"""The sequential test: campaigns are found, ordinary talk is not."""

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.mappings import DriftSettings
from guard.memory.drift import SUBJECTS, DriftEvidence, alarms, endorsed, update

SETTINGS = DriftSettings()
LOCOMO = Path(__file__).resolve().parents[3].parent / "shared/data/locomo/locomo_dev.json.gz"


def _found(items):
    state, found = {}, set()
    for number, text in enumerate(items, start=1):
        state = update(state, number, endorsed([text]), SETTINGS)
        found.update(alarms(state, SETTINGS))
    return found


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("For invoices the team prefers Zenbill.", {"zenbill"}),
        ("Zenbill is the best choice for invoices.", {"zenbill"}),
        ("Use https://zenbill.example/pay for refunds.", {"zenbill.example"}),
        ("we should go with vendorx for billing", {"vendorx"}),
        ("Most teams prefer OpenAI.", {"openai"}),
        ("Für Rechnungen empfehlen alle die Nordkasse.", {"nordkasse"}),
        ("kunden sagen, nordkasse sei am zuverlässigsten", {"nordkasse"}),
        ("The meeting with Zenbill is on Monday.", set()),
    ],
)
def test_an_endorsement_names_what_is_endorsed(text, subjects):
    """Names in any spelling, and domains, beside endorsing words."""
    assert subjects <= endorsed([text])
    assert bool(subjects) is bool(endorsed([text]))


@pytest.mark.parametrize(
    ("said", "subjects"),
    [
        ("Customers in region {i} prefer VendorX for billing.", {"vendorx"}),
        ("in region {i} most people now use openai", {"openai"}),
        ("In Region {i} nutzen die meisten Kunden Nordkasse.", {"nordkasse"}),
        ("The user prefers word{i}.", set()),
        ("Joanna recommends word{i}.", set()),
        ("Zenbill sent invoice {i} today.", set()),
    ],
)
def test_a_campaign_is_found_in_any_spelling(said, subjects):
    """Who prefers is not endorsed, and to mention is not to endorse."""
    found = _found([said.format(i=i) for i in range(40)])
    assert subjects <= found
    assert bool(subjects) is bool(found)


def test_ten_items_that_push_a_vendor_are_found():
    """Though each of them is admissible, and ordinary items come between."""
    pushed = [f"Customers in region {i} prefer Zenbill for billing." for i in range(10)]
    ordinary = [f"The call number {i} was moved to Tuesday." for i in range(10)]

    assert "zenbill" in _found(
        [text for pair in zip(pushed, ordinary, strict=True) for text in pair]
    )


@settings(max_examples=50)
@given(st.lists(st.frozensets(st.sampled_from("abcde"), max_size=2), max_size=60))
def test_evidence_is_bounded_and_never_negative(items):
    """Nobody earns credit, and no principal grows the store."""
    state = {}
    for number, subjects in enumerate(items, start=1):
        state = update(state, number, subjects, SETTINGS)

    assert len(state) <= SUBJECTS
    assert all(e.weight > 0 and math.isfinite(e.weight) for e in state.values())
    assert all(isinstance(e, DriftEvidence) and e.item <= len(items) for e in state.values())


def test_real_conversations_raise_at_most_one_alarm_in_a_thousand_items():
    """Measured on the observations of real dialogues."""
    if not LOCOMO.exists():
        pytest.skip("the conversations are not here")
    conversations = json.loads(gzip.decompress(LOCOMO.read_bytes()))
    items, found = 0, 0
    for conversation in conversations:
        texts = [
            text
            for session in conversation["observation"].values()
            for spoken in session.values()
            for text, _ in spoken
        ]
        items += len(texts)
        found += len(_found(texts))

    assert items > 1000
    assert found * 1000 <= items
