"""Result fields in a policy: who writes them, and what older spellings mean now."""

import pytest

from guard.core.labels import Channel
from guard.core.model import Integrity
from guard.policy import PolicyError, load_policies
from guard.policy.compile import load_file
from guard.policy.warnings import _undeclared as undeclared
from guard.settings import builtin_policies

POLICY = """version: 1
name: fields
tools:
  - match: [contacts]
    role: retrieve
    source: {source}
    fields:
      - {field}
rules:
  - {{id: a, type: tool, effect: allow}}
"""


def loaded(tmp_path, field, source="untrusted"):
    """Return a policy with one field."""
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(field=field, source=source), encoding="utf-8")
    return load_policies([path])


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
def test_a_field_has_a_writer(tmp_path, field, channel, label):
    """A label of older policies promises no more than that somebody said it."""
    [found] = loaded(tmp_path, field).tools[0].fields

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
def test_a_field_that_says_nothing_clear_is_refused(tmp_path, field, message):
    """With what would be right."""
    with pytest.raises(PolicyError, match=message.replace("?", r"\?")):
        loaded(tmp_path, field)


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
def test_a_store_that_agents_write_is_no_directory(tmp_path, writes, store, reads, who, refused):
    """An agent that may save into it could enter itself; the problem names the tool and the fix."""
    path = tmp_path / "policy.yaml"
    path.write_text(PAIRED.format(writes=writes, store=store, reads=reads, who=who), "utf-8")
    if not refused:
        load_policies([path])
        return
    with pytest.raises(PolicyError) as caught:
        load_policies([path])

    [problem] = caught.value.problems
    assert problem.line == 5
    assert "`contacts`, which `add_contact` writes" in problem.message
    assert "write `as: counterparty`" in problem.message


def test_a_pair_of_two_servers_is_no_pair(tmp_path):
    """Stores and directories of one name belong to their servers."""
    path = tmp_path / "policy.yaml"
    path.write_text(
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
""",
        "utf-8",
    )

    assert load_policies([path]).index.has_directories


@pytest.mark.parametrize("section", ["messages", "links"])
def test_a_sender_is_no_directory(tmp_path, section):
    """Whoever writes a message is an outsider, whatever name he has."""
    more = 'text: "$.t"' if section == "links" else 'id: "$.id"'
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"""version: 1
name: senders
tools:
  - match: [inbox]
    role: retrieve
    {section}: {{each: "$[*]", sender: "$.from", {more}}}
    fields: [{{path: "$[*].from", as: directory, writer: owner}}]
rules:
  - {{id: a, type: tool, effect: allow}}
""",
        "utf-8",
    )
    with pytest.raises(PolicyError, match="is the sender of messages, an outsider"):
        load_policies([path])


SHIPPED = sorted(builtin_policies().values())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_field_says_who_can_cause_an_entry(path):
    """A field that vouches has a fitting writer; nothing is left to a warning."""
    file = load_file(path)
    fields = [field for _, entry in file.content.mappings() for field in entry.fields]

    assert [one.path for one in fields if one.who is not None and one.declared != one.who] == []
    assert [*undeclared([file])] == []
