"""Destinations: attack classes as truth tables, and the properties of canonical forms."""

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guard.values.canonical import MISSING, READ_LIMIT, TEXT_LIST_LIMIT, read_destinations, read_url
from guard.values.finding import (
    CANDIDATE_LIMIT,
    FIND_LIMIT,
    _candidates,
    find_destinations,
    find_values,
    keys_of,
    names_no_host,
)
from guard.values.patterns import PatternSet, parse_pattern

BAD = "malformed"

CYRILLIC_A = "\N{CYRILLIC SMALL LETTER A}"


def shown(value):
    """Return the canonical forms, with one word for every malformed destination."""
    return [BAD if d.kind == BAD else d.canonical for d in read_destinations(value)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("team@example.com", ["team@example.com"]),
        ("TEAM@Example.COM", ["team@example.com"]),
        ("team@example.com.", ["team@example.com"]),
        (" team@example.com ", ["team@example.com"]),
        ("a+tag@example.com", ["a+tag@example.com"]),
        ("A+b+C@example.com", ["a+b+c@example.com"]),
        ("+15551234@example.com", ["+15551234@example.com"]),
        ("a.b@gmail.example", ["a.b@gmail.example"]),
        ("a@bücher.example", ["a@xn--bcher-kva.example"]),
        ("a@XN--BCHER-KVA.example", ["a@xn--bcher-kva.example"]),
        ("ａ@ｅxample.com", ["a@example.com"]),
        ("a@example。com", ["a@example.com"]),
        ("a@[1.2.3.4]", ["a@[1.2.3.4]"]),
        ("a@1.2.3.4", ["a@[1.2.3.4]"]),
        ("a@2130706433", ["a@[127.0.0.1]"]),
        ("a@[IPv6:::1]", ["a@[ipv6:::1]"]),
        ("a@[::1]", ["a@[ipv6:::1]"]),
        ("a@[IPv6:::ffff:10.0.0.1]", ["a@[10.0.0.1]"]),
        ("mailto:a@example.com", ["a@example.com"]),
        (
            "mailto:a@example.com?cc=b@evil.example&subject=x",
            ["a@example.com", "b@evil.example"],
        ),
        ("mailto:?bcc=b@evil.example", ["b@evil.example"]),
        ("sip:a@example.com:5060", ["a@example.com"]),
    ],
)
def test_a_mailbox_has_one_canonical_form(text, expected):
    """Case, tags, trailing dots, widths and IDNA forms do not make another mailbox."""
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"ceo@example.com" <a@evil.example>', ["a@evil.example"]),
        ('"Doe, Jane" <jane@example.com>', ["jane@example.com"]),
        ("Jane Doe <jane@example.com>", ["jane@example.com"]),
        ("jane@example.com (Jane)", ["jane@example.com"]),
        ("a@example.com,b@evil.example", ["a@example.com", "b@evil.example"]),
        ("a@example.com; b@evil.example", ["a@example.com", "b@evil.example"]),
        ("a@example.com\nb@evil.example", ["a@example.com", "b@evil.example"]),
        ("Team: a@example.com, b@evil.example;", ["a@example.com", "b@evil.example"]),
        ("a@example.com\nBcc: b@evil.example", ["a@example.com", BAD]),
        ("a@example.com\r\nBcc: b@example.com\r\n", ["a@example.com", BAD]),
        ("a@example.com\nSubject: hello", ["a@example.com", "subject: hello"]),
        ('"a@evil.example, x" <b@example.com>', [BAD]),
        ("(a@evil.example) b@example.com", [BAD]),
        ("a@evil.example <b@example.com>", [BAD]),
        ("<a@example.com> <b@evil.example>", [BAD]),
        ('"open a@example.com', [BAD]),
        ("<@a,@b:user@example.com>", [BAD, BAD]),
        ("a@example.com, b@x@evil.example", ["a@example.com", BAD]),
        ("a@x.example,@,", ["a@x.example", BAD]),
    ],
)
def test_a_list_of_recipients_is_read_completely(text, expected):
    """Every recipient counts, display names count as nothing, header lines are malformed."""
    assert shown(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a@example.com@evil.example",
        '"a@example.com"@evil.example',
        '"a b"@example.com',
        "a%40evil.example@example.com",
        "mailto:a%40example.com",
        "a%evil.example@example.com",
        "evil.example!a@example.com",
        "<@a.example:user@example.com>",
        "=?utf-8?q?a?= <a@example.com>",
        "=?utf-8?q?a=40evil.example?=@example.com",
        "a@exam\u200bple.com",
        "a@example.com\u202e",
        "a\u00ad@example.com",
        "a@example.com\x00.evil.example",
        "a＠evil.example",
        "a@b＠evil.example",
        "a@example.com，b@evil.example",
        "a@example..com",
        ".a@example.com",
        "a..b@example.com",
        "a@",
        "@example.com",
        "a @ example.com",
        "send it to a@example.com",
        "a@-example.com",
        "a@[1.2.3.4",
        "a@xn--a.example",
        "a@" + "b" * 64 + ".example",
        "a" * 65 + "@example.com",
        "a@012.0.0.1",
    ],
)
def test_an_address_that_reads_two_ways_is_malformed(text):
    """What two programs may send to two places is refused, and nothing else is made of it."""
    assert set(shown(text)) == {BAD}


