"""One table per reader: texts that programs read in several ways, and what the guard reads."""

import pytest

from guard.values.canonical import read_destinations
from guard.values.channels import channels_in, climbing, is_address, linked_in, opens, sends, tells
from guard.values.finding import (
    find_destinations,
    find_values,
    keys_of,
    link_values,
    message_value,
    taints_of,
    whole_values,
)
from guard.values.folders import above
from guard.values.sites import sites_of


def first(text):
    """Return the first destination that a text is."""
    return read_destinations(text)[0]


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("https://docs.example.org/a", ["https:443"]),
        ("https://docs.example.org:99/", ["https:99"]),
        ("docs.example.org", ["http:80", "https:443"]),
        ("https://x.pages.example.org/", []),
        ("http://1.2.3.4/", []),
        ("https://intranet/", []),
        ("https://co.uk/", []),
        ("ftp://docs.example.org/a", []),
        ("a@example.org", []),
    ],
)
def test_a_site_is_scheme_host_and_port_of_one_owner(text, ports):
    """A host of several owners, a number and a public suffix are none."""
    found = sites_of(first(text), frozenset({"pages.example.org"}))
    expected = [one.split(":") for one in ports]
    assert [*found] == [f"site:{scheme}://docs.example.org:{port}" for scheme, port in expected]


@pytest.mark.parametrize(
    "text",
    [
        *('see "a b"@x.test', "u!v@x.test", f"{'l' * 70}@x.test", "a@xn--zzzzzz.test"),
        *("a@b@c.test", "a)@x.test", "(a@x.test", 'a("x)@x.test', "1.2.3.999", "08.1.1.1"),
        *("mailto:a@x.test?c%63=b@x.test", f"a@{'x' * 70}.test", "x\u200b.test", "x.test:a@b"),
        *(f"{'é' * 300}@x.test", "x.test:99999/a", "x.test/%zz", f"https://x.test/{'é' * 3000}"),
        *(f"a=b@{'l' * 70}@x.test", f"{'é' * 40}@x.test", "a@x\u200b.test"),
    ],
)
def test_what_programs_read_in_several_ways_is_malformed(text):
    """In a text and as the whole of an argument; never a mailbox or a host."""
    found = [*find_destinations(text), *read_destinations(text)]
    assert {one.kind for one in found} & {"malformed"}
    assert not any(one.canonical == "a@x.test" for one in read_destinations(text))


def test_a_text_names_its_values():
    """A routed mailbox is two, a tag belongs to one, and a conversation is one word."""
    assert {"mail:b@c.test", "mail:c.test@d.test"} <= {*find_values("a=b@c.test@d.test").plain}
    assert {"mail:a+b@x.test", "any:a@x.test"} <= {*find_values("a+b@x.test").plain}
    assert [*find_values("Chat 19:abc@thread.v2 now").plain] == ["handle:19:abc@thread.v2"]
    assert [one.canonical for one in find_destinations("12:30:45, fe80::1%eth0, 1.2.3.4.5")] == [
        "fe80::1"
    ]


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("see setup.py and example.org", []),
        ("see docs.example.org", ["docs.example.org"]),
        ("example.org/a?b", ["example.org/a?b"]),
        ("<https://a.test|b> &amp; https://a.test/x", ["https://a.test/", "https://a.test/x"]),
    ],
)
def test_a_preview_loads_links_and_names_that_can_carry_data(text, links):
    """A registered name alone carries nothing."""
    assert [one.canonical for one in linked_in(text)] == links


def test_a_value_is_a_whole_field_or_nothing():
    """Lists of mailboxes are; a link is known with and without its scheme."""
    assert whole_values("a@b.test, c@d.test") == ("mail:a@b.test", "mail:c@d.test")
    assert whole_values("https://a.test, c@d.test") == whole_values("a@b.test\nx") == ()
    assert link_values(first("https://a.test/x/")) == ("link:https://a.test/x", "link:a.test/x")
    assert (link_values(first("a.test")), link_values(first("a@b.test"))) == (("link:a.test",), ())
    assert message_value(" a  b ") == "message:a b"


def test_long_names_and_versions_say_nothing():
    """A path that climbs out of its folder is a place, wherever it comes back to."""
    assert not is_address("pkg@1.2.3")
    assert not opens("public", value="x" * 99)
    assert not tells("x" * 99)
    assert not sends("x" * 99, value=True)
    assert climbing("../a/../../b").canonical == "../../b"
    assert climbing(".. /a b") is climbing("a/../b") is None


@pytest.mark.parametrize(
    ("path", "is_plain"),
    [
        ("/data/ann/notes/deep/a.md", True),
        ("/data/ann/../notes/a.md", False),
        ("/data/ann/notes/" + "x" * 300, False),
        ("/data/ann/note\u0301s/a.md", False),
        ("/data/ann/a  b/c.md", False),
    ],
)
def test_a_plain_path_has_directories_above_it(path, is_plain):
    """The nearest first, and none of a path that could be read otherwise."""
    found = [one.canonical for one in above(path)]
    assert bool(found) is is_plain
    assert all(path.startswith(f"{one}/") for one in found)
    assert found == sorted(found, key=len, reverse=True)


@pytest.mark.parametrize("host", ["xn--mller-kva.test", "m\u00fcller.test", "xn--zzzzzzzzz.test"])
def test_a_mailbox_is_looked_up_by_what_it_looks_like(host):
    """Its host in letters as well, where it has such a form."""
    for one in read_destinations(f"b\u043eb@{host}"):
        if one.kind == "mail":
            assert len({*keys_of(one), *taints_of(one)[0]}) > 1


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
