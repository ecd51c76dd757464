"""What is redacted, approved and prompted on the wire, by what the upstream itself received.

One guard for all of it: the default policy, and a file with a redaction and plain HTTP tools.
"""

import base64
import json

import pytest

from tests.e2e.running_guard import (
    Upstream,
    default_answer,
    http_bytes,
    secrets_file,
    serving,
    tool_call,
    wait_until,
)

pytestmark = pytest.mark.e2e

TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
FRONT_END = "front-" + "end-secret"
EXTRA = """version: 1
name: payload
http_tools:
  - {{tool: notes.share, method: [POST], url: "{base}/notes/{{note}}/share", body: json}}
  - {{tool: notes.form, method: [POST], url: "{base}/form", body: form}}
  - {{tool: notes.upload, method: [POST], url: "{base}/upload", body: multipart}}
tools:
  - match: [notes.share, notes.form, notes.upload]
    role: send
    destinations: ["$.body.to"]
    body: ["$.body.text", "$.query"]
    ignore: ["$.path.note"]
rules:
  - id: redact-secrets
    type: content
    roles: [send]
    finds: [secret_found]
    effect: redact
"""
PART = '--B\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'


@pytest.fixture(scope="module")
def guard(tmp_path_factory):
    """Start one guard."""
    directory = tmp_path_factory.mktemp("sends")
    upstream = Upstream()
    plain = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    upstream.answer = lambda request: default_answer(request) if b"jsonrpc" in request else plain
    extra = directory / "payload.yaml"
    base = f"http://127.0.0.1:{upstream.port}"
    extra.write_text(EXTRA.format(base=base), encoding="utf-8")
    fronts = secrets_file(directory / "fronts.toml", FRONT_END)
    options = ("--policy", str(extra), "--prompt-credentials", fronts)
    with serving(directory / "guard", upstream, options=options) as running:
        yield running


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


def raw(guard, target, body, kind):
    """Send a plain request; return its status and everything the upstream got."""
    guard.upstream.received.clear()
    host = f"127.0.0.1:{guard.port}"
    answer = guard.send(
        http_bytes(body.encode(), f"content-type: {kind}", target=target, host=host)
    )
    return int(answer.split(b" ", 2)[1]), bytes(guard.upstream.received).decode()


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


def test_a_body_that_is_not_rewritten_is_blocked(guard):
    """Multipart bodies go out as they came or not at all."""
    body = PART.format("to", "team@example.com") + PART.format("text", TOKEN) + "--B--"
    status, received = raw(guard, "/upload", body, "multipart/form-data; boundary=B")

    assert (status, received) == (403, "")


# --- prompts -------------------------------------------------------------------------------------


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