@pytest.mark.parametrize(
    ("text", "expected", "host"),
    [
        ("https://example.com", "https://example.com/", "example.com"),
        ("HTTPS://Example.COM:443/a/../b#f", "https://example.com/b", "example.com"),
        ("https://example.com./", "https://example.com/", "example.com"),
        ("http://example.com:08080/", "http://example.com:8080/", "example.com"),
        ("https://trusted.example@evil.example/", "https://evil.example/", "evil.example"),
        ("https://evil.example#@trusted.example/", "https://evil.example/", "evil.example"),
        (
            "https://evil.example?@trusted.example/",
            "https://evil.example/?@trusted.example/",
            "evil.example",
        ),
        ("http://2130706433/", "http://127.0.0.1/", "127.0.0.1"),
        ("http://0x7f.1/", "http://127.0.0.1/", "127.0.0.1"),
        ("http://0300.0250.0.1/", "http://192.168.0.1/", "192.168.0.1"),
        ("http://[::FFFF:127.0.0.1]/", "http://127.0.0.1/", "127.0.0.1"),
        ("http://[0:0::1]:80/", "http://[::1]/", "::1"),
        ("http://１２７.0.0.1/", "http://127.0.0.1/", "127.0.0.1"),
        ("https://ｅxample。com/", "https://example.com/", "example.com"),
        ("https://h.example/%7euser/%2fa%c3%a9", "https://h.example/~user/%2Fa%C3%A9", "h.example"),
        ("https://h.example/é?q=ü", "https://h.example/%C3%A9?q=%C3%BC", "h.example"),
        ("https://h.example/a/%2e%2E/b", "https://h.example/b", "h.example"),
        ("https://h.example/../../b/.", "https://h.example/b/", "h.example"),
        ("https://h.example/a,b;c?x=1,2", "https://h.example/a,b;c?x=1,2", "h.example"),
        ("<https://h.example/a>", "https://h.example/a", "h.example"),
        ("slack://general", "slack://general/", "general"),
    ],
)
def test_a_url_has_one_canonical_form(text, expected, host):
    """A URL's host is the one that a client connects to, whatever stands around it."""
    (found,) = read_destinations(text)
    assert (found.kind, found.canonical.partition("#")[0], found.host) == ("url", expected, host)


