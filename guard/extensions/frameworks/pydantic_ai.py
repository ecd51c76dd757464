"""pydantic-ai: a toolset around the agent's own.

``Agent(model, toolsets=[GuardedToolset(FunctionToolset([send_email]), guard)])``
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from guard.in_process import Guard, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_ai import RunContext


@dataclass
class GuardedToolset(WrapperToolset[Any]):
    """Judges the calls of a toolset's tools, and labels what they return."""

    guard: Guard
    session: str = field(default_factory=lambda: secrets.token_hex(8))
    """Id of the conversation."""
    principal: str = "agent"
    """Name of the agent's principal."""
    prompts: bool = True
    """True if a person typed the prompts of runs; False for an agent that another agent calls."""
    follow_remedies: bool = False
    """See :meth:`guard.Guard.session`."""
    _heard: set[str] = field(default_factory=set, repr=False)
    """Runs whose prompt was noted."""

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run one call, or return the refusal to the model."""
        run = self.guard.session(
            self.session, principal=self.principal, follow_remedies=self.follow_remedies
        )
        if self.prompts and ctx.run_id is not None and ctx.run_id not in self._heard:
            self._heard.add(ctx.run_id)
            for text in _texts(ctx.prompt):
                await run.prompt(text)

        async def execute(allowed: Mapping[str, Any]) -> Any:
            arguments = dict(allowed)
            if allowed != tool_args:
                arguments = tool.args_validator.validate_python(arguments)
            return await self.wrapped.call_tool(name, arguments, ctx, tool)

        try:
            return await run.call(name, tool_args, execute)
        except Refused as refused:
            return str(refused)


def _texts(prompt: Any) -> list[str]:
    """Return what was typed; images and files say nothing that vouches."""
    if prompt is None:
        return []
    return [prompt] if isinstance(prompt, str) else [p for p in prompt if isinstance(p, str)]
