"""Claude Agent SDK: hooks for ``ClaudeAgentOptions``.

``ClaudeAgentOptions(hooks=guard_hooks(guard))``.  Tools that the SDK's command line program runs by
itself (its shell, its file tools) are judged as those of Claude Code are
(docs/start/claude-code.md): a policy maps them with the profile ``builtin:coding-clients``.
A guard on the wire alone sees the network traffic of a shell command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import HookMatcher

from guard.pep.hook.payloads import UPSTREAM, Client, Kind, given_arguments, read_hook

if TYPE_CHECKING:
    from guard.in_process import Guard, Session, Verdict

WITHHELD: Final = "The result of this call was withheld: the egress guard did not judge the call."


def guard_hooks(
    guard: Guard,
    *,
    principal: str = "agent",
    project: str | Path = "",
    follow_remedies: bool = False,
) -> dict[str, list[HookMatcher]]:
    """Return the hooks that judge every tool call and label every result.

    What a person submits is noted as a prompt.  A hook that fails blocks what it was asked about.

    Args:
        guard: an open guard.
        principal: who the agent is; its session is the SDK's.
        project: directory of the agent; left out, that of this process.
        follow_remedies: see :meth:`guard.Guard.session`.
    """
    hooks = _Hooks(guard, principal, str(project or Path.cwd()), follows=follow_remedies)
    matched = {
        "UserPromptSubmit": hooks.on_prompt,
        "PreToolUse": hooks.before_tool,
        "PostToolUse": hooks.after_tool,
        "PostToolUseFailure": hooks.after_tool,
    }
    return {
        event: [HookMatcher(hooks=[hook], on_failure="block")] for event, hook in matched.items()
    }


class _Hooks:
    def __init__(self, guard: Guard, principal: str, project: str, *, follows: bool) -> None:
        self._guard = guard
        self._follows = follows
        self._project = project
        self._principal = principal
        self._running: dict[str, Verdict] = {}
        """Verdicts on calls that were allowed and have no result yet, by the id of the tool use."""

    def _session(self, given: Any) -> Session:
        return self._guard.session(
            given["session_id"], principal=self._principal, follow_remedies=self._follows
        )

    async def on_prompt(self, given: Any, tool_use_id: str | None, context: Any) -> Any:
        hook = read_hook(Client.CLAUDE_CODE, given, self._project)
        if hook.kind is Kind.PROMPT:
            await self._session(given).prompt(hook.text)
        return {}

    async def before_tool(self, given: Any, tool_use_id: str | None, context: Any) -> Any:
        hook = read_hook(
            Client.CLAUDE_CODE, {**given, "tool_use_id": tool_use_id or "-"}, self._project
        )
        run = self._session(given)
        server = hook.server or UPSTREAM
        verdict = await run.authorize(hook.tool, hook.arguments, server=server)
        decision: dict[str, Any] = {"hookEventName": "PreToolUse"}
        if not verdict.allowed:
            decision |= {"permissionDecision": "deny", "permissionDecisionReason": verdict.refusal}
            return {"hookSpecificOutput": decision}
        self._running[tool_use_id or given["tool_use_id"]] = verdict
        if verdict.action != "redact":
            # No decision: the permissions that the user has set still hold.
            return {}
        decision |= {
            "permissionDecision": "allow",
            "updatedInput": given_arguments(hook, verdict.arguments),
        }
        return {"hookSpecificOutput": decision}

    async def after_tool(self, given: Any, tool_use_id: str | None, context: Any) -> Any:
        failed = given["hook_event_name"] == "PostToolUseFailure"
        result = given["error" if failed else "tool_response"]
        verdict = self._running.pop(tool_use_id or given["tool_use_id"], None)
        if verdict is None:
            return _withheld(given, WITHHELD)
        released = await self._session(given).observe(verdict, result, is_error=failed)
        if released.withheld is None and not released.replaced:
            return {}
        return _withheld(given, released.content)


def _withheld(given: Any, left: Any) -> Any:
    """Return the hook's output that shows the model what is left instead of the result."""
    text = left if isinstance(left, str) else json.dumps(left, ensure_ascii=False)
    decision = {"hookEventName": given["hook_event_name"], "additionalContext": text}
    if given["hook_event_name"] == "PostToolUse":
        decision["updatedToolOutput"] = left
    # Where the output's shape cannot be replaced, the run ends: the result must not be read.
    return {"continue_": False, "stopReason": text, "hookSpecificOutput": decision}
