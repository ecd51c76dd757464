"""Plain HTTP tools on the wire: what is refused never reaches the upstream."""

import json
from urllib.parse import quote

import pytest

from tests.e2e.running_guard import Upstream, http_bytes, serving

pytestmark = pytest.mark.e2e

TOOLS = """version: 1
name: notes
http_tools:
  - {{tool: notes.share, method: [POST], url: "{base}/notes/{{note}}/share", body: json}}
  - {{tool: notes.form, method: [POST], url: "{base}/form", body: form}}
  - {{tool: notes.upload, method: [POST], url: "{base}/upload", body: multipart}}
  - {{tool: notes.search, method: [GET], url: "{base}/notes"}}
tools:
  - match: [notes.share, notes.form, notes.upload]
    role: send
    destinations: ["$.body.to"]
    ignore: ["$.path.note"]
  - {{match: [notes.search], role: retrieve}}
rules:
  - {{id: no-strangers, type: destination, roles: [send], status: [external], effect: block}}
"""
INSIDE, STRANGER = "team@example.com", "x@elsewhere.test"
FORM = "application/x-www-form-urlencoded"
PART = '--B\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
MULTIPART = "multipart/form-data; boundary=B"


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    """Start one guard in front of a notes service."""
    directory = tmp_path_factory.mktemp("http-tools")
    upstream = Upstream()
    upstream.answer = lambda request: b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    tools = directory / "notes.yaml"
    base = f"http://127.0.0.1:{upstream.port}"
    tools.write_text(TOOLS.format(base=base), encoding="utf-8")
    with serving(directory, upstream, options=("--policy", str(tools))) as running:
        yield running


def ask(guard, method, target, body="", kind="", headers=""):
    """Send one request and return its status, what the guard said, and what went upstream."""
    guard.upstream.received.clear()
    lines = [headers.strip(), f"content-type: {kind}" if kind else ""]
    at = {"method": method, "target": target, "host": f"127.0.0.1:{guard.port}"}
    raw = guard.send(http_bytes(body.encode(), *filter(None, lines), **at))
    answer = raw.partition(b"\r\n\r\n")[2]
    said = json.loads(answer)["guard"]["code"] if answer else ""
    return int(raw.split(b" ", 2)[1]), said, bytes(guard.upstream.received)


@pytest.mark.parametrize(
    ("target", "body", "kind"),
    [
        ("/notes/7/share", json.dumps({"to": INSIDE, "text": "hello"}), "application/json"),
        ("/form", f"to={quote(INSIDE)}&text=hello", FORM),
        ("/upload", PART.format("to", INSIDE) + PART.format("text", "hello") + "--B--", MULTIPART),
    ],
    ids=["json", "form", "multipart"],
)
def test_a_call_inside_goes_through_unchanged(guard, target, body, kind):
    """The tool is known by its name, and the upstream gets the very bytes."""
    status, _, received = ask(guard, "POST", target, body, kind)

    assert status == 200
    assert received.endswith(body.encode())
    assert guard.audit()[-1]["tool"].startswith("notes.")
    assert guard.audit()[-1]["protocol"] == "http_tools"


JSON = "application/json"


@pytest.mark.parametrize(
    ("method", "target", "body", "kind", "headers", "code"),
    [
        pytest.param("POST", "/notes/7/share", json.dumps({"to": STRANGER}), JSON, "",
                     "destination_external", id="stranger in json"),
        pytest.param("POST", "/notes/7/share", json.dumps({"to": INSIDE, "cc": [STRANGER]}), JSON,
                     "", "destination_external", id="stranger in an undeclared json field"),
        pytest.param("POST", f"/notes/7/share?cc={STRANGER}", json.dumps({"to": INSIDE}), JSON, "",
                     "destination_external", id="stranger in the query"),
        pytest.param("POST", "/form", f"to={quote(STRANGER)}", FORM, "", "destination_external",
                     id="stranger in a form"),
        pytest.param("POST", "/upload", PART.format("to", STRANGER) + "--B--", MULTIPART, "",
                     "destination_external", id="stranger in multipart"),
        pytest.param("POST", "/form", f"to={INSIDE}&to={STRANGER}", FORM, "", "duplicate_key",
                     id="duplicate form field"),
        pytest.param("POST", "/form", f"to={INSIDE}&TO={STRANGER}", FORM, "", "ambiguous_key",
                     id="form field in another case"),
        pytest.param("POST", "/form", f"to={INSIDE};to={STRANGER}", FORM, "", "bad_fields",
                     id="semicolon in a form"),
        pytest.param("POST", "/notes/7/share?a=1&a=2", json.dumps({"to": INSIDE}), JSON, "",
                     "duplicate_key", id="duplicate query field"),
        pytest.param("POST", "/upload",
                     PART.format("to", INSIDE) + PART.format("to", STRANGER) + "--B--", MULTIPART,
                     "", "duplicate_key", id="duplicate part"),
        pytest.param("POST", "/notes/7/share", '{"to": "a@example.com", "to": "b"}', JSON, "",
                     "duplicate_key", id="duplicate member of a tool's json"),
        pytest.param("POST", "/notes/7/share", json.dumps({"to": STRANGER}), FORM, "",
                     "bad_content_type", id="json as a form"),
        pytest.param("POST", "/notes/7/share", json.dumps({"to": INSIDE}),
                     "application/json; charset=utf-16", "", "bad_content_type",
                     id="unknown charset"),
        pytest.param("POST", "/notes/7/share", json.dumps({"to": INSIDE}), JSON,
                     "content-type: text/plain\r\n", "duplicate_header",
                     id="conflicting content types"),
        pytest.param("POST", "/notes//7/share", json.dumps({"to": STRANGER}), JSON, "",
                     "ambiguous_path", id="empty segment in a tool's path"),
        pytest.param("POST", "/x/%2e%2e/notes/7/share", json.dumps({"to": STRANGER}), JSON, "",
                     "ambiguous_path", id="encoded dots before a tool's path"),
        pytest.param("POST", "/NOTES/7/Share/", json.dumps({"to": STRANGER}), JSON, "",
                     "destination_external", id="tool's path in another case"),
        pytest.param("GET", "/notes", "", "", "x-http-method-override: POST\r\n",
                     "bad_http_method", id="method override"),
        pytest.param("GET", "/notes?q=secret", "", "", "mcp-session-id: 1\r\n", "two_protocols",
                     id="tool's path with an mcp header"),
        pytest.param("GET", "/notes", "x", "", "", "unexpected_body", id="body of a search"),
        pytest.param("PUT", "/form", f"to={STRANGER}", FORM, "", "destination_external",
                     id="method that is not mapped"),
        pytest.param("POST", "/unmapped", f"to={STRANGER}", FORM, "", "destination_external",
                     id="path that is not mapped"),
    ],
)  # fmt: skip
def test_what_is_refused_never_arrives(guard, method, target, body, kind, headers, code):
    """The client gets a problem document with the reason; the upstream gets nothing."""
    status, said, received = ask(guard, method, target, body, kind, headers)

    assert status in {400, 403, 415}
    assert said == code
    assert received == b""
