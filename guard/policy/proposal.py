"""A policy proposed from the tools that servers list.  Pure: no I/O.

INVARIANT (no allow from a name): names, schemas and annotations are the server's own words, so they
map nothing.  Every tool stays unmapped, and is asked about until the user has said what it does:
an argument that is called a receiver may be a decoy (the user's own account, a sender) that one
knows beside the one that receives.  What its name and arguments suggest stands there as a comment.
Only the profile of a server that the user's own command or URL names maps a tool
(:mod:`guard.policy.recognition`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from guard.core.model import Json, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.mappings import ActionName


_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NO_PLACE: Final = ("integer", "number", "boolean")
"""Types of arguments that hold no address; a number may be the name of an account."""
BASE: Final = "builtin:office@2"
"""Policy that a proposed policy builds on."""
_FORMAT: Final = re.compile(r'"format": (?!"(uuid|date|date-time|time|int\d+|float|double)")')
"""A format that may be of an address."""
_TOOL: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MEMORY: Final = _set(
    "memory memories fact facts node nodes entity entities relation relations graph observation "
    "observations knowledge"
)
_SENDS: Final = _set(
    "send sends post publish share upload notify reply forward invite tweet submit push export "
    "transfer pay email mail message dm call webhook request fetch download crawl browse open run "
    "execute exec query lookup dns view render convert connect sync deploy merge trigger"
)
_WRITES: Final = _set("save remember store add create update delete remove forget write append")
_READS: Final = _set(
    "read get list search find query recall open lookup show describe count view retrieve"
)
_PEOPLE: Final = _set("to cc bcc recipient recipients email emails address addresses")
_PLACES: Final = _set(
    "url uri urls webhook webhooks endpoint host hosts hostname domain domains link links href src "
    "dsn connection remote server site website page origin proxy callback redirect feed address ip "
    "repo repository bucket image"
)
_ADDRESSED: Final = _set(
    "url uri urls webhook webhooks endpoint host hosts hostname domain domains link links href dsn "
    "proxy callback redirect"
)
"""Names of the above that are connected to, wherever they stand."""
_HANDLES: Final = _set(
    "channel channels chat user users username phone number account accounts room destination dest "
    "target recipient receiver group team member members invitee invitees guest guests attendee "
    "attendees participant participants assignee iban wallet payee beneficiary dm thread"
)
_BODY: Final = _set("body text message content subject title html caption comment")
RECEIVERS: Final = ("people", "places", "handles")
"""Kinds of arguments that name who receives."""


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as a server lists it."""

    name: str
    properties: Mapping[str, Json]
    """The ``properties`` of its input schema."""
    annotations: Mapping[str, Json] = field(default_factory=dict)
    digest: str = ""
    """Digest of its definition, as :class:`guard.core.declarations.ToolDefinition` has it."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Likely purpose of a tool that stays unmapped; the user decides."""

    tool: str
    suggested: Role | None
    """By its arguments, or else by its name."""
    destinations: tuple[str, ...] = ()
    """Names of arguments that name a receiver: addresses, URLs or hosts, and other names."""
    body: tuple[str, ...] = ()
    action: ActionName | None = None
    """Likely action, by its annotations and its name."""


def guess(tool: ListedTool) -> Guess:
    """Return what a tool seems to do."""
    action = suggested_action(tool.name, tool.annotations)
    kinds = {name: argument_kind(name, schema) for name, schema in tool.properties.items()}
    receivers = tuple(name for kind in RECEIVERS for name in kinds if kinds[name] == kind)
    if not receivers:
        return Guess(tool.name, _suggested(_words(tool.name)), action=action)
    body = tuple(name for name in kinds if kinds[name] == "body")
    return Guess(tool.name, Role.SEND, receivers, body, action or "send")


def _suggested(words: frozenset[str]) -> Role | None:
    reads = bool(words & _READS)
    if words & _SENDS or "draft" in words:
        return None
    if words & _MEMORY or words & {"remember", "recall"}:
        if words & _WRITES:
            return Role.SAVE
        return Role.LIST if {"list", "all"} <= words else Role.RECALL
    return Role.RETRIEVE if reads and not words & (_WRITES | _SENDS) else None


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))


