"""Queries, forms and multipart bodies are read one way or refused."""

from contextlib import nullcontext
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.core.errors import MessageError
from guard.protocols.http.message import (
    check_charset,
    parse_fields,
    parse_multipart,
    without_boundary,
)

TYPE = 'multipart/form-data; boundary="XX"'
NONE = frozenset()


def part(name, content, *, extra="", kind=""):
    """Return one part with its boundary before it."""
    head = f'--XX\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n{kind}\r\n'
    return head.encode() + content + b"\r\n"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("a", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=x+y%2Bz", {"a": "x y+z"}),
        ("a=%C3%A9", {"a": "é"}),
        ("to=a&to=b", {"to": ["a", "b"]}),
        ("to=a", {"to": ["a"]}),
    ],
)
def test_fields_are_decoded_once(text, fields):
    """A repeatable field is always a list, so that a policy can rely on it."""
    assert parse_fields(text, frozenset({"to"})) == fields


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a=1&a=2", "duplicate_key"),
        ("a=1&%61=2", "duplicate_key"),
        ("a=1&A=2", "ambiguous_key"),
        ("to=1&TO=2", "ambiguous_key"),
        ("a=1;b=2", "bad_fields"),
        ("a=%zz", "bad_fields"),
        ("a=%", "bad_fields"),
        ("a=%ff", "bad_fields"),
        ("a=%00", "bad_fields"),
        ("=1", "bad_fields"),
        ("a=1&&b=2", "bad_fields"),
        ("a=1&", "bad_fields"),
        ("a=é", "bad_fields"),
        ("a=x y", "bad_fields"),
        ("&".join(f"a{i}=1" for i in range(1001)), "bad_fields"),
    ],
)
def test_fields_that_servers_read_differently_are_refused(text, code):
    """First, last or both: an inspector must not have to guess."""
    with pytest.raises(MessageError) as caught:
        parse_fields(text, frozenset({"to"}))

    assert caught.value.code == code


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
                       st.text(st.characters(codec="utf-8", exclude_characters="\0"))))  # fmt: skip
@settings(max_examples=80)
def test_what_a_client_encodes_is_read_back(fields):
    """Property: encoding and reading lose nothing; names differ by more than case."""
    fields = {name: value for name, value in fields.items()
              if sum(name.casefold() == other.casefold() for other in fields) == 1}  # fmt: skip

    assert parse_fields(urlencode(fields), NONE) == fields


END = b"--XX--\r\n"


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"preamble\r\n" + part("a", b"1") + END, TYPE, "bad_fields"),
        (part("a", b"1") + END + b"epilogue", TYPE, "bad_fields"),
        (part("a", b"1"), TYPE, "bad_fields"),
        (b"", TYPE, "bad_fields"),
        (part("a", b"1") + part("a", b"2") + END, TYPE, "duplicate_key"),
        (part("a", b"1") + part("A", b"2") + END, TYPE, "ambiguous_key"),
        (part("a", b"1") + END, "multipart/form-data", "bad_content_type"),
        (part("a", b"1") + END, TYPE + "; boundary=YY", "bad_content_type"),
        (part("a", b"1") + END, "multipart/form-data; boundary=" + "x" * 71, "bad_content_type"),
        (part('a"; name="b', b"1") + END, TYPE, "bad_fields"),
        (part("a", b"1", extra="; filename*=utf-8''x") + END, TYPE, "bad_fields"),
        (part("a%22", b"1") + END, TYPE, "bad_fields"),
        (part("a", b"1", kind="Content-Transfer-Encoding: base64\r\n") + END, TYPE, "bad_fields"),
        (part("a", b"1", kind="Content-Disposition: form-data; name=b\r\n") + END, TYPE,
         "bad_fields"),
        (part("a", b"1", kind="Content-Type: text/plain; charset=utf-16\r\n") + END, TYPE,
         "bad_content_type"),
        (part("a", b"\xff") + END, TYPE, "bad_fields"),
        (part("a", b"x\x00") + END, TYPE, "bad_fields"),
        (b'--XX\nContent-Disposition: form-data; name="a"\n\n1\n--XX--\n', TYPE, "bad_fields"),
        (b"--XX\r\n\r\n1\r\n" + END, TYPE, "bad_fields"),
        (b"--XXY\r\n" + part("a", b"1")[6:] + END, TYPE, "bad_fields"),
    ],
)  # fmt: skip
def test_a_body_that_servers_read_differently_is_refused(body, content_type, code):
    """Anything around, between or beside plain parts."""
    with pytest.raises(MessageError) as caught:
        parse_multipart(body, content_type, NONE)

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("content_type", "fits"),
    [
        ("application/json", True),
        ("application/json; charset=utf-8", True),
        ('application/json; charset="UTF-8"', True),
        ("application/json; charset=utf-7", False),
        ("application/json; charset=utf-8; charset=utf-16", False),
        ("application/json; charset", False),
        ('application/json; charset="utf-8', False),
    ],
)
def test_only_utf8_is_understood(content_type, fits):
    """A charset decides what the bytes say."""
    refused = nullcontext() if fits else pytest.raises(MessageError, match=r"content type|charset")
    with refused:
        check_charset(content_type)


def form(boundary, *contents):
    """Return a body with some parts, and its content type."""
    head = 'Content-Disposition: form-data; name="f{}"'
    parts = [
        f"--{boundary}\r\n{head.format(number)}\r\n\r\n{content}\r\n"
        for number, content in enumerate(contents)
    ]
    body = "".join((*parts, f"--{boundary}--\r\n"))
    return body.encode(), f"multipart/form-data; boundary={boundary}"


BOUNDARY = st.text("0123456789abcdef", min_size=8, max_size=24)
CONTENT = st.text("ab-\r\n0", max_size=20)


@given(BOUNDARY, BOUNDARY, st.lists(CONTENT, max_size=3))
def test_a_body_is_the_same_whatever_its_boundary(one, other, contents):
    """As long as the boundary stands between parts only."""
    plain = [text for text in contents if one not in text and other not in text]

    assert without_boundary(*form(one, *plain)) == without_boundary(*form(other, *plain))


@given(
    st.sampled_from(["ab", "a", "0-", "ab-"]),
    st.sampled_from(["ab", "a", "00", "b"]),
    CONTENT,
    CONTENT,
)
def test_bodies_that_are_the_same_without_their_boundaries_say_the_same(one, other, first, second):
    """Else an approval of one would hold for another."""
    bodies = form(one, first), form(other, second)
    if without_boundary(*bodies[0]) != without_boundary(*bodies[1]):
        return
    read = []
    for body, kind in bodies:
        try:
            read.append(parse_multipart(body, kind, NONE))
        except MessageError:
            read.append(None)
    assert read[0] == read[1]
