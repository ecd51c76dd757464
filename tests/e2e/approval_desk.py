"""The people who answer requests for approval, for tests of calls that wait for them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from guard.core.policy import StateLimits
from guard.credentials.label_key import load_label_key
from guard.operations.labels import LabelOperator
from guard.provenance.seal import Seal
from guard.store.store import RedisSessionStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.e2e.running_guard import RunningGuard

SECONDS = 240.0


class Desk(LabelOperator):
    """People at the Redis of a guard."""

    async def asked(self, count: int = 1, receiver: str = "") -> list[str]:
        """Return the decision ids that wait, once there are so many, of a receiver if given."""

        async def found() -> list[str]:
            return [
                one.decision
                for one in await self.waiting()
                if not receiver
                or any(to.receiver == receiver for call in one.calls for to in call.receivers)
            ]

        async with asyncio.timeout(SECONDS):
            while len(decisions := await found()) < count:  # noqa: ASYNC110  (Redis tells nobody)
                await asyncio.sleep(0.02)
        return decisions

    async def answer(self, *decisions: str, granted: bool) -> None:
        """Answer requests by the time at which the newest one was made."""
        now = max(one.at for one in await self.waiting())
        for one in decisions:
            await (self.approve(one, now) if granted else self.deny(one))


@asynccontextmanager
async def desk(redis: str, directory: Path) -> AsyncIterator[Desk]:
    """Yield what answers the requests in a Redis, under the label key of a directory."""
    store = RedisSessionStore.at(redis, timeout=SECONDS)
    try:
        yield Desk(store, Seal(load_label_key(directory / "label.key")), StateLimits())
    finally:
        await store.aclose()


def outcomes(guard: RunningGuard) -> dict[str, str]:
    """Return what became of each held request, by its decision id."""
    lines: list[dict[str, Any]] = guard.audit()
    held = (line for line in lines if line["event"] == "guard.held")
    return {str(line["decision_id"]): str(line["outcome"]) for line in held}
