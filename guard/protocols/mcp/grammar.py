"""A closed grammar of the MCP messages that are not calls, by method.  Pure: no I/O.

A message that is not a call passes unjudged only as far as its grammar describes it: members,
numbers, ids, enumerations, short names.  The rest is a call ``mcp.message`` with that part as its
arguments, which the policy judges like any other tool's.  The grammars cover 2024-11-05 to
2026-07-28 and the messages of the official SDKs and common clients.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from guard.core.model import TRACEPARENT, Json
from guard.protocols.http.metadata import is_plain
from guard.values.decoder import decoded
from guard.values.leaks import has_leak

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guard.protocols.framing.json_messages import RpcMessage

Grammar: TypeAlias = "Callable[[Json], bool] | Mapping[str, Any]"
"""A predicate over a value, or the grammars of an object's members; no other member is inside."""

NUMBER_LIMIT: Final = 10**13
"""Above it an integer is not a counter or a time in milliseconds."""
NAME_DIGITS: Final = 8
"""Digits of a name that still is one."""
NESTING: Final = 6
_UUID: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}", re.IGNORECASE
)
_COUNTED: Final = re.compile(r"[0-9a-f]{8}-\d{1,6}")
"""Ids of the Java SDK: where a client starts, and a counter."""
_PROBE: Final = re.compile(r"server-discover-probe-\d{1,6}")
"""Ids of the TypeScript SDK's first request, which finds out the revision."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9 ._/@:+()-]{0,47}|\d{1,8}")
NAME_WORDS: Final = 5
"""Words of the longest name."""
_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_WORD_LIMIT: Final = 24
_MIXED_LIMIT: Final = 8
"""Characters of a word with digits in it."""
_VERSION: Final = re.compile(r"v?\d{1,8}(?:[.+-][0-9A-Za-z]{1,12}){0,6}")
_VERSION_DIGITS: Final = 12
_REVISION: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?:-RC)?|DRAFT-\d{4}(?:-v\d)?")
_SITE: Final = re.compile(r"https?://[a-z][a-z.-]{0,30}[a-z](?:/[a-z/-]{0,23})?")
_TRACE_STATE: Final = re.compile(r"[a-z]{1,16}=([0-9a-f]{1,32})")
_TOOL_USE: Final = re.compile(r"toolu_[A-Za-z0-9]{20,32}")


def is_name(value: Json) -> bool:
    """Return whether a value is a short name of a program: no number or code stands in it."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None or not is_plain_text(value):
        return False
    if is_mailbox(value):
        return False
    words = _WORD.findall(value)
    return (
        len(words) <= NAME_WORDS
        and sum(char.isdigit() for char in value) <= NAME_DIGITS
        and all(len(word) <= (_WORD_LIMIT if word.isalpha() else _MIXED_LIMIT) for word in words)
    )


def is_mailbox(value: str) -> bool:
    """Return whether a short name names a mailbox: an ``@`` in front is a package's scope."""
    return "@" in value[1:]


def is_plain_text(value: str) -> bool:
    """Return whether no word of a text has the form of a secret, or is text under a coding."""
    return all(is_plain(word) for word in value.split())


def is_id(value: Json) -> bool:
    """Return whether a value is an id as programs make them: a counter, a UUID, a short name."""
    if isinstance(value, str):
        found = _UUID.fullmatch(value) or _COUNTED.fullmatch(value) or _PROBE.fullmatch(value)
        return found is not None or (" " not in value and is_name(value))
    return is_number(value)