@pytest.mark.parametrize(
    "other",
    [
        "https://secret@h.example/a/b",
        "https://h.example/a/b#secret",
        "https://h.example/secret/../a/b",
        "https://h.example/a/./b",
        "https://h.example/%61/b",
    ],
)
def test_what_a_canonical_form_leaves_out_is_part_of_identity(other):
    """Its host is told it, so two URLs that differ in it are two; lists speak of the URL."""
    plain, told, again = (read_url(text) for text in ("https://h.example/a/b", other, other + "x"))

    assert told.canonical.startswith(f"{plain.canonical}#~")
    assert len({plain.canonical, told.canonical, again.canonical}) == 3
    assert read_url(told.canonical) == told
    assert PatternSet.parse(["https://h.example/a/"]).matches(told)
    assert PatternSet.parse(["https://h.example/a/b"]).matches(told)
    assert not set(keys_of(told)) & set(keys_of(plain))
    # What tells a host nothing is left out: case, default ports, empty parts and escaped signs.
    for same in ("HTTPS://H.example:443/a/b", "https://@h.example/a/b#", "https://h.example/%7e"):
        assert "#" not in read_url(same).canonical


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com\\@evil.example/",
        "https:\\\\evil.example/",
        "https:/evil.example",
        "https:evil.example",
        "https:///evil.example/",
        "https://a@b@evil.example/",
        "https://example.com%40evil.example/",
        "https://%65vil.example/",
        "https://exa mple.com/",
        "https://exam\tple.com/",
        "https://exam\u200bple.com/",
        "https://h.example/a/..%2fb",
        "https://h.example/a/..;/b",
        "https://h.example/%zz",
        "https://h.example:99999/",
        "https://1.2.3.4.5/",
        "https://012.0.0.1/",
        "https://a.example,https://evil.example",
        "https://a.example/x,b@evil.example",
        "//evil.example/",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "mailto://a@example.com",
        "view-source:https://evil.example/",
    ],
)
def test_a_url_that_reads_two_ways_is_malformed(text):
    """What clients take apart differently, or what names no receiver, is refused."""
    assert BAD in shown(text)
    assert "url" not in {d.kind for d in read_destinations(text)}


FONT = "https://fonts.test/css2?family=Sans:ital,wght@0,200..900;1,200..900&display=swap"


def test_a_short_number_behind_an_at_sign_is_no_second_destination():
    """As an address it is in 0.0.0.0/8; axes of a font have such numbers, mailboxes have not."""
    hosts = ("evil.test", "16777217", "1.2", "0x7", "12.evil.test", "[1.2.3.4]")
    kinds = {read_url(f"https://fonts.test/x,evil@{host}").kind for host in hosts}
    assert (read_url(FONT).kind, kinds) == ("url", {BAD})


@pytest.mark.parametrize(
    ("text", "kind", "canonical"),
    [
        ("Example.COM.", "host", "example.com"),
        ("example.com:8080", "host", "example.com:8080"),
        ("example.com:443/", "host", "example.com"),
        ("Evil.example/Path?q", "host", "evil.example/Path?q"),
        ("127.1", "ip", "127.0.0.1"),
        ("0x7f000001", "ip", "127.0.0.1"),
        ("0x7f.1", "ip", "127.0.0.1"),
        ("１.２.３.４", "ip", "1.2.3.4"),
        ("х.test/a", "host", "xn--u1a.test/a"),
        ("[::1]:80", "ip", "::1"),
        ("FE80::1%eth0", "ip", "fe80::1"),
        ("::ffff:10.0.0.1", "ip", "10.0.0.1"),
        ("12345678", "handle", "12345678"),
        (12345678, "handle", "12345678"),
        ("#General", "handle", "#general"),
        ("  Jane   Doe ", "handle", "jane doe"),
        ("DE89 3704 0044 0532 0130 00", "handle", "de89370400440532013000"),
        ("+1 555 0100", "handle", "+15550100"),
        ("ＡＢ１２", "handle", "ab12"),
        ("General\u200b", BAD, None),
        ("012.0.0.1", BAD, None),
        (1.5, BAD, None),
        (True, BAD, None),
    ],
)
def test_other_destinations_are_told_by_their_shape(text, kind, canonical):
    """Hosts, IP addresses and opaque handles each have their own canonical form."""
    (found,) = read_destinations(text)
    assert found.kind == kind
    assert canonical is None or found.canonical == canonical


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["a@x.example", ["b@x.example", "a@x.example"]], ["a@x.example", "b@x.example"]),
        ({"email": "a@x.example", "name": "Jane"}, ["a@x.example"]),
        ({"name": "b@evil.example", "email": "a@x.example"}, ["a@x.example", "b@evil.example"]),
        ({"to": [{"email": "a@x.example"}]}, ["a@x.example"]),
        ({"a@evil.example": {}}, ["a@evil.example"]),
        ({"name": "Jane"}, [BAD]),
        ({}, [BAD]),
        ([{"name": "Jane"}, "a@x.example"], [BAD, "a@x.example"]),
    ],
)
def test_lists_and_objects_are_read_to_the_bottom(value, expected):
    """No nesting hides a recipient, and an object without an address is malformed."""
    assert sorted(shown(value)) == sorted(expected)


