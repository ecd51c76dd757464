"""A session with a long past, made fast: the store's own scripts, many on the way at once.

What is in the store afterwards is what as many sends through the guard leave behind; only the
judging is left out.  Whoever measures then makes real calls on it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from guard.core.model import Role
from guard.core.ports import Attempt, Completion

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Identity
    from guard.core.ports import SessionStore

    Progress = Callable[[str, float], object]
    """Told what is going on and which share of the whole is done."""

AT_ONCE: Final = 250
"""Calls on their way at a time."""


async def make_long(
    store: SessionStore, identity: Identity, calls: int, told: Callable[[float], object]
) -> None:
    """Make a session so many executed sends long.

    Args:
        store: where.
        identity: whose session.
        calls: how many sends.
        told: is told the share that is done, now and then.

    Raises:
        StateError: the store failed.
    """
    for done in range(0, calls, AT_ONCE):
        names = [f"past-{number}" for number in range(done, min(done + AT_ONCE, calls))]
        await asyncio.gather(
            *(store.attempt(Attempt(name, identity, Role.SEND, 0.0)) for name in names)
        )
        await asyncio.gather(
            *(
                store.complete(Completion(name, identity, Role.SEND, 0.0, executed=True))
                for name in names
            )
        )
        told((done + len(names)) / calls)
