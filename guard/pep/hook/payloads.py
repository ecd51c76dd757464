"""Hook payloads of coding agents as prompts, calls and results, and the answers that they read.

Claude Code and Codex share one format; Cursor has its own.  Paths in arguments are resolved: one
inside the project becomes relative to it, any other absolute, so that a policy tells them apart.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.core.model import Json

UPSTREAM: Final = "hook:agent"
"""Server of the tools that a coding agent brings with it, as policies name it."""
PROJECT: Final = "project"
CWD: Final = "cwd"
PATHS: Final = "paths"
_MCP: Final = "mcp__"
_PATH_NAMES: Final = frozenset(
    {"file_path", "notebook_path", "path", "target_file", "target_directory", "working_directory"}
)
_SHELLS: Final = frozenset({"Bash", "Shell"})
_PATCHED: Final = re.compile(
    r"^\s*\*\*\* (?:(?:Add|Update|Delete) File|Move to): *(.+?)\s*$", re.MULTILINE
)
_UNREAD: Final = "/"
"""Path in place of those of a patch that names none: outside every project."""
_TYPED: Final = frozenset({"", "user", "sdk"})
"""Sources of prompts that a person wrote; others are put into the session by a program."""
_DIALOG_MODES: Final = frozenset({"", "default", "acceptEdits", "plan"})
"""Permission modes in which Claude Code shows its dialog."""
_SERVER: Final = re.compile(r"--name[ =]([A-Za-z0-9._-]+)")


class Client(StrEnum):
    """Coding agents whose hooks are known."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    CURSOR = "cursor"


class Kind(StrEnum):
    """Kind of an event."""

    PROMPT = "prompt"
    CALL = "call"
    RESULT = "result"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Hook:
    """One event, as the hook of a client reports it."""

    client: Client
    event: str
    """Name of the event, as the client spells it."""
    kind: Kind
    session: str
    use: str = ""
    """Id that the call and its result share."""
    tool: str = ""
    server: str = ""
    """MCP server of the tool; empty for a tool of the client."""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    """Arguments as the policy judges them."""
    given: Mapping[str, Json] = field(default_factory=dict)
    """Arguments as the client sent them."""
    text: str = ""
    """Text of a prompt."""
    result: Json = None
    failed: bool = False
    has_dialog: bool = False
    """True for an event in which the client asks its user where the hook answers `ask`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Answer to a call."""

    verdict: str
    """``allow``, ``redact``, ``ask`` or ``block``."""
    question: str = ""
    """Sentence for the person at the client."""
    refusal: str = ""
    """Text for the agent."""
    arguments: Mapping[str, Json] | None = None
    """Redacted arguments."""


def read_hook(client: Client, payload: Mapping[str, Json], project: str) -> Hook:
    """Return the event of a payload.

    Args:
        client: whose hook it is.
        payload: as the client wrote it.
        project: absolute path of the project, unless the payload of the client names it.

    Raises:
        MessageError: the payload is not one of this client's.
    """
    event = _text(payload, "hook_event_name")
    if client is Client.CURSOR:
        return _cursor(payload, event, project)
    session = _text(payload, "session_id")
    if event == "UserPromptSubmit":
        is_typed = payload.get("source", "") in _TYPED
        kind = Kind.PROMPT if is_typed else Kind.OTHER
        return Hook(client, event, kind, session, text=_text(payload, "prompt"))
    if event not in {"PreToolUse", "PostToolUse", "PostToolUseFailure"}:
        return Hook(client, event, Kind.OTHER, session)
    given = _object(payload.get("tool_input"))
    server, tool = tool_of(_text(payload, "tool_name"))
    failed = event == "PostToolUseFailure"
    return Hook(
        client,
        event,
        Kind.CALL if event == "PreToolUse" else Kind.RESULT,
        session,
        use=_text(payload, "tool_use_id"),
        tool=tool,
        server=server,
        arguments=given if server else judged(tool, given, project, str(payload.get("cwd", ""))),
        given=given,
        result=payload.get("error" if failed else "tool_response"),
        failed=failed,
        has_dialog=client is Client.CLAUDE_CODE
        and payload.get("permission_mode", "") in _DIALOG_MODES,
    )


def tool_of(name: str) -> tuple[str, str]:
    """Return server and tool of a name; tools of MCP servers are ``mcp__SERVER__TOOL``."""
    if not name.startswith(_MCP):
        return "", name
    server, _, tool = name.removeprefix(_MCP).partition("__")
    return server, tool


def judged(tool: str, given: Mapping[str, Json], project: str, cwd: str) -> dict[str, Json]:
    """Return the arguments of a client's own tool with resolved paths and the project."""
    root = str(Path(project).resolve())
    start = cwd if cwd.startswith("/") else root
    arguments = {
        name: _resolved(root, start, value) if name in _PATH_NAMES else value
        for name, value in given.items()
    }
    if tool == "Glob" and "pattern" in given:
        arguments["pattern"] = _resolved(root, start, given["pattern"])
    if tool == "apply_patch":
        text = "\n".join(value for value in given.values() if isinstance(value, str))
        paths = [_resolved(root, start, path) for path in _PATCHED.findall(text)]
        arguments[PATHS] = paths or [_UNREAD]
    arguments[PROJECT] = root
    arguments[CWD] = _resolved(root, start, given.get(CWD) or start)
    return arguments