def test_a_homoglyph_domain_never_equals_the_latin_one():
    """A Cyrillic letter stays an A-label and does not match the pattern of its look-alike."""
    (found,) = read_destinations(f"a@ex{CYRILLIC_A}mple.com")
    assert found.host.startswith("xn--")
    assert not PatternSet.parse(["example.com"])(found)


def test_too_many_destinations_end_in_a_malformed_one():
    """Overflow never frees what comes after the limit."""
    many = [f"u{index}@example.com" for index in range(READ_LIMIT + 10)]
    for value in (many, ",".join(many)):
        found = read_destinations(value)
        assert len(found) == READ_LIMIT + 1
        assert found[-1].kind == BAD
    assert find_destinations(" ".join(many))[-1].kind == BAD
    assert len(find_destinations(" ".join(many))) == FIND_LIMIT + 1
    flood = find_destinations("@a.b " * (CANDIDATE_LIMIT + 1) + "x@evil.example")
    assert [d.kind for d in flood] == shown("a@example.com," + " " * TEXT_LIST_LIMIT) == [BAD]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to A+x@Evil.example, please.", ["a+x@evil.example"]),
        ('{"to": "a@evil.example"}', ["a@evil.example"]),
        ("to=a@evil.example&x", ["a@evil.example"]),
        ("see to=first.last@evil.example", ["first.last@evil.example"]),
        ("see x?mail=ann@evil.example&y=1", ["ann@evil.example"]),
        ("see [it](https://evil.example/x).", ["https://evil.example/x"]),
        ("https://user@evil.example/x", [read_url("https://user@evil.example/x").canonical]),
        ("ping 10.0.0.1, 0x7f.0.0.1 and fe80::1", ["10.0.0.1", "127.0.0.1", "fe80::1"]),
        ("a@evil\u200b.example", ["a@evil.example"]),
        ("a＠evil．example", ["a@evil.example"]),
        ("https\uff1a//evil.example", ["https://evil.example/"]),
        (
            "a@example.com@evil.example",
            ["a@example.com", "example.com@evil.example"],
        ),
        ('"a b"@evil.example', [BAD]),
        ("x%b@example.com", [BAD]),
        ("https://a\\b.example/", [BAD]),
        (
            "https://a.example/?u=https://b.example/",
            ["https://a.example/?u=https://b.example/", "https://b.example/"],
        ),
        ("s3://bucket/key", ["s3://bucket/key"]),
        ("at 10:30:45 the @dataclass in std::vector of example.com was ab::cd", []),
        ("no address at all", []),
        ("file:///etc/hosts", []),
    ],
)
def test_addresses_are_found_in_free_text(text, expected):
    """Mail addresses, URLs and IP addresses are found; host names and handles are not."""
    found = find_destinations(text)
    assert [BAD if d.kind == BAD else d.canonical for d in found] == expected


