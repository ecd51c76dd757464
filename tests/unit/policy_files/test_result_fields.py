"""Result fields in a policy: who writes them, and what older spellings mean now."""

import pytest

from guard.core.labels import Channel
from guard.core.model import Integrity
from guard.policy_files import PolicyError, load_policies

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
        ('{path: "$.a", as: directory}', Channel.DIRECTORY, Integrity.AUTHENTICATED),
        ('{path: "$.a", as: own_record}', Channel.OWN_RECORD, Integrity.AUTHENTICATED),
        ('{path: "$.a", as: counterparty}', Channel.COUNTERPARTY, Integrity.UNTRUSTED),
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
        ('{path: "$.a", as: directory, label: trusted}', "say who can write the field"),
        (
            '{path: "$.a", as: counterparty, kinds: [mail]}',
            "`name`, `kinds` and `for` belong",
        ),
        (
            '{path: "$.a", as: counterparty, name: "$.n"}',
            "`name`, `kinds` and `for` belong",
        ),
        ('{path: "$.a", as: contact_list}', "must be `directory`, `own_record` or `counterparty`"),
        ('{path: "$.a", ass: directory}', "unknown field `ass`; did you mean `as`?"),
        ('{path: "$.a", as: directory, kinds: [mailbox]}', "must be `mail`"),
    ],
)
def test_a_field_that_says_nothing_clear_is_refused(tmp_path, field, message):
    """With what would be right."""
    with pytest.raises(PolicyError, match=message.replace("?", r"\?")):
        loaded(tmp_path, field)


@pytest.mark.parametrize(
    ("field", "source", "warned"),
    [
        ('{path: "$.a", as: directory}', "untrusted", []),
        ('{path: "$.a", as: directory}', "authenticated", []),
        ('{path: "$.a", label: authenticated}', "untrusted", [8]),
        ('{path: "$.a", label: advisory}', "trusted", [6]),
        ('{path: "$.a", label: trusted}', "authenticated", [8, 6]),
    ],
)
def test_what_vouches_for_less_than_it_says_is_warned_of(tmp_path, field, source, warned):
    """It loads: an upgrade must not stop a guard, and makes it stricter."""
    policy = loaded(tmp_path, field, source)

    assert [warning.line for warning in policy.warnings] == warned
    assert all("`as: directory`" in warning.message for warning in policy.warnings)
