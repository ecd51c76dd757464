"""MCP servers in the configuration files of MCP clients, read and rewritten.  Pure: no I/O.

Claude Desktop and Code, Cursor, VS Code and Gemini CLI write JSON, some of them with comments and
trailing commas; Codex writes TOML.  What is rewritten is the value of a server's command, arguments
or URL, in its place; everything else stays byte for byte, comments and unknown keys with it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json


KeyPath: TypeAlias = tuple[str, ...]
"""Keys from the root of the document to a value."""

PLACES: Final[tuple[KeyPath, ...]] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp_servers",),
    ("projects", "*", "mcpServers"),
)
"""Locations of servers in configurations: most of them; VS Code's mcp.json; its settings; Codex;
Claude Code, by project."""
URL_KEYS: Final = ("httpUrl", "url", "serverUrl")
MAX_BYTES: Final = 4 * 1024 * 1024
_TEXT: Final = r'"(?:[^"\\]|\\.)*"'
_COMMENT: Final = re.compile(rf"(?P<text>{_TEXT})|\ufeff|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING: Final = re.compile(rf"(?P<text>{_TEXT})|,(?=\s*[\]}}])", re.DOTALL)
_LETTER: Final = re.compile(r"[^\r\n]")
_NAME: Final = re.compile(rf"[\s,]*({_TEXT})\s*:\s*", re.DOTALL)
_HTTP: Final = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """One server of a client: reached at a URL, or started as a command."""

    name: str
    url: str = ""
    transport: str = "http"
    """``http``, ``sse`` or ``stdio``."""
    headers: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    place: KeyPath = ()
    """Location in its file."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Replacement of a server in a client's configuration."""

    place: KeyPath
    """Location of the server."""
    command: tuple[str, ...] = ()
    url: str = ""


def read_client_config(text: bytes) -> list[ConfiguredServer]:
    """Return the servers of a configuration file.

    Raises:
        GuardError: it is neither JSON nor TOML, or no client's configuration.
    """
    document = _document(_decoded(text))
    found = [
        _server(name, entry, (*place, name))
        for place, servers in _tables(document)
        for name, entry in servers.items()
    ]
    if not found:
        raise GuardError("there is neither `mcpServers` nor `servers` nor `mcp_servers` in it")
    return found


def rewritten_config(text: bytes, changes: Sequence[Rewritten]) -> bytes:
    """Return a configuration in which servers are started or reached otherwise.

    Raises:
        GuardError: the text cannot be changed in place.
    """
    before = _decoded(text)
    after = _toml(before, changes) if _is_toml(before) else _json(before, changes)
    _document(after)
    return after.encode("utf-8")


def _decoded(text: bytes) -> str:
    if len(text) > MAX_BYTES:
        raise GuardError(f"the configuration is larger than {MAX_BYTES} bytes")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GuardError("the configuration is not UTF-8 text") from error


def _is_toml(text: str) -> bool:
    return not _plain(text).lstrip().startswith("{")


def _document(text: str) -> Json:
    """Return the values of a file."""
    if not _is_toml(text):
        try:
            return json.loads(_plain(text), object_pairs_hook=_unique)
        except json.JSONDecodeError as error:
            raise GuardError(f"the configuration is not JSON at line {error.lineno}") from error
        except (ValueError, RecursionError) as error:
            raise GuardError(f"the configuration is not JSON: {error}") from error
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise GuardError(f"the configuration is neither JSON nor TOML: {error}") from error


def _tables(document: Json) -> Iterator[tuple[KeyPath, Mapping[str, Json]]]:
    """Yield each table of servers with its place."""
    for place in PLACES:
        level: list[tuple[KeyPath, Json]] = [((), document)]
        for step in place:
            level = [
                ((*at, key), value[key])
                for at, value in level
                if isinstance(value, dict)
                for key in (value if step == "*" else (step,))
                if key in value
            ]
        yield from ((at, value) for at, value in level if isinstance(value, dict))


def _server(name: str, entry: Json, place: KeyPath) -> ConfiguredServer:
    if not isinstance(entry, dict):
        raise GuardError(f"server `{name}` is not an object")
    url = next((entry[key] for key in URL_KEYS if isinstance(entry.get(key), str)), None)
    if url is not None and urlsplit(url).scheme in _HTTP:
        transports = {entry.get("type"), entry.get("transport")}
        kind = "sse" if "sse" in transports else "http"
        headers = _texts(entry.get("headers")) | _texts(entry.get("http_headers"))
        return ConfiguredServer(name, url, kind, headers=headers, place=place)
    if isinstance(command := entry.get("command"), str):
        words = entry.get("args")
        arguments = tuple(map(str, words)) if isinstance(words, list) else ()
        return ConfiguredServer(
            name,
            "",
            "stdio",
            command=(command, *arguments),
            environment=_texts(entry.get("env")),
            place=place,
        )
    raise GuardError(f"server `{name}` has neither a `url` nor a `command`")


def _texts(value: Json) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


