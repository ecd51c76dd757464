"""The rules of the trust model (docs/explanation/trust-model.md), each with its switches.

The suite must fail when any rule is switched off.  So every statement of the model names the
switches that stand for it, by attack class and name; ``tests/unit/lab/trust/test_switches.py``
plays each switch, and holds that no statement is without one and no switch without a statement.
"""

from __future__ import annotations

from typing import Final

MODEL: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "typed": {
        "a statement vouches for a value of its kind": (
            "mention: a value is typed",
            "names: a directory vouches for its kinds",
        ),
        "negated, questioned, conditional or reported it vouches for nothing": (
            "mention: a negation",
            "mention: a question",
            "mention: a condition",
            "mention: reported speech",
            "mention: distrust",
        ),
        "quoted, fenced, forwarded or pasted it vouches for nothing": (
            "mention: quoted text",
            "mention: code",
            "mention: cited lines",
            "mention: forwarded text",
            "mention: tagged text",
            "mention: text behind a colon",
            "mention: a letter",
            "mention: announced text",
        ),
        "a named location covers its own site and no shared host": (
            "locations: the same site",
            "locations: shared hosts",
            "locations: a form is no page",
            "locations: orders to a model",
        ),
        "a named document supplies one recipient for one requested action": (
            "locations: exactly one recipient",
            "locations: the named document",
            "locations: folders that are written to",
            "locations: a requested action",
            "locations: what an agent wrote",
            "locations: after a recall",
        ),
        "a field of a form is one destination": ("locations: one destination per field",),
        "what makes two receivers different is identity": (
            "identity: a tag chooses a mailbox",
            "identity: a listed mailbox has no other tags",
            "identity: scheme, path and query are part of a URL",
            "identity: a typed URL is one page",
            "identity: what a canonical form leaves out counts",
            "spellings: an encapsulated address is the one inside",
            "spellings: a path is decoded to its end",
            "spellings: a sentence ends behind a name",
        ),
    },
    "joined": {
        "a name is resolved in a directory only": (
            "names: a trusted result is no directory",
            "names: a name of two people names nobody",
        ),
        "a field that an outsider sets is none": (
            "names: an outsider's field vouches for nobody",
            "entries: who can cause an entry decides",
            "entries: a field without a writer vouches for nobody",
            "entries: a promise fits its writer",
            "entries: a sender is an outsider",
        ),
        "nor one that names two": ("spellings: a message has one sender",),
        "nor one that an agent of the tenant wrote": (
            "names: what an agent wrote is no evidence",
            "saved_directories: what is saved into a store is written",
            "saved_directories: a store that agents write is no directory",
            "saved_directories: an id that a store gave is written",
        ),
        "a name leads to an entry, and vouches for nothing": (
            "services: a name leads to an entry, and is none",
        ),
        "a directory is of the server that listed it, and it alone": (
            "address_book: a server answers for the tools that it listed",
            "address_book: what is contested vouches for nothing",
        ),
    },
    "scoped": {
        "nothing stored has more principals": ("scope: a saved label keeps its principal",),
        "nor more services": (
            "services: a handle vouches in its own service",
            "services: what is saved keeps its service",
        ),
        "nor a wider scope": (
            "scope: what the user named holds in its session",
            "scope: what is to be remembered, and nothing else, outlasts it",
        ),
        "nor a longer life": ("scope: a label ends",),
        "the reader's taint beats it": ("scope: the reader's own taint wins",),
        "what is established is one principal's and one tool's": (
            "scope: established is one principal's and one tool's",
            "scope: what was not sent establishes nobody",
        ),
        "what only takes away has no session": (
            "session_change: a read of memory is its principal's",
            "session_change: a no is its principal's",
        ),
        "what is cut out of a text has not its label": (
            "memory_gate: nothing is cut out of a prompt",
            "memory_gate: a text is judged in every reading",
            "memory_gate: markup parts no words",
        ),
    },
    "bound": {
        "a tool is listener, upstream and definition": (
            "tools: a name of two servers is neither's",
            "tools: a mapping is its server's",
        ),
        "a listener has one endpoint": ("unjudged_bytes: a listener has one endpoint",),
        "a result is its call's": ("unjudged_bytes: a result answers an open request",),
        "nothing derives an allow from a name": (
            "init_guess: nothing is allowed for its name",
            "init_guess: no argument is a receiver for its name",
            "init_guess: a server is known by what its user starts, not by its tools",
            "known_programs: the path of a program is no package",
            "known_programs: a runner is one of the path of commands",
        ),
        "a grant is for one very call": (
            "approvals: a grant is one principal's",
            "approvals: a grant is for its session",
            "approvals: a grant is for one server",
            "approvals: a grant is for one tool",
            "approvals: a grant is for its arguments",
            "approvals: a grant is for one request",
            "approvals: a grant is under one policy",
            "approvals: a grant is for a tool as it was",
            "approvals: a grant ends",
            "approvals: a grant is used once",
        ),
    },
    "looked at": {
        "every call of every role is searched": (
            "roles: every call is searched",
            "roles: what reaches somebody outside is a send",
            "roles: what is loaded by itself is a receiver",
            "roles: everybody is a receiver",
            "roles: statements of SQL that reach out count",
            "roles: statements of SQL are a closed list",
            "roles: an argument's name makes it stricter",
            "roles: who is told of what is saved receives it",
            "roles: a draft that is sent is a send",
            "roles: what is handed over has a receiver",
            "quiet_receivers: an address that no mapping declares receives something",
            "quiet_receivers: a mailbox that a statement writes receives something",
            "quiet_receivers: a switch that no mapping declares needs a person",
        ),
        "a bound frees nobody": ("roles: links beyond a bound may be tainted",),
        "what is declared inert is looked at for receivers and paths": (
            "roles: ignored arguments are looked at",
            "roles: paths are normalised",
        ),
        "SQL is read as SQL is": ("roles: unknown functions of SQL count",),
        "by the reader of results": (
            "decoding: what only decoding shows counts where it is tainted",
            "decoding: headers in a payload name receivers",
            "decoding: whoever a head names receives it",
        ),
        "every message is a call, closed protocol, or refused": (
            "unjudged_bytes: messages have closed grammars",
            "unjudged_bytes: cursors and states were issued",
            "unjudged_bytes: what a provider fetches is a call",
            "unjudged_bytes: a member that a model API does not have is a call",
            "unjudged_bytes: a mailbox is no program's name",
            "unjudged_bytes: answers to a server are sends",
            "unjudged_bytes: an answer has its question",
            "header_controls: heads have no line ends",
            "header_controls: who the client is, the first proxy says",
            "header_controls: a header gives no other target, in any spelling",
            "header_controls: what is said of a connection ends with it",
            "header_controls: a header that goes on is judged, whatever it is called",
            "header_controls: a content type says a type and nothing more",
        ),
        "what is released was labelled, and read": (
            "unjudged_bytes: what is released is labelled",
            "unjudged_bytes: where a head leads is labelled",
            "unjudged_bytes: what an event says beside its data is labelled",
            "memory_gate: what is released was read",
        ),
        "the candidate is the whole request": ("memory_gate: the candidate is the whole request",),
    },
    "content": {
        "a link that a service loads is a send to its host": (
            "previews: a link that is previewed is a receiver",
        ),
    },
    "policies": {
        "a new session resets no limit": ("policies: limits count the principal",),
        "a victim's record stays": ("policies: private records are known again",),
        "workflow files and branches are no data": ("policies: files and branches are looked at",),
        "nor is what a machine runs by itself": (
            "policies: files that run are looked at",
            "policies: programs are listed",
            "policies: a command reads no file that a tool may not",
            "policies: files are in the workspace",
        ),
        "money goes back where it came from, once": (
            "policies: money goes where it came from",
            "policies: many small payments are a large one",
        ),
        "provenance decides": (
            "policies: each says who receives",
            "policies: a mapping says all that a tool is told",
            "policies: a pull request is approved by its number",
            "empty_members: an empty member is an absent one",
            "empty_members: an empty value passes no test",
            "policies: provenance decides",
            "policies: a browser opens what was named",
        ),
        "an unknown name is not harmless": ("policies: unknown tools are no harmless ones",),
    },
}
"""Statement to switches (``class: name``), by rule."""