def argument_kind(name: str, schema: Json) -> str:
    """Return what an argument seems to name: people, places, handles, a body, or nothing."""
    items = schema.get("items") if isinstance(schema, dict) else None
    formats = {one.get("format") for one in (schema, items) if isinstance(one, dict)}
    words = _words(name)
    if isinstance(schema, dict) and schema.get("type") in _NO_PLACE:
        return "handles" if words & _HANDLES else ""
    if formats & {"email", "idn-email"} or words & _PEOPLE:
        return "people"
    if formats & {"uri", "url", "hostname", "iri"} or words & _PLACES:
        return "places"
    if words & _HANDLES:
        return "handles"
    return "body" if words & _BODY else ""


def is_addressed(name: str, schema: Json) -> bool:
    """Return whether an argument, also of a tool that only reads, can name whom to connect to."""
    kind = argument_kind(name, schema)
    if kind != "places" or _words(name) & _ADDRESSED:
        return kind in {"people", "places"}
    return _FORMAT.search(json.dumps(schema)) is not None


def usable(tools: Sequence[ListedTool]) -> tuple[list[ListedTool], list[str]]:
    """Return the tools whose names can stand in a policy, once each, and the other names."""
    kept: dict[str, ListedTool] = {}
    odd: list[str] = []
    for tool in tools:
        if _TOOL.fullmatch(tool.name):
            kept.setdefault(tool.name, tool)
        else:
            odd.append(tool.name)
    return list(kept.values()), odd


@dataclass(frozen=True, slots=True)
class ProposedServer:
    """A server, and what is proposed about it."""

    name: str
    upstream: str
    """Name in the policy's ``servers``."""
    started: str
    """Command that its user starts, or address that he connects to, for the comment; without
    secrets."""
    profiles: tuple[str, ...] = ()
    """Shipped policies about it, as ``builtin:NAME@REVISION``; none where nobody knows it."""
    pinned: tuple[ListedTool, ...] = ()
    """Tools whose definitions are pinned: what its profiles say holds for these."""
    guesses: tuple[Guess, ...] = ()
    """Guesses about the tools that no profile covers: they are asked about until their user has
    said what they do."""
    reads: tuple[str, ...] = ()
    """Tools that only read by the annotations of a reviewed server."""
    dropped: Mapping[str, str] = field(default_factory=dict)
    """Reason by tool that the profiles leave open or do not confirm."""
    account: tuple[str, str, tuple[str, ...]] | None = None
    """Argument for the operator's account, the account, and the tools that have it."""

    @property
    def mapped(self) -> int:
        """Number of tools that are mapped."""
        return len({tool.name for tool in self.pinned} - {one.tool for one in self.guesses})


_HEAD: Final = """\
# Proposed by `guard init`.  A server that is known by what you start or connect to has
# a profile, which holds for the tools that were listed, as they were defined.  Of any
# other server names and schemas are its own words: every tool of it is asked about
# until you have said below what it does.
# `guard policies show office` is what it builds on; `guard policy test` tests it.
version: 1
name: {name}
extends: {base}
mode: enforce

# Yours; everything else is external.  A name alone does not include what is below it.
internal_domains: [{domain}]
# Who outside may receive data: alice@partner.example, https://api.partner.example/v1/
allow: []
deny: []

servers:"""
_ACCOUNT: Final = """\
  # Another account than the configured one is asked about.
  - id: account-{slug}
    type: argument
    tools: {tools}
    path: {path}
    equals: {account}
    negate: true
    effect: ask
    remedy: use the configured account, or ask the operator"""
_UNSURE: Final = """\
      # Asked about until you decide.  By names and arguments, and by nothing else, these may be so.
      # Put under `tools:` what is; complete what has no role.  Of a send, no other argument says
      # who receives, and these do (not whose account it is, or who sends)."""
_OF_MEMORY: Final = frozenset({Role.RECALL, Role.LIST, Role.SAVE})
_GATE: Final = """
# These tools seem to keep memories: the memory gate stages what they save, besides the
# question above.  The store is their server (docs/explanation/memory-gate.md).
memory:
  writes:"""


def policy_text(name: str, domain: str, servers: Sequence[ProposedServer]) -> str:
    """Return a commented policy file that builds on ``builtin:office``."""
    head = _HEAD.format(name=json.dumps(name), base=BASE, domain=json.dumps(domain))
    accounts = [_account_rule(server) for server in servers if server.account is not None]
    rules = ["", "rules:", *accounts] if accounts else []
    return "\n".join([head, *map(_server_text, servers), *rules, *_memory(servers), ""])


def _account_rule(server: ProposedServer) -> str:
    argument, account, tools = server.account or ("", "", ())
    return _ACCOUNT.format(
        slug=re.sub(r"[^a-z0-9._-]+", "-", server.name.lower()).strip("-._"),
        tools=json.dumps(list(tools)),
        path=json.dumps(argument_path(argument)),
        account=json.dumps(account),
    )