def is_number(value: Json) -> bool:
    """Return whether a value is a number that counts something."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < NUMBER_LIMIT
        and len(repr(value)) <= _NUMBER_LENGTH
    )


_NUMBER_LENGTH: Final = 18


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool) or value == {}


def _is_version(value: Json) -> bool:
    return (
        isinstance(value, str)
        and _VERSION.fullmatch(value) is not None
        and sum(char.isdigit() for char in value) <= _VERSION_DIGITS
        and is_plain(value)
    ) or is_name(value)


def _matching(pattern: re.Pattern[str]) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


_DESCRIBING: Final = frozenset(
    """a agent agentic ai an and anthropic app application assistant by chat claude client code
    coding command context desktop developer editor for gemini google gpt ide in inspector line
    mcp microsoft model of openai protocol s sdk server studio terminal the tool visual web with
    your""".split()  # noqa: SIM905
)


def _describes(value: Json) -> bool:
    """Return whether a text describes a program in words that such descriptions have."""
    return (
        isinstance(value, str)
        and len(value) <= _PHRASE_LIMIT
        and value.isascii()
        and all(word.lower() in _DESCRIBING for word in _WORD.findall(value))
    )


def _is_site(value: Json) -> bool:
    return isinstance(value, str) and _SITE.fullmatch(value) is not None and is_plain(value)


def _one_of(*values: str) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, str) and value in values


def _many(grammar: Grammar) -> Callable[[Json], bool]:
    return lambda value: (
        isinstance(value, list) and all(outside(item, grammar) is None for item in value)
    )


def _anything(value: Json) -> bool:
    """Accept a part that another check looks at."""
    del value
    return True


# fmt: off
_CAPABILITY_NAMES: Final = frozenset(
    {
        "applyDefaults", "call", "cancel", "completions", "context", "create",
        "createMessage", "elicitation", "experimental", "extensions", "form",
        "io.modelcontextprotocol/enterprise-managed-authorization",
        "io.modelcontextprotocol/oauth-client-credentials",
        "io.modelcontextprotocol/skills",
        "io.modelcontextprotocol/tasks", "io.modelcontextprotocol/ui", "list",
        "listChanged", "logging", "mimeTypes", "prompts", "requests", "resources",
        "roots", "sampling", "subscribe", "tasks", "tools", "url"
    }
)
# fmt: on
_CAPABILITY_VALUES: Final = frozenset({"text/html;profile=mcp-app", "text/html"})


def _capabilities(value: Json, depth: int = NESTING) -> Json:
    """Return what of the capabilities is not in the specification, None where nothing is."""
    if value is None or isinstance(value, bool) or value in ({}, []):
        return None
    if isinstance(value, dict) and depth:
        others = {
            name: inner if name not in _CAPABILITY_NAMES else _capabilities(inner, depth - 1)
            for name, inner in value.items()
        }
        kept = {
            name: inner
            for name, inner in others.items()
            if inner is not None or name not in _CAPABILITY_NAMES
        }
        return kept or None
    if isinstance(value, list) and all(item in _CAPABILITY_VALUES for item in value):
        return None
    return value


def _are_capabilities(value: Json) -> bool:
    return isinstance(value, dict) and _capabilities(value) is None


PROGRAM: Final[Grammar] = {
    "name": is_name,
    "title": is_name,
    "version": _is_version,
    "description": _describes,
    "websiteUrl": _is_site,
}
"""Names by which a client or server describes itself."""
_LEVEL: Final = _one_of(
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
)
_SPEC: Final = "io.modelcontextprotocol/"
META: Final[Grammar] = {
    "progressToken": is_id,
    f"{_SPEC}protocolVersion": _matching(_REVISION),
    f"{_SPEC}clientInfo": PROGRAM,
    f"{_SPEC}serverInfo": PROGRAM,
    f"{_SPEC}clientCapabilities": _are_capabilities,
    f"{_SPEC}logLevel": _LEVEL,
    f"{_SPEC}related-task": {"taskId": is_id},
    f"{_SPEC}subscriptionId": is_id,
    "session_id": is_id,
    "sessionId": is_id,
    "session.id": is_id,
    "traceparent": _matching(TRACEPARENT),
    "tracestate": _matching(_TRACE_STATE),
    "claudecode/toolUseId": _matching(_TOOL_USE),
    "vscode.conversationId": is_id,
    "vscode.requestId": is_id,
}
"""Members of ``_meta`` that the specification, or a common client, puts there."""
_OF_REQUEST: Final = re.compile(
    r"(?:[a-z0-9-]{1,20}\.){0,4}(?:[a-z0-9-]{2,20}[./])?"
    r"(?:(?:request|message|invocation|correlation|trace|span|run|turn|step|event|attempt|idempotency"
    r"|tool[_-]?(?:use|call))[_-]?(?:id|key)"
    r"|run|trace|span|turn|step|nonce|attempt|retry[_-]?count|timestamp|(?:sent|created)[_-]?at)",
    re.IGNORECASE,
)
"""Names of what a client makes anew for each attempt, behind a prefix (MCP, ``_meta``) or none."""
_DRAWN: Final = re.compile(
    r"[0-9a-f]{8,32}|(?:[a-z]{2,8}_)[0-9A-Za-z]{8,27}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
)
"""A short hexadecimal number, an id behind the word for what it names, or a time (RFC 3339)."""


def is_of_request(name: str, value: Json) -> bool:
    """Return whether a member of ``_meta`` names one attempt of a call and says nothing else.

    Its value is a number, or what programs draw; text under a coding is none of that.
    """
    if _OF_REQUEST.fullmatch(name) is None:
        return False
    return is_id(value) or (
        isinstance(value, str) and _DRAWN.fullmatch(value) is not None and _is_no_text(value)
    )


def _is_no_text(value: str) -> bool:
    """Return whether no part of a value is a secret by its form, or text under a coding."""
    words = value.split("_")
    return not has_leak(value) and not any(any(True for _ in decoded(word)) for word in words)


_PAGE: Final[Grammar] = {"cursor": _anything, "_meta": META}
_TASK: Final[Grammar] = {"taskId": _anything, "_meta": META}
_NOTHING: Final[Grammar] = {"_meta": META}

# fmt: off
_CANCEL_WORDS: Final = frozenset(
    {
        "32000", "32001", "32600", "32601", "32602", "32603", "32700", "a", "abort",
        "aborted", "aborterror", "aborting", "an", "and", "available", "by", "call",
        "cancel", "canceled", "cancellation", "cancelled", "cause", "client", "closed",
        "closing", "code", "connection", "deadline", "disconnected", "does", "due",
        "elicitation", "error", "exceeded", "expired", "for", "found", "from", "handler",
        "handling", "has", "in", "internal", "invalid", "is", "it", "json", "list", "mcp",
        "mcperror", "message", "method", "ms", "no", "not", "of", "on", "operation", "or", "out",
        "parameters", "params", "parse", "reason", "request", "requested", "roots", "rpc",
        "sampling", "session", "signal", "stopped", "support", "supported", "task",
        "tasks", "the", "this", "timed", "timeout", "timeouterror", "to", "tool",
        "unavailable", "unknown", "user", "was", "with", "without"
    }
)
# fmt: on
_PHRASE_LIMIT: Final = 200


def is_phrase(value: Json) -> bool:
    """Return whether a text is made of the words in which clients cancel, and report errors."""
    if not isinstance(value, str) or len(value) > _PHRASE_LIMIT or not value.isascii():
        return False
    return all(word.lower() in _CANCEL_WORDS for word in _WORD.findall(value))


_STATUS: Final = _one_of("working", "input_required", "completed", "failed", "cancelled")
_TIME: Final = _matching(
    re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)")
)

PLAIN: Final[Mapping[str, Grammar]] = {
    "initialize": {
        "protocolVersion": _matching(_REVISION),
        "capabilities": _are_capabilities,
        "clientInfo": PROGRAM,
        "_meta": META,
    },
    "ping": _NOTHING,
    "tools/list": _PAGE,
    "resources/list": _PAGE,
    "resources/templates/list": _PAGE,
    "prompts/list": _PAGE,
    "logging/setLevel": {"level": _LEVEL, "_meta": META},
    "tasks/get": _TASK,
    "tasks/list": _PAGE,
    "tasks/cancel": _TASK,
    "tasks/result": _TASK,
    "tasks/update": {
        "taskId": _anything,
        "inputResponses": _anything,
        "requestState": _anything,
        "_meta": META,
    },
    "server/discover": _NOTHING,
    "subscriptions/listen": {
        "notifications": {
            "toolsListChanged": _is_flag,
            "promptsListChanged": _is_flag,
            "resourcesListChanged": _is_flag,
            "resourceSubscriptions": _anything,
            "taskIds": _many(is_id),
        },
        "_meta": META,
    },
    "notifications/initialized": _NOTHING,
    "notifications/cancelled": {"requestId": is_id, "reason": is_phrase, "_meta": META},
    "notifications/progress": {
        "progressToken": is_id,
        "progress": is_number,
        "total": is_number,
        "_meta": META,
    },
    "notifications/roots/list_changed": _NOTHING,
    "notifications/tasks/status": {
        "taskId": is_id,
        "status": _STATUS,
        "createdAt": _TIME,
        "lastUpdatedAt": _TIME,
        "ttl": is_number,
        "pollInterval": is_number,
        "_meta": META,
    },
}
"""The grammars of messages of a client that are not calls, by method."""
CALL_MEMBERS: Final[Grammar] = {"task": {"ttl": is_number}, "_meta": META}
"""Members of a call's parameters that are not its arguments."""
ERROR: Final[Grammar] = {"code": is_number, "message": is_phrase}
_DECLINED: Final[Grammar] = {"action": _one_of("decline", "cancel", "accept"), "_meta": META}

