"""Files to one policy: merging, digests, limits and what a valid file compiles to."""

import pytest

from guard.core.model import Destination, DestinationStatus, Integrity, Role
from guard.core.policy import Mode
from guard.policy import PolicyError, load_policies
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


@pytest.fixture
def write(tmp_path):
    """Return a function that writes one file and returns its path."""

    def make(text, name="a.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return make


def _problems(paths):
    with pytest.raises(PolicyError) as caught:
        load_policies(paths)
    return [str(problem) for problem in caught.value.problems]


def test_several_files_make_one_policy(write):
    """Mappings and rules in the order given, lists united, state from the file that has it."""
    policy = load_policies([write(BASE), write(MORE, "b.yaml")])

    assert policy.name == "base+more"
    assert policy.mode is Mode.ENFORCE
    assert [m.pattern for m in policy.tools] == ["mail_send", "memory_*, kv_(get|list)"]
    assert [m.declared.line for m in policy.tools] == [5, 7]
    assert [rule.id for rule in policy.rules] == ["allow-internal", "allow-recall"]
    assert (policy.limits.session_idle, policy.limits.principal_window) == (1800, 604800)
    standings = [
        policy.status_of(Destination("mail", f"{name}@{host}", host))
        for name, host in [
            ("bob", "example.com"),
            ("alice", "partner.example"),
            ("bob", "partner.example"),
            ("bob", "evil.example"),
        ]
    ]
    assert standings == [
        DestinationStatus.INTERNAL,
        DestinationStatus.ALLOWED,
        DestinationStatus.EXTERNAL,
        DestinationStatus.DENIED,
    ]


def test_a_mapping_compiles_to_what_it_says(write):
    """Role, paths and the label of results, which is untrusted unless declared."""
    policy = load_policies([write(BASE), write(MORE, "b.yaml")])
    send, recall = policy.mapping("mail_send"), policy.mapping("kv_get")

    assert (send.role, send.source) == (Role.SEND, Integrity.UNTRUSTED)
    assert list(send.destinations[0].find({"to": "x"})) == [("$['to']", "x")]
    assert (recall.role, recall.source) == (Role.RECALL, Integrity.TRUSTED)
    assert policy.mapping("kv_get_all") is None
    assert policy.mapping("Mail_send") is None


def test_the_digest_follows_the_meaning(write):
    """Comments and layout leave it alone; any field changes it, and so does the file order."""
    digest = load_policies([write(BASE)]).digest

    assert (
        load_policies(
            [write("# hello\n" + BASE.replace("[mail_send]", "\n    - mail_send"))]
        ).digest
        == digest
    )
    assert load_policies([write(BASE.replace("$.text", "$.body"))]).digest != digest
    assert (
        load_policies([write(BASE.replace("effect: allow", "effect: allow\n    remedy: x"))]).digest
        != digest
    )
    both = [write(BASE), write(MORE, "b.yaml")]
    assert load_policies(both).digest != load_policies(both[::-1]).digest


def test_every_problem_of_every_file_is_reported_at_once(write):
    """Nobody repairs a policy one error at a time."""
    first = write(BASE.replace("name: base", "nam: base").replace("allow\n", "alow\n"))
    second = write("version: 1\nname: x\nname: y\ntools: 5\n", "b.yaml")

    found = _problems([first, second])

    assert found == [
        f"{first}:1: missing field `name`",
        f"{first}:2: unknown field `nam`; did you mean `name`?",
        f"{first}:14: rule `allow-internal`: `effect`: {EFFECTS}",
        f"{second}:3: duplicate key `name`; it is already on line 2",
        f"{second}:4: `tools` must be a list",
    ]


def test_files_that_contradict_each_other_are_refused(write):
    """Duplicate ids and patterns, other modes and other states are no merge."""
    first = write(BASE + "state: {session_idle: 1h}\n")
    second = write(BASE + "mode: monitor\nstate: {session_idle: 2h}\n", "b.yaml")

    found = [line.removeprefix(f"{second}:") for line in _problems([first, second])]
    words = ["15: mode", "16: `state`", "5: pattern `mail_send`", "10: rule `allow-internal`: dup"]
    assert [line[: len(word)] for line, word in zip(found, words, strict=True)] == words


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
def test_what_cannot_be_a_policy_is_refused_before_it_is_read(write, text, message):
    """Bad bytes, huge files and deep nesting end in one problem."""
    path = write(text)
    (problem,) = _problems([path])
    assert problem.startswith(f"{path}{message}")


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
def test_http_tools_are_checked(write, text, problem):
    """Each problem has its file and line."""
    [found] = _problems([write(text)])

    assert problem in found
    assert "a.yaml:" in found


def test_a_server_has_mappings_of_its_own(tmp_path):
    """They come before those of every server, and no other server's tools come under them."""
    path = tmp_path / "p.yaml"
    path.write_text(
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
""",
        encoding="utf-8",
    )
    policy = load_policies([path])

    assert policy.mapping("search", "127.0.0.1:9001", "x.test/mcp").role is Role.RECALL
    assert policy.mapping("search", "127.0.0.1:9002", "x.test/mcp").role is Role.RETRIEVE
    assert policy.mapping("search").role is Role.RETRIEVE
    assert policy.mapping("read", "127.0.0.1:9002", "files.test/mcp").server == "files"
    assert policy.mapping("read", "127.0.0.1:9002", "files.test/other") is None
    assert policy.mapping("read") is None
