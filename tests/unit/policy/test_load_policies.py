"""Files to one policy: merging, digests, limits and what a valid file compiles to."""

import pytest

from guard.core.model import Destination, DestinationStatus, Integrity, Role
from guard.core.policy import Mode
from guard.policy import PolicyError
from guard.policy.yaml_loader import MAX_BYTES

BASE = """version: 1
name: base
internal_domains: [example.com]
tools:
  - match: [mail_send]
    role: send
    destinations: ["$.to"]
    body: ["$.text"]
rules:
  - id: allow-internal
    type: destination
    roles: [send]
    status: [internal, allowed]
    effect: allow
"""
EFFECTS = "must be one of `allow`, `redact`, `ask`, `block`; did you mean `allow`?"
MORE = """version: 1
name: more
allow: [alice@partner.example]
deny: [evil.example]
state: {session_idle: 30m, principal_window: 7d}
tools:
  - match: ["memory_*", {re2: "kv_(get|list)"}]
    role: recall
    source: trusted
rules:
  - {id: allow-recall, type: tool, roles: [recall], effect: allow}
"""


def _problems(load, *texts):
    with pytest.raises(PolicyError) as caught:
        load(*texts)
    return [f"{one.path[-6:]}{str(one).removeprefix(one.path)}" for one in caught.value.problems]


def test_several_files_make_one_policy(load):
    """Mappings and rules in the order given, lists united, state from the file that has it."""
    policy = load(BASE, MORE)

    assert policy.name == "base+more"
    assert policy.mode is Mode.ENFORCE
    assert [m.pattern for m in policy.tools] == ["mail_send", "memory_*, kv_(get|list)"]
    assert [m.declared.line for m in policy.tools] == [5, 7]
    assert [rule.id for rule in policy.rules] == ["allow-internal", "allow-recall"]
    assert (policy.limits.session_idle, policy.limits.principal_window) == (1800, 604800)
    send, recall = policy.mapping("mail_send"), policy.mapping("kv_get")
    assert (send.role, send.source) == (Role.SEND, Integrity.UNTRUSTED)
    assert list(send.destinations[0].find({"to": "x"})) == [("$['to']", "x")]
    assert (recall.role, recall.source) == (Role.RECALL, Integrity.TRUSTED)
    assert policy.mapping("kv_get_all") is policy.mapping("Mail_send") is None
    for name, host, status in (
        ("bob", "example.com", DestinationStatus.INTERNAL),
        ("alice", "partner.example", DestinationStatus.ALLOWED),
        ("bob", "partner.example", DestinationStatus.EXTERNAL),
        ("bob", "evil.example", DestinationStatus.DENIED),
    ):
        assert policy.status_of(Destination("mail", f"{name}@{host}", host)) is status


def test_the_digest_follows_the_meaning(load):
    """Comments and layout leave it alone; any field changes it, and so does the file order."""
    same = "# hello\n" + BASE.replace("[mail_send]", "\n    - mail_send")
    remedy = BASE.replace("effect: allow", "effect: allow\n    remedy: x")
    others = [(BASE,), (BASE.replace("$.text", "$.body"),), (remedy,), (BASE, MORE), (MORE, BASE)]
    assert load(same).digest == load(BASE).digest
    assert len({load(*texts).digest for texts in others}) == len(others)


def test_every_problem_of_every_file_is_reported_at_once(load):
    """Nobody repairs a policy one error at a time."""
    first = BASE.replace("name: base", "nam: base").replace("allow\n", "alow\n")

    assert _problems(load, first, "version: 1\nname: x\nname: y\ntools: 5\n") == [
        "a.yaml:1: missing field `name`",
        "a.yaml:2: unknown field `nam`; did you mean `name`?",
        f"a.yaml:14: rule `allow-internal`: `effect`: {EFFECTS}",
        "b.yaml:3: duplicate key `name`; it is already on line 2",
        "b.yaml:4: `tools` must be a list",
    ]


