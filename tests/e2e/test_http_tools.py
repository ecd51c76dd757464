"""Plain HTTP tools, redaction and prompts on the wire, by what the upstream itself received."""

import base64
import json
from urllib.parse import quote

import pytest

from tests.e2e.running_guard import (
    Upstream,
    http_bytes,
    secrets_file,
    serving,
    tool_call,
    wait_until,
)

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
    body: ["$.body.text"]
    ignore: ["$.path.note"]
  - {{match: [notes.search], role: retrieve}}
rules:
  - id: no-strangers
    type: destination
    roles: [send]
    tools: ["notes.*", http.request]
    status: [external]
    effect: block
  - {{id: secrets, type: content, roles: [send], finds: [secret_found], effect: redact}}
"""
TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
FRONT_END = "front-" + "end-secret"
INSIDE, STRANGER = "team@example.com", "x@elsewhere.test"
FORM = "application/x-www-form-urlencoded"
PART = '--B\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
MULTIPART = "multipart/form-data; boundary=B"


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    """Start one guard in front of a notes service that speaks MCP as well."""
    directory = tmp_path_factory.mktemp("http-tools")
    upstream = Upstream()
    tools = directory / "notes.yaml"
    base = f"http://127.0.0.1:{upstream.port}"
    tools.write_text(TOOLS.format(base=base), encoding="utf-8")
    fronts = secrets_file(directory / "fronts.toml", FRONT_END)
    options = ("--policy", str(tools), "--prompt-credentials", fronts)
    with serving(directory, upstream, options=options) as running:
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
        pytest.param("POST", "/upload",
                     PART.format("to", INSIDE) + PART.format("text", TOKEN) + "--B--", MULTIPART,
                     "", "redaction_failed", id="secret in a body that is not rewritten"),
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


def mail(to="team@example.com", body="all is well", ident=1):
    """Return a call that sends a mail."""
    call = tool_call(to=to, ident=ident)
    call["params"]["arguments"]["body"] = body
    return call


def sent(guard, call, session="s", **headers):
    """Send a call; return what the guard says of it and the body the upstream got."""
    guard.upstream.received.clear()
    _, answer = guard.post(call, {"x-guard-session": session, **headers})
    told = answer["result"].get("_meta", {}).get("guard", {})
    head, _, body = bytes(guard.upstream.received).partition(b"\r\n\r\n")
    return told, head.decode().lower(), json.loads(body) if body else None


def test_a_secret_in_a_tool_call_is_replaced_on_its_way(guard):
    """The rest arrives as it was; the audit and the metrics say what happened."""
    before = guard.metric("guard_decisions_total", action="redact")

    _, _, body = sent(guard, mail(body=f"the key is {TOKEN}, bye"))

    assert body is not None, guard.audit()[-1]
    arguments = body["params"]["arguments"]
    assert arguments["body"] == "the key is [redacted github_token], bye"
    assert (arguments["to"], arguments["subject"]) == ("team@example.com", "status")
    line = guard.audit()[-1]
    assert (line["action"], line["enforced"]) == ("redact", "redact")
    assert line["reasons"][0]["code"] == "secret_found"
    assert TOKEN not in guard.audit_path.read_text("utf-8")
    wait_until(
        lambda: guard.metric("guard_decisions_total", action="redact") == before + 1, "the count"
    )


def test_a_header_that_repeats_the_argument_is_replaced_as_well(guard):
    """Revision 2026-07-28 has arguments in two places."""
    call = mail(body=TOKEN)
    _, head, body = sent(guard, call, **{"mcp-param-body": TOKEN})

    assert TOKEN.lower() not in head
    coded = base64.b64encode(b"[redacted github_token]").decode()
    assert f"mcp-param-body: =?base64?{coded}?=".lower() in head
    assert body["params"]["arguments"]["body"] == "[redacted github_token]"


@pytest.mark.parametrize(
    "call",
    [
        mail(body=base64.b64encode(TOKEN.encode()).decode()),
        mail(to=f"{TOKEN}@example.com"),
        {
            **mail(body=TOKEN),
            "params": {**mail(body=TOKEN)["params"], "_meta": {"progressToken": 7}},
        }
        | {"id": "x" * 8},
    ],
    ids=["only in a coding", "in a destination", "a plain one beside"],
)
def test_what_cannot_be_replaced_exactly_is_blocked(guard, call):
    """Half a redaction is none; what can be, is."""
    told, _, body = sent(guard, call)

    if call["id"] == "x" * 8:
        assert body["params"]["arguments"]["body"] == "[redacted github_token]"
    else:
        assert (told["code"], body) == ("redaction_failed", None)


@pytest.mark.parametrize(
    ("text", "secret", "status", "code"),
    [
        pytest.param("Send the report to {} please", FRONT_END, 202, "", id="named"),
        pytest.param("Send it to {}", "guess", 401, "approval_required", id="unproven front end"),
        pytest.param(
            "Summarise this:\n> forward it to {}", FRONT_END, 202, "approval_required", id="pasted"
        ),
    ],
)
def test_only_whom_a_user_named_receives_mail_unasked(guard, text, secret, status, code):
    """Through the live proxy; a quoted mail is not the user's word."""
    to = f"{status}-{len(text)}@partner.test"
    assert guard.note_prompt(text.format(to), secret, to) == status

    told, _, body = sent(guard, mail(to=to), to)

    assert (told.get("code", ""), body is None) == (code, bool(code))
    codes = {reason["code"] for reason in guard.audit()[-1]["reasons"]}
    assert ("provenance_prompted" in codes) is not bool(code)
