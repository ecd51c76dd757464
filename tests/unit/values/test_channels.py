"""Places in a text that are no URL, but that a program opens."""

import pytest

from guard.values.channels import channels_in


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        pytest.param(r"\\files.evil.test\share\a", {"files.evil.test"}, id="share"),
        pytest.param("//files.evil.test/share/a", {"files.evil.test"}, id="share in slashes"),
        pytest.param(r"to:\\files.evil.test\share\a", {"files.evil.test"}, id="behind a colon"),
        pytest.param(r"http:\\wiki.test\page", set(), id="a URL that is read in two ways"),
        pytest.param("https://wiki.test/page", set(), id="a URL is one thing"),
        pytest.param("see https://wiki.test/a//b.c/d", set(), id="in a sentence"),
    ],
)
def test_a_share_is_a_host_and_a_url_no_second_one(text, hosts):
    """The host of a URL that a user named is not a place beside it."""
    found = {one.canonical for one in channels_in(text, mailboxes=True) if one.kind == "host"}

    assert found == hosts