def test_files_that_contradict_each_other_are_refused(load):
    """Duplicate ids and patterns, other modes and other states are no merge."""
    states = [f"state: {{session_idle: {hours}h}}\n" for hours in (1, 2)]
    found = "".join(_problems(load, BASE + states[0], f"{BASE}mode: monitor\n{states[1]}"))
    for words in ("15: mode", "16: `state`", "5: pattern `mail_send`", "10: rule `allow-internal`"):
        assert words in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"version: 1\nname: \xff\n", ":2: the file is not UTF-8 text"),
        (b"#" * (MAX_BYTES + 1), f":0: the file is larger than {MAX_BYTES} bytes"),
        ("description: " + "[" * 100_000, ":1: nested deeper than 16 levels"),
        ("description: " + "{a: " * 100_000, ":1: nested deeper than 16 levels"),
    ],
    ids=["bytes", "huge", "deep-list", "deep-mapping"],
)
def test_what_cannot_be_a_policy_is_refused_before_it_is_read(load, text, message):
    """Bad bytes, huge files and deep nesting end in one problem."""
    (problem,) = _problems(load, text)
    assert problem.startswith(f"a.yaml{message}")


HTTP = """http_tools:
  - {tool: notes.share, method: [POST], url: "https://n.test/v1/{note}/share", body: form}
"""
MAPPED = BASE.replace("match: [mail_send]", "match: [mail_send, notes.share]")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BASE + HTTP, "no tool mapping claims `notes.share`"),
        (MAPPED + HTTP.replace("[POST]", "[]"), "`method` is empty"),
        (MAPPED + HTTP.replace("[POST]", "[post]"), "`method[0]` must be"),
        (MAPPED + HTTP.replace("https://n.test", ""), "is not a URL template"),
        (MAPPED + HTTP.replace("{note}", "{note}-x"), "is neither plain text nor one variable"),
        (MAPPED + HTTP.replace("body: form", "body: xml"), "`body` must be"),
        (MAPPED + HTTP.replace("body:", "bodi:"), "did you mean `body`"),
        (
            MAPPED + HTTP + HTTP.split("\n", 1)[1].replace("note}", "id}").replace("/v1", "/V1"),
            "`POST` of this URL is already a tool at",
        ),
    ],
)
def test_http_tools_are_checked(load, text, problem):
    """Each problem has its file and line."""
    [found] = _problems(load, text)

    assert problem in found
    assert "a.yaml:" in found


def test_a_server_has_mappings_of_its_own(load):
    """They come before those of every server, and no other server's tools come under them."""
    policy = load(
        """
version: 1
name: p
servers:
  - name: mail
    listener: 127.0.0.1:9001
    tools:
      - {match: [search], role: recall}
  - name: files
    upstream: files.test/mcp
    tools:
      - {match: [read], role: retrieve}
tools:
  - {match: [search], role: retrieve}
rules:
  - {id: all, type: tool, mapped: true, effect: allow}
"""
    )

    for tool, listener, upstream, expected in (
        ("search", "127.0.0.1:9001", "x.test/mcp", "mail recall"),
        ("search", "127.0.0.1:9002", "x.test/mcp", " retrieve"),
        ("search", "", "", " retrieve"),
        ("read", "127.0.0.1:9002", "files.test/mcp", "files retrieve"),
        ("read", "127.0.0.1:9002", "files.test/other", None),
        ("read", "", "", None),
    ):
        found = policy.mapping(tool, listener, upstream)
        assert (found and f"{found.server} {found.role.value}") == expected


def test_egress_is_closed_where_nothing_is_said_and_united_over_files(load):
    """What one file opens is open; the rest is web ports alone."""
    name, closed = "version: 1\nname: more\n", load(BASE).egress
    united = load(
        BASE + "egress: {ports: [443], private: [db.internal]}\n",
        name + "egress: {ports: [8443], passthrough: ['*.pinned.example']}\n",
    ).egress
    hosts = [
        Destination("host", f"{one}.example", f"{one}.example") for one in ("pinned", "a.pinned")
    ]
    private = Destination("host", "db.internal", "db.internal")

    assert (closed.ports, united.ports) == ({80, 443}, {443, 8443})
    assert [one.may_be_private(private) for one in (closed, united)] == [False, True]
    assert not any(map(closed.passes_through, hosts))
    assert [*map(united.passes_through, hosts)] == [False, True]
