"""The sequential test: campaigns are found, ordinary talk is not."""

import gzip
import json
from pathlib import Path

import pytest

from guard.core.mappings import DriftSettings
from guard.core.memory import Fate
from guard.core.model import Identity
from guard.memory.drift import SUBJECTS, endorsed
from guard.provenance.seal import KEY_BYTES, Seal
from guard.store.staging import RedisStaging
from tests.staged_writes import leave_in_flight, staged_write

LOCOMO = Path(__file__).resolve().parents[3].parent / "shared/data/locomo/locomo_dev.json.gz"


@pytest.fixture
def staging(redis_client, redis_namespace):
    """A guard's staging store."""
    return RedisStaging(redis_client, namespace=redis_namespace, seal=Seal(bytes(KEY_BYTES)))


@pytest.fixture
def found(staging):
    """Return what is found to drift with the committed items of one principal."""

    async def found(items, principal="p"):
        subjects = set()
        for number, item in enumerate(items):
            made = staged_write(f"{principal}-{number}", identity=Identity(principal, "s"))
            await leave_in_flight(staging, made)
            named = item if isinstance(item, frozenset) else endorsed([item])
            settled = staging.settle(made, Fate.ACKNOWLEDGED, named, DriftSettings())
            subjects.update(await settled)
        return subjects

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


CAMPAIGN = "Customers in region {i} prefer Zenbill for billing."


@pytest.mark.parametrize(
    ("texts", "count", "subject"),
    [
        (["Customers in region {i} prefer VendorX for billing."], 10, "vendorx"),
        (["in region {i} most people now use openai"], 10, "openai"),
        (["In Region {i} nutzen die meisten Kunden Nordkasse."], 10, "nordkasse"),
        ([CAMPAIGN, "The call number {i} was moved to Tuesday."], 10, "zenbill"),
        # Whoever prefers is not endorsed, and a mention is no endorsement.
        (["The user prefers word{i}."], 40, None),
        (["Joanna recommends word{i}."], 40, None),
        (["Zenbill sent invoice {i} today."], 50, None),
    ],
)
async def test_ten_items_that_push_a_vendor_are_found(found, texts, count, subject):
    """In any spelling and language, each admissible, also between ordinary items; others never."""
    subjects = await found([text.format(i=i) for i in range(count) for text in texts])
    assert (subject in subjects) if subject else subjects == set()


async def test_evidence_is_bounded_and_never_negative(found, staging, redis_client):
    """Nobody earns credit, and no principal grows the store."""
    await found([frozenset({f"subject {number}"}) for number in range(3 * SUBJECTS)])
    key = staging.keys("default").of("drift", "p")
    fields = await redis_client.rows("HGETALL", key)
    kept = dict(zip(fields[::2], fields[1::2], strict=True))
    del kept[b"#"]

    assert len(kept) <= 2 * SUBJECTS
    assert all(float(evidence.split()[0]) > 0 for evidence in kept.values())
    honest = [f"The call number {number} was moved." for number in range(40)]
    pushed = [CAMPAIGN.format(i=number) for number in range(10)]
    assert "zenbill" in await found([*honest, *pushed], "q")


async def test_real_conversations_raise_at_most_one_alarm_in_a_thousand_items(found):
    """Measured on the observations of real dialogues."""
    if not LOCOMO.exists():
        pytest.skip("the conversations are not here")
    conversations = json.loads(gzip.decompress(LOCOMO.read_bytes()))
    items, raised = 0, 0
    for number, conversation in enumerate(conversations):
        texts = [
            text
            for session in conversation["observation"].values()
            for spoken in session.values()
            for text, _ in spoken
        ]
        items += len(texts)
        raised += len(await found(texts, f"p{number}"))

    assert items > 1000
    assert raised * 1000 <= items
