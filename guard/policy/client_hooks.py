"""Hooks in the settings of coding agents.  Pure: no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        msg = f"`{where.path}` is not a JSON object with `hooks` by event; mend it first"
        raise GuardError(msg) from error
    if where.is_flat:
        document.setdefault("version", 1)
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _entry(where: HookFile, event: str, command: str) -> dict[str, Any]:
    if where.is_flat:
        return {"command": command, "timeout": TIMEOUT, "failClosed": True}
    hook = {"type": "command", "command": command, "timeout": TIMEOUT}
    matcher = {} if event == "UserPromptSubmit" else {"matcher": "*"}
    return {**matcher, "hooks": [hook]}