SERVER: Final[Mapping[str, Grammar]] = {
    "notifications/progress": PLAIN["notifications/progress"],
    "notifications/cancelled": PLAIN["notifications/cancelled"],
    "notifications/tasks/status": PLAIN["notifications/tasks/status"],
    "notifications/message": {"level": _LEVEL, "logger": is_name, "_meta": META},
    "notifications/resources/updated": _NOTHING,
    "notifications/elicitation/complete": {"elicitationId": is_id, "_meta": META},
    "notifications/subscriptions/acknowledged": PLAIN["subscriptions/listen"],
    "tasks/get": _TASK,
}
"""Parts of a server's messages that a model does not act on; the rest is text that is read."""
RESULT: Final[Grammar] = {
    "_meta": META,
    "protocolVersion": _matching(_REVISION),
    "supportedVersions": _many(_matching(_REVISION)),
    "capabilities": _are_capabilities,
    "serverInfo": PROGRAM,
    "resultType": _one_of("complete", "input_required", "task"),
    "ttlMs": is_number,
    "cacheScope": _one_of("public", "private"),
    "nextCursor": is_id,
    "taskId": is_id,
    "status": _STATUS,
    "createdAt": _TIME,
    "lastUpdatedAt": _TIME,
    "ttl": is_number,
    "pollInterval": is_number,
}
"""Parts of results of plain requests that a model does not act on."""


