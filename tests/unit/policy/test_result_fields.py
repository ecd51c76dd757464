"""Result fields in a policy: who writes them, and what older spellings mean now."""

import pytest

from guard.core.labels import Channel
from guard.core.model import Integrity
from guard.policy import PolicyError, load_policies
from guard.policy.inheritance import load_file
from guard.settings import builtin_policies

POLICY = """version: 1
name: fields
tools:
  - match: [contacts]
    role: retrieve
    fields:
      - {field}
rules:
  - {{id: a, type: tool, effect: allow}}
"""


@pytest.mark.parametrize(
    ("field", "channel", "label"),
    [
        ('{path: "$.a", as: directory, writer: owner}', Channel.DIRECTORY, Integrity.AUTHENTICATED),
        (
            '{path: "$.a", as: own_record, writer: service}',
            Channel.OWN_RECORD,
            Integrity.AUTHENTICATED,
        ),
        (
            '{path: "$.a", as: own_record, writer: owner}',
            Channel.OWN_RECORD,
            Integrity.AUTHENTICATED,
        ),
        ('{path: "$.a", as: directory}', Channel.COUNTERPARTY, Integrity.UNTRUSTED),
        ('{path: "$.a", as: own_record}', Channel.COUNTERPARTY, Integrity.UNTRUSTED),
        ('{path: "$.a", as: counterparty}', Channel.COUNTERPARTY, Integrity.UNTRUSTED),
        (
            '{path: "$.a", as: counterparty, writer: agent}',
            Channel.COUNTERPARTY,
            Integrity.UNTRUSTED,
        ),
        ('{path: "$.a", label: trusted}', Channel.COUNTERPARTY, Integrity.UNTRUSTED),
        ('{path: "$.a", label: authenticated}', Channel.COUNTERPARTY, Integrity.UNTRUSTED),
        ('{path: "$.a", label: advisory}', Channel.RESULT, Integrity.ADVISORY),
    ],
)
def test_a_field_has_a_writer(load, field, channel, label):
    """A label of older policies promises no more than that somebody said it."""
    [found] = load(POLICY.format(field=field)).tools[0].fields

    assert (found.channel, found.label) == (channel, label)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('{path: "$.a"}', "say who can write the field"),
        (
            '{path: "$.a", as: directory, writer: owner, label: trusted}',
            "say who can write the field",
        ),
        (
            '{path: "$.a", as: counterparty, kinds: [mail]}',
            "`name`, `kinds` and `for` belong to a field",
        ),
        (
            '{path: "$.a", as: counterparty, name: "$.n"}',
            "`name`, `kinds` and `for` belong to a field",
        ),
        ('{path: "$.a", as: contact_list}', "must be `directory`, `own_record` or `counterparty`"),
        ('{path: "$.a", ass: directory}', "unknown field `ass`; did you mean `as`?"),
        ('{path: "$.a", as: directory, writer: owner, kinds: [mailbox]}', "must be `mail`"),
        ('{path: "$.a", as: directory, writer: me}', "must be `owner`"),
        ('{path: "$.a", as: directory, writer: outsider}', "write `as: counterparty`"),
        ('{path: "$.a", as: directory, writer: agent}', "write `as: counterparty`"),
        ('{path: "$.a", as: directory, writer: service}', "write `as: own_record` if this account"),
        ('{path: "$.a", as: own_record, writer: outsider}', "write `as: counterparty`"),
        ('{path: "$.a", as: counterparty, writer: owner}', "or leave `writer` out"),
    ],
)
def test_a_field_that_says_nothing_clear_is_refused(load, field, message):
    """With what would be right."""
    with pytest.raises(PolicyError, match=message.replace("?", r"\?")):
        load(POLICY.format(field=field))


PAIRED = """version: 1
name: paired
tools:
  - {{match: [add_contact], role: {writes}, store: {store}}}
  - {{match: [find_contact], role: {reads}, fields: [{{path: "$[*].mail", as: {who}}}]}}
rules:
  - {{id: a, type: tool, effect: allow}}
"""


@pytest.mark.parametrize(
    ("writes", "store", "reads", "who", "refused"),
    [
        ("save", "contacts", "recall, store: contacts", "directory, writer: owner", True),
        ("save", "contacts", "list, store: contacts", "own_record, writer: service", True),
        ("other", "contacts", "retrieve, store: contacts", "directory, writer: owner", True),
        ("save", "contacts", "recall, store: people", "directory, writer: owner", False),
        ("retrieve", "contacts", "recall, store: contacts", "directory, writer: owner", False),
        ("save", "contacts", "recall, store: contacts", "counterparty", False),
        ("save", "contacts", "retrieve", "directory, writer: owner", False),
    ],
)
def test_a_store_that_agents_write_is_no_directory(load, writes, store, reads, who, refused):
    """An agent that may save into it could enter itself; the problem names the tool and the fix."""
    text = PAIRED.format(writes=writes, store=store, reads=reads, who=who)
    if not refused:
        load(text)
        return
    with pytest.raises(PolicyError) as caught:
        load(text)

    [problem] = caught.value.problems
    assert problem.line == 5
    assert "`contacts`, which `add_contact` writes" in problem.message
    assert "write `as: counterparty`" in problem.message


def test_a_pair_of_two_servers_is_no_pair(load):
    """Stores and directories of one name belong to their servers."""
    policy = load(
        """version: 1
name: two
servers:
  - name: crm
    listener: 127.0.0.1:8001
    tools:
      - {match: [add_contact], role: save, store: contacts}
      - {match: [find_contact], role: recall, store: contacts}
  - name: mail
    listener: 127.0.0.1:8002
    tools:
      - match: [find_contact]
        role: retrieve
        fields: [{path: "$[*].mail", as: directory, writer: owner}]
rules:
  - {id: a, type: tool, effect: allow}
"""
    )
    assert policy.index.has_directories


SENDERS = """version: 1
name: senders
tools:
  - match: [inbox]
    role: retrieve
    {section}: {{each: "$[*]", sender: "$.from", {more}}}
    fields: [{{path: "$[*].from", as: directory, writer: owner}}]
rules:
  - {{id: a, type: tool, effect: allow}}
"""


@pytest.mark.parametrize(("section", "more"), [("messages", 'id: "$.i"'), ("links", 'text: "$.t"')])
def test_a_sender_is_no_directory(load, section, more):
    """Whoever writes a message is an outsider, whatever name he has."""
    with pytest.raises(PolicyError, match="is the sender of messages, an outsider"):
        load(SENDERS.format(section=section, more=more))


SHIPPED = sorted(builtin_policies().values())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_field_says_who_can_cause_an_entry(path):
    """A field that vouches has a fitting writer; nothing is left to a warning."""
    file = load_file(path)
    fields = [field for _, entry in file.content.mappings() for field in entry.fields]

    assert [one for one in fields if one.who is not None and one.declared != one.who] == []
    assert not any("has no `writer`" in str(one) for one in load_policies([path]).source.warnings)