def _resolved(root: str, start: str, value: Json) -> Json:
    if not isinstance(value, str) or not value or "\0" in value:
        return value
    # `Path.expanduser` raises for users that do not exist.
    path = Path(start, os.path.expanduser(value)).resolve()  # noqa: PTH111
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _cursor(payload: Mapping[str, Json], event: str, project: str) -> Hook:
    session = _text(payload, "conversation_id")
    roots = payload.get("workspace_roots")
    root = str(roots[0]) if isinstance(roots, list) and roots else project
    if event == "beforeSubmitPrompt":
        return Hook(Client.CURSOR, event, Kind.PROMPT, session, text=_text(payload, "prompt"))
    stage = next((stage for prefix, stage in _STAGES if event.startswith(prefix)), Kind.OTHER)
    name, given, server, result = _cursor_tool(payload, event)
    if stage is Kind.OTHER or not name:
        return Hook(Client.CURSOR, event, Kind.OTHER, session)
    cwd = str(payload.get("cwd") or root)
    use = str(payload.get("tool_use_id") or "")
    if not use or name in _SHELLS or server:
        # Events of shell and MCP carry no id of the call.
        turn = payload.get("generation_id", "")
        use = json.dumps([turn, server, name, given], sort_keys=True)
    return Hook(
        Client.CURSOR,
        event,
        stage,
        session,
        use=use,
        tool=name,
        server=server,
        arguments=given if server else judged(name, given, root, cwd),
        given=given,
        result=result,
        failed=event == "postToolUseFailure",
        # In other events Cursor accepts `ask` and does not ask.
        has_dialog=event in {"beforeShellExecution", "beforeMCPExecution"},
    )


_STAGES: Final = (
    ("before", Kind.CALL),
    ("preToolUse", Kind.CALL),
    ("after", Kind.RESULT),
    ("postToolUse", Kind.RESULT),
)


def _cursor_tool(
    payload: Mapping[str, Json], event: str
) -> tuple[str, Mapping[str, Json], str, Json]:
    """Return name, arguments, MCP server and result; an empty name for an event without a call."""
    if event.endswith("ShellExecution"):
        return "Shell", {"command": _text(payload, "command")}, "", payload.get("output")
    if event.endswith("MCPExecution"):
        launched = f"{payload.get('command') or ''} {payload.get('url') or ''}".strip()
        named = _SERVER.search(launched) if " stdio " in launched else None
        server = named[1] if named else launched or "unknown"
        given = _object(payload.get("tool_input"))
        return _text(payload, "tool_name"), given, server, payload.get("result_json")
    if event.lower().endswith(("tooluse", "toolusefailure")):
        name = _text(payload, "tool_name")
        if name in _SHELLS or name.startswith("MCP"):
            # The event of shell and MCP judges it, and can ask.
            return "", {}, "", None
        result = payload.get("tool_output", payload.get("error_message"))
        return name, _object(payload.get("tool_input")), "", result
    return "", {}, "", None


def answer_to_call(hook: Hook, decision: Decision) -> dict[str, Json]:
    """Return the hook's output for a call; empty where the client's own permissions decide."""
    if decision.verdict == "allow":
        return {}
    answer, reason = "deny", decision.refusal
    if decision.verdict == "ask":
        answer, reason = "ask", decision.question
    fields: dict[str, Json] = {}
    if decision.verdict == "redact":
        # A person sees the redacted call; Codex takes new arguments with `allow` only.
        answer, reason = "allow" if hook.client is Client.CODEX else "ask", decision.question
        fields = {"updatedInput": dict(decision.arguments or {})}
    if hook.client is Client.CURSOR:
        answer = "ask" if answer == "ask" and not fields else "deny"
        told = decision.refusal or decision.question
        return {"permission": answer, "user_message": decision.question, "agent_message": told}
    return {
        "hookSpecificOutput": {
            "hookEventName": hook.event,
            "permissionDecision": answer,
            "permissionDecisionReason": reason,
            **fields,
        }
    }


def answer_to_result(hook: Hook, content: Json) -> dict[str, Json]:
    """Return the hook's output that replaces a result."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    if hook.client is Client.CURSOR:
        return {"additional_context": text, "updated_mcp_tool_output": content}
    if hook.client is Client.CODEX:
        return {"decision": "block", "reason": text}
    fields = {"hookEventName": hook.event, "additionalContext": text}
    if not hook.failed:
        fields["updatedToolOutput"] = content
    # Where the output's shape cannot be replaced, the run ends: the result must not be read.
    return {"continue": False, "stopReason": text, "hookSpecificOutput": fields}


def given_arguments(hook: Hook, redacted: Mapping[str, Json]) -> dict[str, Json]:
    """Return redacted arguments as the client's tool reads them: paths as given, nothing added."""
    return {
        name: value if hook.arguments.get(name) == redacted.get(name) else redacted.get(name)
        for name, value in hook.given.items()
    }


def _text(payload: Mapping[str, Json], name: str) -> str:
    value = payload.get(name)
    if not isinstance(value, str) or not value:
        raise MessageError("bad_json", f"the payload has no text `{name}`")
    return value


def _object(value: Json) -> dict[str, Json]:
    """Return the arguments of a tool; Cursor writes some of them as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise MessageError("bad_json", "`tool_input` is not JSON") from error
    if not isinstance(value, dict):
        raise MessageError("bad_json", "`tool_input` is not an object")
    return value
