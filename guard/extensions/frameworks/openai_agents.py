"""OpenAI Agents SDK: ``guarded(agent, guard)`` returns the agent with guarded function tools.

Tools of MCP servers and hosted tools do not run in this process: put the guard on their wire.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from agents import Agent, FunctionTool, GuardrailFunctionOutput, InputGuardrail, RunContextWrapper

from guard.in_process import Guard, Refused, Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.tool_context import ToolContext


T = TypeVar("T")


def guarded(
    agent: Agent[T],
    guard: Guard,
    *,
    session: str = "",
    principal: str = "",
    prompts: bool = True,
    follow_remedies: bool = False,
) -> Agent[T]:
    """Return a copy of an agent whose function tools are judged before they run.

    Args:
        agent: whose tools are guarded; the agents it hands over to need this of their own, with the
            same ``session`` and ``prompts=False``.
        guard: an open guard.
        session: id of the conversation; left out, a new one.
        principal: who the agent is; left out, its name.
        prompts: whether a person typed the input that runs begin with; False for an agent that
            another agent calls.
        follow_remedies: see :meth:`guard.Guard.session`.
    """
    run = guard.session(
        session or secrets.token_hex(8),
        principal=principal or agent.name,
        follow_remedies=follow_remedies,
    )
    tools = [guarded_tool(t, run) if isinstance(t, FunctionTool) else t for t in agent.tools]
    first = [_prompt_channel(run)] if prompts else []
    return agent.clone(tools=tools, input_guardrails=[*first, *agent.input_guardrails])


def guarded_tool(tool: FunctionTool, session: Session) -> FunctionTool:
    """Return a function tool that runs only where the guard allows it."""
    inner = tool.on_invoke_tool

    async def invoke(context: ToolContext[Any], text: str) -> Any:
        try:
            arguments = json.loads(text or "{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return "The arguments of this call are no JSON object; the egress guard refused it."

        async def run(allowed: Mapping[str, Any]) -> Any:
            # The very text that was judged, unless something was redacted.
            return await inner(context, text if allowed == arguments else json.dumps(allowed))

        try:
            return await session.call(tool.name, arguments, run)
        except Refused as refused:
            return str(refused)

    return replace(tool, on_invoke_tool=invoke)


def _prompt_channel(session: Session) -> InputGuardrail[Any]:
    """Return a guardrail that passes on what a person typed, before the model is asked."""

    async def note(
        _: RunContextWrapper[Any], _agent: Agent[Any], given: str | Sequence[Any]
    ) -> GuardrailFunctionOutput:
        for text in _typed(given):
            await session.prompt(text)
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    return InputGuardrail(note, name="guard_prompt_channel", run_in_parallel=False)


def _typed(given: str | Sequence[Any]) -> list[str]:
    """Return the user's texts after the last item of anybody else, oldest first."""
    if isinstance(given, str):
        return [given]
    texts: list[str] = []
    for item in reversed(given):
        if not isinstance(item, dict) or item.get("role") != "user":
            break
        content = item.get("content")
        parts = [content] if isinstance(content, str) else list(content or ())
        said = [p if isinstance(p, str) else str(p.get("text", "")) for p in parts]
        texts.append("\n".join(said))
    return texts[::-1]
