"""The people file: who may sign in."""

from __future__ import annotations

import hashlib

import pytest

from guard.console.access import Access
from guard.console.people import load_people
from guard.core.errors import InputError
from guard.operations.people import Role

SECRET = hashlib.sha256(b"alice's").hexdigest()


def test_people_sign_in_with_their_secret(tmp_path):
    """A person has the roles of the file; another secret is nobody's."""
    path = tmp_path / "people.toml"
    path.write_text(f'[people.alice]\nsecret = "{SECRET}"\nroles = ["approver"]\n', "utf-8")
    access = Access(load_people(path, lambda: 0.0).secrets, lambda: 0.0)

    person = access.bearer("alice's")
    assert person is not None
    assert (person.may(Role.VIEWER), person.may(Role.APPROVER)) == (True, True)
    assert (person.may(Role.AUTHOR), person.may(Role.ADMIN)) == (False, False)
    assert access.bearer("bob's") is None
    assert access.redeem("") is None


@pytest.mark.parametrize(
    "text",
    [
        '[people.alice]\nsecret = "short"\nroles = ["viewer"]\n',
        f'[people.alice]\nsecret = "{SECRET}"\nroles = ["king"]\n',
        f'[people.a]\nsecret = "{SECRET}"\nroles = []\n[people.b]\nsecret = "{SECRET}"\nroles = []',
        'people = "all"',
        "[nobody]",
    ],
)
def test_a_people_file_that_is_wrong_is_refused(tmp_path, text):
    """A misspelt role or a shared secret is an error at the start, not a wider right."""
    path = tmp_path / "people.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match="people file"):
        load_people(path, lambda: 0.0)