@pytest.mark.parametrize(
    "unit",
    ["@", "a@a.", "://", "a://", '"', '\\"', '"\\"', "1.", "1.1.1.1 ", "::", "a:", "%41", "(", "<",
     "a+", "ａ", "\u0301\u0323", "a@[", "x.y@", "https://a,", ",", " ", "1::g "],
)  # fmt: skip
def test_hostile_text_is_read_in_bounded_work(unit):
    """A long run of one unit ends, in a bounded number of destinations; a blow-up would hang."""
    text = unit * (300_000 // len(unit))
    assert len(find_destinations(text)) <= FIND_LIMIT + 1
    declared = text[: TEXT_LIST_LIMIT - 20]
    assert len(read_destinations(declared)) <= READ_LIMIT + 1
    assert len(read_destinations("https://a" + declared)) <= READ_LIMIT + 1


# Patterns


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (
            "example.com",
            ["a@EXAMPLE.com.", "https://example.com/x", "example.com", "http://example.com:81/"],
            ["a@evil.example.com", "https://example.com.evil.example/", "a@notexample.com"],
        ),
        ("*.example.com", ["a@x.example.com", "https://a.b.example.com/"], ["a@example.com"]),
        ("user@example.com", ["User@example.com"], ["user+t@example.com", "example.com"]),
        ("reply+a@example.com", ["reply+A@example.com"], ["reply+b@example.com"]),
        (
            "https://h.example/team/",
            ["https://h.example/team/", "https://H.example:443/team/x?q"],
            [
                "https://h.example/team",
                "https://h.example/team/../x",
                "https://h.example/team%2Fx",
                "http://h.example/team/",
                "https://h.example:444/team/",
                "https://u@h.example.evil.example/team/",
            ],
        ),
        (
            "https://h.example/team",
            ["https://h.example/team", "https://h.example/team/x", "https://h.example/team?q"],
            ["https://h.example/teams"],
        ),
        ("10.0.0.0/8", ["http://10.1.2.3/", "0xa.1.1.1", "a@[10.0.0.1]"], ["11.0.0.1", "10"]),
        ("fd00::/8", ["http://[fd00::1]/"], ["http://[::1]/", "10.0.0.1"]),
        ("10.0.0.1", ["http://10.0.0.1/", "10.0.0.1"], ["10.0.0.2"]),
        ("handle:#General", ["#general"], ["#general2", "general"]),
        ("handle:DE89 3704 0044 0532 0130 00", ["DE89370400440532013000"], ["DE89"]),
        ("*", ["a@x.example", "#general", "http://[::1]/"], ["a@b@c", "data:x"]),
        ("bücher.example", ["a@xn--bcher-kva.example"], ["a@bucher.example"]),
    ],
)
def test_a_pattern_matches_what_it_names_and_nothing_else(pattern, yes, no):
    """Each form has its truth table."""
    patterns = PatternSet.parse([pattern])
    for text, expected in [(t, True) for t in yes] + [(t, False) for t in no]:
        (found,) = read_destinations(text)
        assert patterns(found) is expected, text
    assert not patterns(MISSING)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("", "`example.com`"),
        (" example.com", "`example.com`"),
        ("*.com", "`*.example.com`"),
        ("*.com.", "`*.example.com`"),
        ("*example.com", "`*.example.com`"),
        ("example.*", "`*.example`"),
        ("a.*.example.com", "or `"),
        ("*@example.com", "`example.com`"),
        ("@example.com", "`example.com`"),
        ("a@b@example.com", "`user@example.com`"),
        ("https://example.com/?q", "`https://example.com/`"),
        ("https://u@example.com/", "`https://example.com/`"),
        ("https://*.example.com/", "URL prefix"),
        ("https://exa\\mple.com/", "`https://example.com/path/`"),
        ("example.com:443", "`https://example.com:443/`"),
        ("example.com/path", "`https://example.com/path`"),
        ("10.0.0.1/8", "`10.0.0.0/8`"),
        ("127.1", "`127.0.0.1`"),
        ("general", "`handle:general`"),
        ("Jane Doe", "`handle:Jane Doe`"),
        ("handle:", "VALUE"),
        ("handle:a@example.com", "`a@example.com`"),
        ("handle:a,b", "one pattern for each"),
        ("exam_ple..com", "`handle:VALUE`"),
    ],
)
def test_a_text_that_is_no_pattern_is_refused_with_a_suggestion(text, suggestion):
    """The message names the text and says what would be right."""
    with pytest.raises(ValueError, match="destination pattern") as error:
        parse_pattern(text)
    assert suggestion in str(error.value)
    assert f"`{text}`" in str(error.value)