def _memory(servers: Sequence[ProposedServer]) -> Iterator[str]:
    """Yield the memory gate for tools that seem to save; it restricts them and maps none."""
    guessed = [
        (
            one.suggested,
            f"match: {json.dumps([one.tool])}, store: {json.dumps(server.name)}",
            server,
        )
        for server in servers
        for one in server.guesses
    ]
    saving = [server.name for role, _, server in guessed if role is Role.SAVE]
    if not saving:
        return
    yield _GATE
    for role, text, _ in guessed:
        if role is Role.SAVE:
            yield f"    - {{{text}, target: L3, fallback: L4}}"
    reads = [
        f"    - {{{text}}}"
        for role, text, server in guessed
        if role in {Role.RECALL, Role.LIST} and server.name in saving
    ]
    if reads:
        yield "\n".join(["  reads:", *reads])


_ASK: Final = """
# A request waits this long for your answer on the console or by `guard approvals`.
ask:
  hold: 50s
"""
_FORM: Final = """\
  # Your client asks you by a form of its own, and is believed to have asked you.
  elicit: [{{by: form, principals: [anonymous], rules: {rules}}}]
# The agent runs in your name, so you answer what it asks.
approvals: {{own: allow}}
"""


def hooks_text() -> str:
    """Return the server of the tools that coding agents bring with them."""
    return (
        "  # The tools of Claude Code, Codex and Cursor, as their hooks report them.\n"
        '  - {name: coding-clients, upstream: "hook:agent", profile: "builtin:coding-clients"}\n'
    )


def ask_text(rules: Sequence[str]) -> str:
    """Return how the person at a client is asked.

    Args:
        rules: ids of the rules whose questions the client's own form may answer; empty for a
            client without one, whose requests are held open for an answer elsewhere.
    """
    if not rules:
        return _ASK
    return _ASK + _FORM.format(rules=json.dumps(list(rules)))


def _server_text(server: ProposedServer) -> str:
    lines = [
        server_start(server),
        f"    upstream: {json.dumps(server.upstream)}",
        *([f"    profile: {json.dumps(list(server.profiles))}"] if server.profiles else []),
        "    pins:" if server.pinned else "    pins: {}",
        *(f"      {json.dumps(tool.name)}: {json.dumps(tool.digest)}" for tool in server.pinned),
    ]
    if server.reads:
        lines += [
            "    # Reads, by the annotations of a reviewed server.",
            "    tools:",
            f"      - {{match: {json.dumps(list(server.reads))}, role: retrieve}}",
        ]
    return "\n".join([*lines, *_mappings(server.guesses, server.name)])


_TOOL_LINES: Final = """\
servers:
  - name: {server}
    upstream: {upstream}
    pins:
      {tool}: {digest}
    tools:
      - match: [{tool}]
        role: {role}
"""
_TOOL_TEST: Final = """\
tests:
  - name: {name}
    call:
      tool: {tool}
      upstream: {upstream}
    verdict: {verdict}
    reasons: [{reason}]
"""


def mapping_text(upstream: str, tool: ListedTool, given: Role | None = None) -> tuple[str, str]:
    """Return lines that map one tool of a server as its definition suggests, and their test.

    The author of the policy edits them: a definition is the server's own words.

    Args:
        upstream: server of the tool.
        tool: its definition.
        given: role that the author says; None for the suggested one.
    """
    found = guess(tool)
    role = given or found.suggested or Role.OTHER
    is_send = role is Role.SEND
    more = f"        action: {found.action}\n" if found.action is not None else ""
    if is_send:
        more += f"        destinations: {_paths(found.destinations)}\n"
        more += f"        body: {_paths(found.body)}\n" if found.body else ""
    server = re.sub(r"[^A-Za-z0-9._-]+", "-", upstream)[:64]
    fields = {
        "server": json.dumps(server),
        "upstream": json.dumps(upstream),
        "tool": json.dumps(tool.name),
        "digest": json.dumps(tool.digest),
        "role": role.value,
        "name": json.dumps(f"{tool.name} to nobody who is known"),
        "verdict": "block" if is_send else "allow",
        "reason": "destination_missing" if is_send else "tool_role",
    }
    return _TOOL_LINES.format_map(fields) + more, _TOOL_TEST.format_map(fields)


