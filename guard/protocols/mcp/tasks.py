"""Tasks of MCP: calls that are answered at once; their results are fetched later.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols.framing.jsonrpc import refuse_lookalikes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.model import Json
    from guard.protocols.framing.jsonrpc import RpcMessage

TASK_METHODS: Final = frozenset({"tasks/result", "tasks/get"})
"""Methods whose answers hold the result of a call that was made as a task."""


def tasks_in(messages: Sequence[RpcMessage]) -> tuple[tuple[str | None, str], ...]:
    """Return which task each request asks about."""
    found: list[tuple[str | None, str]] = []
    for rpc in messages:
        if rpc.method in TASK_METHODS and rpc.id is not None:
            refuse_lookalikes(rpc.params, ("taskId",))
            task = rpc.params.get("taskId", "")
            if not isinstance(task, str):
                raise MessageError("bad_call", f"`taskId` of `{rpc.method}` must be a text")
            found.append((rpc.correlation, task))
    return tuple(found)


def announced_task(content: Json) -> str | None:
    """Return the id of a task that has no result yet (2025-11-25, and its later extension)."""
    if not isinstance(content, dict) or "result" in content or "content" in content:
        return None
    inner = content.get("task")
    task = inner if isinstance(inner, dict) else content
    found = task.get("taskId")
    return found if isinstance(found, str) and "status" in task else None
