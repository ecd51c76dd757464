"""The services of a handle in its record, in imports and in a policy."""

import json

import pytest

from guard.core.labels import Channel, LabelRecord
from guard.core.model import Integrity
from guard.core.policy import StateLimits
from guard.provenance.imports import import_writes, read_items
from guard.provenance.label_sets import ATTESTED, LabelSets
from guard.provenance.ladder import bound, lasting_services, services_of
from guard.provenance.seal import ANY_SERVICE, KEY_BYTES, Seal

SEAL = Seal(b"k" * KEY_BYTES)
OWN = SEAL.service("place", "", "bank")


def _record(services=(), source="tool"):
    return LabelRecord(
        Integrity.AUTHENTICATED, Channel.DIRECTORY, 1, 5.0, bytes(8), source, services=services
    )


@pytest.mark.parametrize("services", [(), (OWN,), (OWN, SEAL.service("chat")), (ANY_SERVICE,)])
def test_a_record_keeps_its_services_under_its_seal(services):
    """They come back as they were written, and a changed one breaks the seal."""
    area = LabelSets(StateLimits()).memory("t", b"f" * 12)
    field, raw = SEAL.write(area, b"f" * 12 + ATTESTED, _record(services))

    assert SEAL.read(area, field, raw) == _record(services)
    if services:
        at = raw.index(services[0])
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        assert not SEAL.read(area, field, changed).sealed


def test_what_a_record_says_of_services_holds_and_nothing_else():
    """A handle without one vouches nowhere, a user's word everywhere, a tool's name names none."""
    said = LabelRecord(Integrity.TRUSTED, Channel.PROMPT, -1, 5.0, bytes(8), "prompt")
    area = LabelSets(StateLimits()).memory("t", b"f" * 12)
    named = SEAL.write(area, b"f" * 12, _record(source="tool\0" + "\0" * 8))

    assert SEAL.read(area, *named).services == ()
    assert bound(_record()).services == (b"",)
    assert bound(_record((OWN,))).services == lasting_services(_record((OWN,))) == (OWN,)
    assert lasting_services(said) == (ANY_SERVICE,)


@pytest.mark.parametrize(
    ("value", "kinds", "services"),
    [
        ("mail:ann@partner.test", frozenset(), ()),
        ("handle:004915112345678", frozenset({"phone"}), (ANY_SERVICE,)),
        ("handle:004915112345678", frozenset({"handle"}), (OWN, SEAL.service("chat"))),
        ("handle:c0123", frozenset({"phone"}), (OWN, SEAL.service("chat"))),
    ],
)
def test_mailboxes_and_declared_phones_are_the_same_everywhere(value, kinds, services):
    """Any other handle is valid in its own service, and in those that the field names."""
    assert services_of(SEAL, value, OWN, ("chat",), kinds) == services


@pytest.mark.parametrize(("named", "services"), [(["bank"], (SEAL.service("bank"),)), (None, ())])
def test_an_import_names_the_services_of_its_handles(named, services):
    """Left out, the handles in it vouch nowhere; its mailboxes do in any case."""
    item = {"store": "facts", "value": "DE89370400440532013000", "label": "authenticated"}
    items = read_items(json.dumps([item if named is None else {**item, "for": named}]))

    writes = import_writes(SEAL, LabelSets(StateLimits()), "t", items, 5.0)

    [(field, raw)] = {entry for write in writes for entry in write.entries}
    assert SEAL.read(writes[0].area, field, raw).services == services


def test_a_mapping_belongs_to_the_service_of_the_one_it_stands_before(policy_from):
    """So a file may correct one tool of a shipped policy, and a server needs no name twice."""
    policy = policy_from("""
version: 1
name: mine
extends: [builtin:slack, builtin:bank]
servers:
  - name: chat
    listener: 127.0.0.1:9001
    profile: builtin:slack
    tools: [{match: [slack_announce], role: send, destinations: ["$.to"]}]
tools:
  - {match: [slack_post_message], role: send, destinations: ["$.channel_id"], body: ["$.text"]}
  - {match: [something_else], role: send, destinations: ["$.to"]}
""")

    assert policy.mapping("slack_post_message").service == "slack"
    assert policy.mapping("something_else").service == ""
    assert policy.mapping("slack_announce", "127.0.0.1:9001").service == "slack"