def outside(value: Json, grammar: Grammar) -> Json:
    """Return the part of a value that its grammar does not describe, None where it does."""
    if value is None:
        return None
    if callable(grammar):
        return None if grammar(value) else value
    if not isinstance(value, dict):
        return value
    others: dict[str, Json] = {}
    for name, inner in value.items():
        if name not in grammar:
            if grammar is not META or not is_of_request(name, inner):
                others[name] = inner
        elif (part := outside(inner, grammar[name])) is not None:
            others[name] = part
    return others or None


def unjudged_part(message: RpcMessage, *, is_call: bool) -> Json:
    """Return what a client's message says outside its grammar, None where there is nothing.

    Args:
        message: of a client; the arguments of calls and the answers of the client are judged as
            such and are not looked at here.
        is_call: whether it is judged as a call.
    """
    others: dict[str, Json] = {}
    if message.id is not None and not is_id(message.id):
        others["id"] = message.id
    if message.method is None:
        return others or None
    if is_call:
        own = {name: message.params[name] for name in ("_meta", "task") if name in message.params}
        part = outside(own, CALL_MEMBERS)
    else:
        part = outside(dict(message.params), PLAIN.get(message.method, _NOTHING))
    if part is not None:
        others["params"] = part
    return {"method": message.method, **others} if others else None


def says_nothing(answer: Json) -> bool:
    """Return whether an answer of a client to its server has nothing in it but its form."""
    if answer in (None, {}, []):
        return True
    return outside(answer, _DECLINED) is None or outside(answer, ERROR) is None
