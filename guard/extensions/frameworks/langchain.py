"""LangChain and LangGraph: a middleware for ``create_agent``.

``create_agent(model, tools, middleware=[GuardMiddleware(guard)])``
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.config import get_config

from guard.core.errors import GuardError
from guard.in_process import Guard, Released, Session, SyncGuard, SyncSession, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.types import Command


class GuardMiddleware(AgentMiddleware[Any, Any]):
    """Judges every tool call of an agent, and labels what its tools return.

    A thread (``configurable.thread_id``) is a session; an agent without threads has one.

    Args:
        guard: a ``Guard`` for ``ainvoke`` and ``astream``, a ``SyncGuard`` for ``invoke``.
        principal: who the agent is.
        prompts: whether a person typed the human messages that the agent is started with; False
            for an agent that another agent calls.
        follow_remedies: see :meth:`guard.Guard.session`.
    """

    def __init__(
        self,
        guard: Guard | SyncGuard,
        *,
        principal: str = "agent",
        prompts: bool = True,
        follow_remedies: bool = False,
    ) -> None:
        super().__init__()
        self._guard = guard
        self._of_session: dict[str, Any] = {
            "principal": principal,
            "follow_remedies": follow_remedies,
        }
        self._prompts = prompts
        self._alone = secrets.token_hex(8)

    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        """Note what the person has typed since the agent last spoke."""
        for text in self._typed(state):
            await self._session().prompt(text)

    def before_agent(self, state: Any, runtime: Any) -> None:
        """See :meth:`abefore_agent`."""
        for text in self._typed(state):
            self._sync_session().prompt(text)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        """Run one tool call, or answer it with the refusal."""
        session, call = self._session(), request.tool_call
        verdict = await session.authorize(call["name"], call["args"])
        if not verdict.allowed:
            return _refusal(call, verdict.refusal)
        try:
            result = await handler(_request(request, verdict))
        except Exception as error:
            await session.observe(verdict, error, is_error=True)
            raise
        content, is_error = _content(result)
        released = await session.observe(verdict, content, is_error=is_error)
        return _released(call, result, released)

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]],
    ) -> ToolMessage | Command[Any]:
        """See :meth:`awrap_tool_call`."""
        session, call = self._sync_session(), request.tool_call
        verdict = session.authorize(call["name"], call["args"])
        if not verdict.allowed:
            return _refusal(call, verdict.refusal)
        try:
            result = handler(_request(request, verdict))
        except Exception as error:
            session.observe(verdict, error, is_error=True)
            raise
        content, is_error = _content(result)
        released = session.observe(verdict, content, is_error=is_error)
        return _released(call, result, released)

    def _typed(self, state: Any) -> list[str]:
        """Return the texts of the human messages after the last message of anybody else."""
        texts: list[str] = []
        for message in reversed(state["messages"] if self._prompts else []):
            if not isinstance(message, HumanMessage):
                break
            texts.append(str(message.text))
        return texts[::-1]

    def _thread(self) -> str:
        return str(get_config().get("configurable", {}).get("thread_id") or self._alone)

    def _session(self) -> Session:
        if isinstance(self._guard, SyncGuard):
            raise GuardError("`Guard.open_sync` is for `invoke`; use `Guard.open` with `ainvoke`")
        return self._guard.session(self._thread(), **self._of_session)

    def _sync_session(self) -> SyncSession:
        if not isinstance(self._guard, SyncGuard):
            raise GuardError("`Guard.open` is for `ainvoke`; use `Guard.open_sync` with `invoke`")
        return self._guard.session(self._thread(), **self._of_session)


def _request(request: ToolCallRequest, verdict: Verdict) -> ToolCallRequest:
    call = {**request.tool_call, "args": dict(verdict.arguments)}
    return request.override(tool_call=call)  # type: ignore[typeddict-item, unused-ignore]


def _refusal(call: Any, text: str) -> ToolMessage:
    return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")


def _content(result: ToolMessage | Command[Any]) -> tuple[Any, bool]:
    """Return what a tool said, and whether it failed."""
    if isinstance(result, ToolMessage):
        return result.content, result.status == "error"
    # A command updates the agent's state, and may say something in it.
    return {"update": result.update, "resume": result.resume}, False


def _released(
    call: Any, result: ToolMessage | Command[Any], released: Released
) -> ToolMessage | Command[Any]:
    if released.withheld is None and not released.replaced:
        return result
    if released.withheld is None and isinstance(result, ToolMessage):
        return result.model_copy(update={"content": released.content, "artifact": None})
    # A command has no place for a part of what it says.
    return _refusal(call, str(released.content))