def server_start(server: ProposedServer) -> str:
    """Return the first lines of a proposed server: its command or address, and its name."""
    started = "".join(char if char.isprintable() else " " for char in server.started)[:160]
    return f"  # {started}\n  - name: {json.dumps(server.name)}"


def _mappings(guesses: Sequence[Guess], store: str) -> Iterator[str]:
    """Yield, as comments, what the tools of one server may be."""
    alike: dict[str, list[str]] = {}
    for one in guesses:
        fields = {
            "role": one.suggested,
            "action": one.action,
            "destinations": [argument_path(name) for name in one.destinations],
            "body": [argument_path(name) for name in one.body],
            "store": store if one.suggested in _OF_MEMORY else "",
        }
        lines = (
            f"\n      #   {name}: {json.dumps(value)}" for name, value in fields.items() if value
        )
        alike.setdefault("".join(lines), []).append(one.tool)
    if alike:
        yield _UNSURE
    for text, tools in alike.items():
        yield f"      # - match: {json.dumps(tools)}{text}"


def _paths(names: Sequence[str]) -> str:
    return json.dumps([argument_path(name) for name in names])


def argument_path(name: str, parent: str = "$") -> str:
    """Return the JSONPath of an argument, or of a member of a value at another path."""
    if _PLAIN.fullmatch(name):
        return f"{parent}.{name}"
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"{parent}['{escaped}']"


_SUITE: Final = """\
# What the policy decides, tool by tool.  Run with `guard policy test`.
version: 1
tests:
  - name: "a server that nobody has mapped is asked about"
    call: {tool: anything, upstream: "elsewhere.test:443/mcp"}
    verdict: ask
    reasons: [ask-unmapped]
"""
_CASE: Final = """\
  - name: {name}
    call:
      tool: {tool}
      upstream: {upstream}
    verdict: ask
    reasons: [ask-unmapped]
"""


def suite_text(servers: Sequence[ProposedServer]) -> str:
    """Return the test file beside the policy."""
    cases = [
        _CASE.format(
            name=json.dumps(f"{server.name}: {one.tool}: nobody has said what it does"[:200]),
            tool=json.dumps(one.tool),
            upstream=json.dumps(server.upstream),
        )
        for server in servers
        for one in server.guesses
    ]
    return "".join([_SUITE, *cases])


_NAMES: Final[tuple[tuple[ActionName, str], ...]] = (
    ("change_credential", "password passwd passphrase credential credentials secret mfa otp"),
    ("change_access", "permission permissions acl role roles grant access owner visibility"),
    ("pay", "pay payment transfer refund payout wire withdraw"),
    ("buy", "buy purchase order book reserve checkout subscribe"),
    ("delete", "delete remove erase purge drop destroy cancel revoke trash wipe clear unset"),
    ("execute", "run exec execute eval bash shell command script deploy restart start stop"),
    ("share", "share"),
    ("invite", "invite enroll onboard"),
    ("publish", "publish post push merge upload release tweet"),
    ("change_setting", "setting settings config configure enable disable toggle preference"),
    ("overwrite", "update write edit set put patch replace move rename modify append"),
    ("send", "send reply forward notify message"),
    ("schedule", "schedule reschedule event appointment reminder"),
    ("react", "react star like vote follow rate"),
)
"""Words of names by action, the gravest first."""
_READ_VERBS: Final = frozenset(
    ["get", "list", "read", "search", "find", "show", "view", "describe", "count", "fetch"]
)
_METHODS: Final[Mapping[str, ActionName]] = {
    "DELETE": "delete",
    "PUT": "overwrite",
    "PATCH": "overwrite",
}
_MILD: Final = frozenset({None, "send", "schedule", "react"})
GRAVE: Final = frozenset({"change_credential", "pay", "buy", "delete"})
"""Actions whose names on a tool without an action deserve a warning."""


def suggested_action(
    name: str, annotations: Mapping[str, Json] | None = None, method: str = ""
) -> ActionName | None:
    """Return the likely action of a tool; None where nothing points to a change.

    ``readOnlyHint`` is the server's own word and hides no change that a name or method shows.
    """
    destroys = (annotations or {}).get("destructiveHint") is True
    words = [word.lower() for word in _WORD.findall(name)]
    found = next((action for action, its in _NAMES if not set(its.split()).isdisjoint(words)), None)
    reads = bool(words) and words[0] in _READ_VERBS
    if reads:
        found = None
    found = found or _METHODS.get(method)
    return "delete" if destroys and found in _MILD else found
