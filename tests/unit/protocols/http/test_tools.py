"""Plain HTTP requests as tools: method and URL template to a tool, and its arguments."""

import json
from types import SimpleNamespace

import pytest

from guard.core.errors import MessageError
from guard.protocols.http.message import HttpRequest
from guard.protocols.http.tools import (
    HttpTool,
    HttpToolsProtocol,
    HttpToolTable,
    UrlTemplate,
    read_path,
)

BASE = "http://notes.test:8000"


def entry(name, method, path, body="none", repeat=()):
    """Return one tool of the notes service."""
    return HttpTool(name, frozenset({method}), UrlTemplate.parse(BASE + path), body,
                    frozenset(repeat))  # fmt: skip


TABLE = HttpToolTable(
    [
        entry("notes.create", "POST", "/v1/notes", "json"),
        entry("notes.search", "GET", "/v1/notes", repeat=["tag"]),
        entry("notes.share", "POST", "/v1/notes/{note}/share", "form", ["to"]),
        entry("notes.attach", "PUT", "/v1/notes/{note}/file", "multipart"),
    ]
)
PROTOCOL = HttpToolsProtocol(lambda: SimpleNamespace(http_tools=TABLE))


def request(method="POST", target="/v1/notes", body=b"{}", content_type="application/json",
            host="notes.test:8000", **headers):  # fmt: skip
    """Return a request to the notes service."""
    lines = [("content-type", content_type)] if content_type else []
    lines += [(name.replace("_", "-"), value) for name, value in headers.items()]
    return HttpRequest(method, "http", host, target, tuple(lines), body, "l", "c")


@pytest.mark.parametrize(
    ("asked", "tool", "arguments"),
    [
        (
            request(body=b'{"to": "a@example.com"}'),
            "notes.create",
            {"path": {}, "query": {}, "body": {"to": "a@example.com"}},
        ),
        (
            request(target="/V1/Notes/?x=1", body=b"[]", content_type="application/note+json"),
            "notes.create",
            {"path": {}, "query": {"x": "1"}, "body": []},
        ),
        (
            request("GET", "/v1/notes?q=a+b&tag=x&tag=y", b"", ""),
            "notes.search",
            {"path": {}, "query": {"q": "a b", "tag": ["x", "y"]}},
        ),
        (
            request("POST", "/v1/notes/n%207/share", b"to=a%40b.test",
                    "application/x-www-form-urlencoded; charset=utf-8"),
            "notes.share",
            {"path": {"note": "n 7"}, "query": {}, "body": {"to": ["a@b.test"]}},
        ),
        (
            request("PUT", "/v1/notes/7/file",
                    b'--B\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n--B--',
                    "multipart/form-data; boundary=B"),
            "notes.attach",
            {"path": {"note": "7"}, "query": {}, "body": {"f": "x"}},
        ),
        (request("DELETE", "/v1/notes", b"", ""), "http.request", None),
    ],
)  # fmt: skip
def test_a_request_is_a_call_of_its_tool(asked, tool, arguments):
    """Arguments from path, query and body stay apart; another method is a plain request."""
    assert PROTOCOL.matches(asked)
    [call] = PROTOCOL.parse(asked).calls

    assert call.tool == tool
    if arguments is not None:
        assert call.arguments == arguments


@pytest.mark.parametrize(
    ("asked", "claimed"),
    [
        (request(target="/other"), False),
        (request(target="/v1/notes/7"), False),
        (request(host="elsewhere.test:8000"), False),
        (request(host="notes.test:8001"), False),
        (request(target="/v1/notes?x=/v1"), True),
        (request(target="/v1//notes"), True),
        (request(target="/x/%2e%2e/v1/notes"), True),
    ],
)
def test_what_may_be_a_tool_is_claimed(asked, claimed):
    """A path that some server takes for a tool's is never left to the rest."""
    assert PROTOCOL.matches(asked) is claimed
    assert not HttpToolsProtocol().matches(asked)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request(target="/v1//notes"), "ambiguous_path"),
        (request(target="/x/../v1/notes"), "ambiguous_path"),
        (request(target="/v1/notes;x=1"), "ambiguous_path"),
        (request(target="/v1/notes?a=1#b"), "ambiguous_path"),
        (request(x_http_method_override="DELETE"), "bad_http_method"),
        (request(x_method_override="PUT"), "bad_http_method"),
        (request("post"), "bad_http_method"),
        (request(target="/v1/notes?a=1&a=2"), "duplicate_key"),
        (request(target="/v1/notes?a=1;b=2"), "bad_fields"),
        (request(body=b'{"to": 1, "to": 2}'), "duplicate_key"),
        (request(body=b""), "bad_json"),
        (request(body=b"to=1"), "bad_json"),
        (request(content_type="text/plain"), "bad_content_type"),
        (request(content_type=""), "bad_content_type"),
        (request(content_type="application/x-www-form-urlencoded"), "bad_content_type"),
        (request(content_type="application/json; charset=utf-16"), "bad_content_type"),
        (request(content_type="application/json", **{"content-type": "text/plain"}),
         "duplicate_header"),
        (request("GET", body=b"x"), "unexpected_body"),
        (request("POST", "/v1/notes/7/share", b"to=\xc3\xa9",
                 "application/x-www-form-urlencoded"), "bad_fields"),
        (request("POST", "/v1/notes/7/share", b"a=1&a=2",
                 "application/x-www-form-urlencoded"), "duplicate_key"),
        (request("PUT", "/v1/notes/7/file", b"x", "multipart/form-data"), "bad_content_type"),
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(asked, code):
    """Path, method, query, content type and body each have one reading or none."""
    assert PROTOCOL.matches(asked)
    with pytest.raises(MessageError) as caught:
        PROTOCOL.parse(asked)

    assert caught.value.code == code
    assert json.loads(PROTOCOL.unreadable(caught.value, "id").body)["guard"]["code"] == code


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