# Properties

LABELS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
HOSTS = st.builds(lambda labels: ".".join([*labels, "example"]), st.lists(LABELS, max_size=3))
LOCALS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
MAILS = st.builds("{}@{}".format, LOCALS, HOSTS)
HOSTILE = st.text(
    st.sampled_from(
        'a1.@:/\\,;"<>()[]%#?=+-_* \t\r\n\u200b\u0430\u00df\u0130\uff20\uff0e\u3002\u00e9x0'
    ),
    max_size=40,
)
SCHEMES = st.sampled_from(["https://", "x://", "mailto:", "handle:", "data:", "a@", "<", '"', ""])
ADDRESSES = st.ip_addresses().map(str)
URLS = st.builds("HTTP://{}:{}/{!a}".format, HOSTS, st.integers(0, 65535), st.text(max_size=10))
TEXTS = st.one_of(
    st.text(max_size=60),
    HOSTILE,
    st.builds("{}{}".format, SCHEMES, HOSTILE),
    *(MAILS, HOSTS, ADDRESSES, URLS, ADDRESSES.map("http://[{}]/".format)),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


@given(text=TEXTS)
@example(text="https://x.example/a,#f")
@example(text="https://x.example/,%61b:c")
@example(text="10 .0.0.1")
@example(text='""a""')
@example(text="example.com\xa0")
@example(text="::1%eth0%40")
def test_canonicalising_a_canonical_form_gives_itself(text):
    """Reading is idempotent for every kind that can be read, declared or found."""
    for destination in (*read_destinations(text), *find_destinations(text)):
        if destination.kind != BAD:
            assert read_destinations(destination.canonical) == (destination,)


@given(value=JSON)
def test_no_value_makes_reading_fail(value):
    """Arbitrary JSON gives destinations and never an exception."""
    for destination in read_destinations(value):
        assert destination.kind in {"mail", "url", "host", "ip", "handle", BAD}


@given(text=st.text(st.characters(codec=None), max_size=80))
@example(text="a@\ud800.example \ud800://x")
def test_no_text_makes_finding_or_parsing_fail(text):
    """Arbitrary text, surrogates included, gives destinations, a pattern or a ValueError."""
    for destination in (*find_destinations(text), *read_destinations(text)):
        assert len(destination.canonical) <= 8192
    try:
        pattern = parse_pattern(text)
    except ValueError as error:
        assert type(error) is ValueError  # noqa: PT017 - no subclass such as UnicodeError
    else:
        assert pattern.text == text


@given(mails=st.lists(MAILS, min_size=1, max_size=5), data=st.data())
def test_display_names_and_separators_never_change_the_addresses(mails, data):
    """However recipients are dressed and joined, the same set is read."""
    dress = st.sampled_from(["{}", "<{}>", "Jane Doe <{}>", '"Doe, Jane" <{}>', "{} (a note)"])
    join = st.sampled_from([",", ", ", "; ", "\n", "\r\n", ",,", " ,\n "])
    text = "".join(data.draw(dress).format(mail) + data.draw(join) for mail in mails)
    expected = {d for mail in mails for d in read_destinations(mail)}
    assert set(read_destinations(text)) == expected
    assert set(read_destinations(mails)) == expected


@given(host=HOSTS, label=LABELS)
def test_a_sub_domain_never_matches_the_exact_pattern(host, label):
    """Only a wildcard spans sub-domains, and it does not span its own parent."""
    host = f"{host}.test"
    exact, wild = PatternSet.parse([host]), PatternSet.parse([f"*.{host}"])
    for form in ("a@{}", "https://{}/", "{}"):
        for one, matches in ((f"{label}.{host}", (False, True)), (host, (True, False))):
            (found,) = read_destinations(form.format(one))
            assert (exact.matches(found), wild.matches(found)) == matches


@given(
    label=st.text("abcäöüéñ", min_size=1, max_size=8),
    upper=st.booleans(),
    dot=st.sampled_from(["", "."]),
)
def test_matching_ignores_case_trailing_dot_and_idna_form(label, upper, dot):
    """A host is the same in capitals, with a trailing dot and as A-labels."""
    host = f"{label}.example"
    (base,) = read_destinations(f"a@{host}")
    for form in (host, base.host):
        written = (form.upper() if upper else form) + dot
        assert read_destinations(f"a@{written}") == (base,)
        assert PatternSet.parse([written])(base)


WITHOUT_HOSTS = st.lists(st.sampled_from([*"aB1.!/&# \n\x1c", "ab.cd", "10.1", "Paid. "])).map(
    "".join
)


@given(text=st.text(st.characters(max_codepoint=127), max_size=80) | WITHOUT_HOSTS)
def test_a_text_without_a_sign_of_a_host_is_passed_over_and_has_none(text):
    """The short cut frees nobody: the search itself would have found nothing."""
    found = [*find_values(text, disguised=False).plain] if names_no_host(text) else []
    assert all(value.startswith("handle:") for value in found)
    assert not names_no_host(text) or not list(_candidates(text))


@pytest.mark.parametrize("end", ["thread.tacv2", "thread.v2", "thread.skype", "unq.gbl.spaces"])
def test_a_channel_or_chat_of_teams_is_a_handle_and_no_mailbox(end):
    """Whole, and alone in its form; a mailbox behind a number is read as ever."""
    chat = f"19:561fbdbbfca848a484f0a6f00ce9dbbd@{end}"

    assert [one.kind for one in read_destinations(chat)] == ["handle"]
    assert not find_destinations(f"Post it to {chat}, please.")
    for other in (f"{chat}.test", f"19:drop@{end}.test", "19:drop@mail.test", f"x{chat}"):
        kinds = [one.kind for one in read_destinations(other)]
        assert "handle" not in kinds
        assert kinds


INSIDE = (
    ("IMCEASMTP-drop+40evil+2Etest@example.com", "drop@evil.test"),
    ("drop_evil.test#EXT#@example.com", "drop@evil.test"),
    ("SRS0=HHH=TT=evil.test=drop@example.com", "drop@evil.test"),
    ("SRS1=HHH=relay.test==HHH=TT=evil.test=drop@example.com", "drop@evil.test"),
    ("mailto:SRS0+HHH=TT=evil.test=drop@example.com", "drop@evil.test"),
    ("IMCEAEX-_O=ORG_CN=DROP@example.com", None),
    ("bounces+drop=evil.test@example.com", None),
    ("evil.test=drop@example.com", None),
    ("drop=40evil=2Etest@example.com", None),
)


@pytest.mark.parametrize(("text", "inside"), INSIDE)
def test_an_address_inside_an_address_receives_the_mail_as_well(text, inside):
    """One that cannot be read is in nobody's domain, and can be named by itself only."""
    internal, denied = PatternSet.parse(["example.com"]), PatternSet.parse(["evil.test"])
    found = read_destinations(text)

    assert [one.kind for one in found] == ["mail", "mail"]
    assert internal.matches(found[0])
    assert not internal.matches(found[1])
    assert (found[1].canonical == inside) if inside else (found[1].host == "")
    assert denied.matches(found[1]) is (inside is not None)


@pytest.mark.parametrize("layers", range(1, 12))
@pytest.mark.parametrize("dots", ["%2e%2e", ".%2e", "%2e.", "x%2f..%2f..", "..%5c", "..%3b"])
def test_dot_segments_are_found_in_every_decoding_of_a_path(layers, dots):
    """Each server on the way may decode once more."""
    path = dots
    for _ in range(layers):
        path = path.replace("%", "%25")
    allowed = PatternSet.parse(["https://a.test/v1/"])

    for end in (f"{path}/x", f"x/{path}"):
        assert not allowed.matches(read_url(f"https://a.test/v1/{end}"))
