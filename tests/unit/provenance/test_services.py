"""The services of a handle in its record, in imports and in a policy."""

import json

import pytest

from guard.core.errors import PolicyError
from guard.core.labels import Channel, LabelRecord
from guard.core.model import Integrity
from guard.core.policy import StateLimits
from guard.policy import load_policies
from guard.provenance.imports import import_writes, read_items
from guard.provenance.label_sets import ATTESTED, LabelSets
from guard.provenance.ladder import bound, lasting_services, services_of
from guard.provenance.seal import ANY_SERVICE, KEY_BYTES, Seal

SEAL = Seal(b"k" * KEY_BYTES)
OWN = SEAL.service("place", "", "bank")
POLICY = """
version: 1
name: services
tools:
  - match: [people]
    role: retrieve
    service: people
    fields: [{path: "$[*].iban", as: directory, writer: owner, kinds: [handle]%s}]
  - {match: [pay], role: send, service: bank, destinations: ["$.to"]}
rules: [{id: all, type: tool, roles: [retrieve, send], effect: allow}]
"""


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


def test_the_name_of_a_tool_is_no_service():
    """What a server calls its tool cannot end in a mark."""
    area = LabelSets(StateLimits()).memory("t", b"f" * 12)
    field, raw = SEAL.write(area, b"f" * 12, _record(source="tool\0" + "\0" * 8))

    assert SEAL.read(area, field, raw).services == ()


def test_a_handle_without_a_service_vouches_nowhere():
    """So a record of an older version, or of an import that names none, does not."""
    assert bound(_record()).services == (b"",)
    assert bound(_record((OWN,))).services == (OWN,)


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


def test_a_users_word_is_saved_for_every_service():
    """What a directory said keeps the services of its record."""
    said = LabelRecord(Integrity.TRUSTED, Channel.PROMPT, -1, 5.0, bytes(8), "prompt")

    assert lasting_services(said) == (ANY_SERVICE,)
    assert lasting_services(_record((OWN,))) == (OWN,)


@pytest.mark.parametrize(("named", "services"), [(["bank"], (SEAL.service("bank"),)), (None, ())])
def test_an_import_names_the_services_of_its_handles(named, services):
    """Left out, the handles in it vouch nowhere; its mailboxes do in any case."""
    item = {"store": "facts", "value": "DE89370400440532013000", "label": "authenticated"}
    items = read_items(json.dumps([item if named is None else {**item, "for": named}]))

    writes = import_writes(SEAL, LabelSets(StateLimits()), "t", items, 5.0)

    [(field, raw)] = {entry for write in writes for entry in write.entries}
    assert SEAL.read(writes[0].area, field, raw).services == services


@pytest.mark.parametrize("named", ["bank", [1]])
def test_services_of_an_import_are_a_list_of_names(named):
    """Anything else is refused with the number of its item."""
    item = {"store": "facts", "value": "x", "label": "advisory", "for": named}

    with pytest.raises(ValueError, match=r"item 0: .*services in `for`"):
        read_items(json.dumps([item]))


@pytest.mark.parametrize(
    ("named", "warned"),
    [("", True), (", for: [bank]", False), (", kinds: [phone]", False)],
)
def test_a_directory_that_no_send_can_use_is_warned_of(policy_from, named, warned):
    """Its author may think that it vouches for what another service is told."""
    text = POLICY % named if "kinds" not in named else POLICY.replace(", kinds: [handle]%s", named)

    messages = [problem.message for problem in policy_from(text).source.warnings]

    assert [one for one in messages if "name the services that take them" in one] == (
        messages if warned else []
    )
    assert len(messages) == warned


def test_directories_of_no_named_service_are_warned_of(tmp_path):
    """One of a kind needs no name; two may be of two services."""
    path = tmp_path / "policy.yaml"
    text = (POLICY % "").replace("    service: people\n", "").replace("service: bank, ", "")
    path.write_text(text, encoding="utf-8")
    assert not load_policies([path]).source.warnings

    rooms = """  - match: [rooms]
    role: retrieve
    fields: [{path: "$[*]", as: directory, writer: owner}]
rules:"""
    other = text.replace("rules:", rooms)
    path.write_text(other, encoding="utf-8")

    messages = [problem.message for problem in load_policies([path]).source.warnings]
    assert len(messages) == 2
    assert all("write `service: NAME`" in one for one in messages)


def test_an_unknown_service_is_a_problem(policy_from):
    """It would open nothing, and its author would not know."""
    with pytest.raises(PolicyError, match="no tool is of a service or server `bnak`"):
        policy_from(POLICY % ", for: [bnak]")


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
