"""Method and URL template to a tool."""

import string
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.protocols.http.tools import HttpTool, HttpToolTable, UrlTemplate, read_path


def tool(url, *methods, name="t"):
    """Return a tool at a URL."""
    return HttpTool(name, frozenset(methods or {"GET"}), UrlTemplate.parse(url))


@pytest.mark.parametrize(
    ("path", "segments"),
    [
        ("/", ()),
        ("/v1/notes", ("v1", "notes")),
        ("/v1/notes/", ("v1", "notes")),
        ("/v1/%6eotes", ("v1", "notes")),
        ("/caf%C3%A9", ("café",)),
        ("/a@b:c,d", ("a@b:c,d",)),
        ("", None),
        ("v1", None),
        ("*", None),
        ("//v1", None),
        ("/v1//notes", None),
        ("/v1/notes//", None),
        ("/v1/./notes", None),
        ("/v1/../notes", None),
        ("/v1/%2e%2e/notes", None),
        ("/v1/%2E/notes", None),
        ("/v1%2fnotes", None),
        ("/v1%5cnotes", None),
        ("/v1\\notes", None),
        ("/v1/no;x=1/tes", None),
        ("/v1/notes%3bx", None),
        ("/v1/%252e%252e/notes", None),
        ("/v1/notes%00", None),
        ("/v1/notes%0a", None),
        ("/v1/no%zztes", None),
        ("/v1/%ff", None),
        ("/v1/no tes", None),
        ("/v1/notes#x", None),
        ("/v1/notes%23x", None),
        ("/v1/notes%3fx", None),
        ("/v1/notés", None),
    ],
)
def test_a_path_is_read_one_way_or_not_at_all(path, segments):
    """Whatever servers normalise differently is refused."""
    assert read_path(path) == segments


@pytest.mark.parametrize(
    ("url", "matches"),
    [
        ("https://api.example.com/v1/users/{user}/notes", True),
        ("https://API.example.com:443/V1/Users/{id}/Notes/", True),
        ("http://api.example.com/v1/users/{user}/notes", False),
        ("https://api.example.com:8443/v1/users/{user}/notes", False),
        ("https://example.com/v1/users/{user}/notes", False),
        ("https://api.example.com/v1/users/{user}", False),
        ("https://api.example.com/v1/users/me/notes", False),
    ],
)
def test_a_template_fixes_everything_but_its_variables(url, matches):
    """Scheme, host and port are the policy's; case and a last slash do not tell paths apart."""
    found = HttpToolTable([tool(url)]).at("https", "api.example.com:443")
    values = [t.template.match(("v1", "USERS", "ann@example.com", "notes")) for t in found]

    assert any(v is not None for v in values) is matches
    if matches:
        assert list(values[0].values()) == ["ann@example.com"]


@pytest.mark.parametrize(
    ("authority", "found"),
    [
        ("api.example.com", 1),
        ("api.example.com:443", 1),
        ("API.EXAMPLE.COM.:443", 1),
        ("api.example.com:444", 0),
        ("api.example.com:", 0),
        ("evil.test", 0),
        ("", 0),
        ("a@api.example.com", 0),
    ],
)
def test_an_origin_is_found_by_its_canonical_host(authority, found):
    """A host in another spelling is the same host."""
    table = HttpToolTable([tool("https://api.example.com/x")])

    assert len(table.at("https", authority)) == found


@pytest.mark.parametrize("authority", ["[::1]:8080", "::1:8080"])
def test_ipv6_hosts_are_found(authority):
    """With brackets, and as a proxy core writes them."""
    assert len(HttpToolTable([tool("http://[::1]:8080/x")]).at("http", authority)) == 1


def test_literal_segments_come_before_variables():
    """As in OpenAPI, `/users/me` is not a `/users/{user}`."""
    table = HttpToolTable(
        [
            tool("http://h.test/users/{user}", name="one"),
            tool("http://h.test/users/me", name="me"),
        ]
    )
    names = [t.tool for t in table.at("http", "h.test") if t.template.match(("users", "me"))
             is not None]  # fmt: skip

    assert names == ["me", "one"]


@pytest.mark.parametrize(
    "url",
    [
        "/v1/notes",
        "ftp://h.test/x",
        "https://{host}/x",
        "https://h.test/x?q={q}",
        "https://h.test/x#f",
        "https://user@h.test/x",
        "https://h.test/a{b}",
        "https://h.test/{a}/{a}",
        "https://h.test/{1}",
        "https://h.test/../x",
        "https://h.test//x",
        "https://h.test/%61",
        "https:///x",
        "https://h.test/" + "a" * 2000,
        "",
    ],
)
def test_a_template_that_says_less_is_refused(url):
    """A variable host would let the agent choose where the data goes."""
    with pytest.raises(ValueError, match="`"):
        UrlTemplate.parse(url)


@given(st.lists(st.text(string.ascii_letters + "äß@ ,+", min_size=1), min_size=1, max_size=4))
@settings(max_examples=60)
def test_what_a_client_quotes_is_read_back(texts):
    """Property: segments survive one quoting and one reading."""
    path = "".join("/" + quote(text, safe="") for text in texts)

    assert read_path(path) == tuple(texts)
