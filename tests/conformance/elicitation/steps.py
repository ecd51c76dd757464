"""What every Python client of the elicitation matrix runs.

One JSON line on standard input is one call: ``{"to", "action", "content"?, "seconds"?}``, and how
whoever sits at the client answers: with which action and content, after how many seconds.  One
JSON line on standard output says how often he was asked and what the call came to.
"""

# ruff: noqa: BLE001, T201  (whatever fails was seen, and is printed)

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager


class Person:
    """Whoever sits at the client."""

    def __init__(self) -> None:
        self.step: dict[str, Any] = {}
        self.asked = 0

    async def answer(self) -> tuple[str, dict[str, Any] | None]:
        """Return action and content."""
        self.asked += 1
        await asyncio.sleep(self.step.get("seconds", 0))
        return self.step["action"], self.step.get("content")


async def _run(open_client: Callable[[str, Person], AbstractAsyncContextManager[Any]]) -> None:
    person = Person()
    async with open_client(sys.argv[1], person) as call:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            person.step, person.asked = json.loads(line), 0
            try:
                seen = await call("echo", dict.fromkeys(("text", "words"), person.step["to"]))
                raised = ""
            except BaseException as error:
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                seen, raised = str(error), type(error).__name__
            print(json.dumps({"asked": person.asked, "seen": seen, "raised": raised}), flush=True)


def serve(open_client: Callable[[str, Person], AbstractAsyncContextManager[Any]]) -> None:
    """Run a client until standard input ends: ``client.py URL``."""
    asyncio.run(_run(open_client))


def joined(content: Any) -> str:
    """Return the text of a tool result's content."""
    return "\n".join(str(getattr(item, "text", "")) for item in content)
