"""Google ADK: a plugin for a runner.

``InMemoryRunner(agent, plugins=[GuardPlugin(guard)])``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.plugins.base_plugin import BasePlugin

if TYPE_CHECKING:
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai.types import Content

    from guard.in_process import Guard, Released, Session, Verdict


class GuardPlugin(BasePlugin):
    """Judges the tool calls of every agent of a runner, and labels what their tools return.

    Args:
        guard: an open guard.
        principal: who the agents are; left out, the runner's app name.  ADK's session is theirs.
        follow_remedies: see :meth:`guard.Guard.session`.
    """

    def __init__(self, guard: Guard, *, principal: str = "", follow_remedies: bool = False) -> None:
        super().__init__(name="egress_guard")
        self._guard = guard
        self._follows = follow_remedies
        self._principal = principal
        self._running: dict[str, Verdict] = {}
        """Verdicts on calls that were allowed and have no result yet, by the id of the call."""
        self._runs: dict[str, Session] = {}
        """Sessions of runs that have not ended, by the id of the invocation."""

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: Content
    ) -> None:
        """Note what the person typed."""
        session = self._begin(invocation_context)
        for part in user_message.parts or ():
            if part.text:
                await session.prompt(part.text)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Keep whose calls those of this run are; a run that goes on has no new message."""
        self._begin(invocation_context)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Forget the run."""
        self._runs.pop(invocation_context.invocation_id, None)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Judge a call; what is returned is its result instead of the tool's."""
        session = self._runs[tool_context.invocation_id]
        verdict = await session.authorize(tool.name, tool_args)
        if not verdict.allowed:
            return {"error": verdict.refusal, "guard": dict(verdict.details)}
        if verdict.action == "redact":
            tool_args.clear()
            tool_args.update(verdict.arguments)
        self._running[str(tool_context.function_call_id)] = verdict
        return None

    async def after_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        result: Any,
    ) -> dict[str, Any] | None:
        """Label a result, and withhold it where the policy says so."""
        return await self._observed(tool_context, result, is_error=False)

    async def on_tool_error_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        error: Exception,
    ) -> dict[str, Any] | None:
        """Label what a failing tool said; the error goes on."""
        return await self._observed(tool_context, error, is_error=True)

    async def _observed(
        self, context: ToolContext, content: Any, *, is_error: bool
    ) -> dict[str, Any] | None:
        verdict = self._running.pop(str(context.function_call_id), None)
        if verdict is None:
            return None  # It is the refusal itself.
        session = self._runs[context.invocation_id]
        return _instead(await session.observe(verdict, content, is_error=is_error))

    def _begin(self, context: InvocationContext) -> Session:
        principal = self._principal or context.session.app_name
        session = self._guard.session(
            context.session.id, principal=principal, follow_remedies=self._follows
        )
        return self._runs.setdefault(context.invocation_id, session)


def _instead(released: Released) -> dict[str, Any] | None:
    if released.withheld is not None:
        return {"error": released.content}
    if not released.replaced:
        return None
    left = released.content
    return left if isinstance(left, dict) else {"result": left}