def _toml(text: str, changes: Sequence[Rewritten]) -> str:
    import tomlkit

    document = tomlkit.parse(text)
    # A WebSocket cannot be judged; without this Codex tries one first, and is refused with 426.
    for provider in document.get("model_providers", {}).values():
        provider["supports_websockets"] = False
    for change in changes:
        table: Json = document
        for step in change.place:
            table = table[step]
        if change.url:
            table[next(key for key in URL_KEYS if key in table)] = change.url
        else:
            table["command"], table["args"] = change.command[0], list(change.command[1:])
    return tomlkit.dumps(document)


def _json(text: str, changes: Sequence[Rewritten]) -> str:
    plain = _plain(text)
    edits: list[tuple[int, int, str]] = []
    for change in changes:
        start = 0
        for step in change.place:
            start = _members(plain, start)[step][0]
        edits += _edits(_members(plain, start), change)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _edits(
    members: Mapping[str, tuple[int, int]], change: Rewritten
) -> Iterator[tuple[int, int, str]]:
    if change.url:
        key = next(key for key in URL_KEYS if key in members)
        yield *members[key], json.dumps(change.url, ensure_ascii=False)
        return
    arguments = json.dumps(list(change.command[1:]), ensure_ascii=False)
    first = json.dumps(change.command[0], ensure_ascii=False)
    if "args" in members:
        yield *members["args"], arguments
    else:
        first += f', "args": {arguments}'
    yield *members["command"], first


def _plain(text: str) -> str:
    """Return JSON of the same length, with spaces for comments and trailing commas.

    No library that is kept up changes a text with comments in its place.
    """
    for extra in (_COMMENT, _TRAILING):
        text = extra.sub(lambda found: found["text"] or _LETTER.sub(" ", found[0]), text)
    return text


def _unique(members: list[tuple[str, Json]]) -> dict[str, Json]:
    if len({name for name, _ in members}) < len(members):
        raise ValueError("a member is there twice")
    return dict(members)


def _members(plain: str, start: int) -> dict[str, tuple[int, int]]:
    """Return the start and end of each value in the object that begins at a place."""
    decoder = json.JSONDecoder()
    found: dict[str, tuple[int, int]] = {}
    at = plain.index("{", start) + 1
    while (name := _NAME.match(plain, at)) is not None:
        _, at = decoder.raw_decode(plain, name.end())
        found[json.loads(name[1])] = name.end(), at
    return found


TIMEOUT: Final = 30
"""Seconds that a client waits for a hook: more than the hook waits for the guard."""
SIGN: Final = "guard-hook"
"""Text by which a hook of the guard is recognised, and replaced."""
_EVENTS: Final = ("UserPromptSubmit", "PreToolUse", "PostToolUse")


class HookFile(NamedTuple):
    """Settings of one client."""

    path: str
    events: Sequence[str]
    is_flat: bool = False
    """True for events that list commands, and not groups of them with a matcher."""


FILES: Final = {
    "claude-code": HookFile("~/.claude/settings.json", (*_EVENTS, "PostToolUseFailure")),
    "codex": HookFile("~/.codex/hooks.json", _EVENTS),
    "cursor": HookFile(
        "~/.cursor/hooks.json",
        (
            "beforeSubmitPrompt",
            "preToolUse",
            "postToolUse",
            "postToolUseFailure",
            "beforeShellExecution",
            "afterShellExecution",
            "beforeMCPExecution",
            "afterMCPExecution",
        ),
        is_flat=True,
    ),
}
"""Settings by client, as the clients' own documentation names them (read on 2026-11-28)."""


def hook_command(words: Sequence[str]) -> str:
    """Return the shell command of a hook; whatever goes wrong in it is a refusal.

    Args:
        words: program and arguments, quoted where a shell needs it.
    """
    return f"{' '.join(words)} --process $PPID || exit 2 # {SIGN}"


def with_hooks(client: str, text: bytes, command: str) -> bytes:
    """Return a client's settings with the guard's hooks, in place of earlier ones of the guard.

    Args:
        client: name of the client.
        text: its settings; empty for a file that does not exist.
        command: from :func:`hook_command`.

    Raises:
        GuardError: the settings are not a JSON object with lists of hooks.
    """
    where = FILES[client]
    try:
        document = json.loads(text or b"{}")
        hooks: dict[str, Any] = document.setdefault("hooks", {})
        for event in where.events:
            others = [one for one in hooks.get(event, []) if SIGN not in json.dumps(one)]
            hooks[event] = [*others, _entry(where, event, command)]
    except (ValueError, AttributeError, TypeError) as error:
        raise GuardError(
            f"`{where.path}` is not a JSON object with `hooks` by event; mend it first"
        ) from error
    if where.is_flat:
        document.setdefault("version", 1)
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _entry(where: HookFile, event: str, command: str) -> dict[str, Any]:
    if where.is_flat:
        return {"command": command, "timeout": TIMEOUT, "failClosed": True}
    hook = {"type": "command", "command": command, "timeout": TIMEOUT}
    matcher = {} if event == "UserPromptSubmit" else {"matcher": "*"}
    return {**matcher, "hooks": [hook]}
