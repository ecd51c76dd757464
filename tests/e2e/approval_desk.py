"""The people who answer requests for approval, for tests of calls that wait for them."""

import asyncio
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from guard.core.policy import StateLimits
from guard.credentials.label_key import load_key
from guard.operations.labels import LabelOperator
from guard.provenance.seal import Seal
from guard.store.embedded import EmbeddedRedis
from guard.store.store import RedisSessionStore
from tests.e2e.running_guard import ROOT, RunningGuard, serving

SECONDS = 240.0


class Desk(LabelOperator):
    """People at the Redis of a guard."""

    async def asked(self, count=1):
        """Return the decision ids that wait, once there are so many."""
        async with asyncio.timeout(SECONDS):
            while len(waiting := await self.waiting()) < count:  # noqa: ASYNC110  (it tells nobody)
                await asyncio.sleep(0.02)
        return [one.decision for one in waiting]

    async def answer(self, *decisions, granted):
        """Answer requests by the time at which the newest one was made."""
        now = max(one.at for one in await self.waiting())
        for one in decisions:
            await (self.approve(one, now) if granted else self.deny(one))


@dataclass
class Place:
    """A guard that holds what it asks about, and the Redis that people answer in."""

    guard: RunningGuard
    redis: str
    policy: Path

    @asynccontextmanager
    async def desk(self):
        """Yield what answers requests for approval, under the label key of the deployment."""
        key = load_key(self.policy.parent / "label.key", "label key")
        async with aclosing(RedisSessionStore.at(self.redis, timeout=SECONDS)) as store:
            yield Desk(store, Seal(key), StateLimits())

    @property
    def url(self):
        """Where its clients connect."""
        return f"http://127.0.0.1:{self.guard.port}"


@contextmanager
def holding(directory, text, upstream=None, *options, alone=False):
    """Start a guard on a Redis of its own under a policy, which adds to the default one or not."""
    policy = directory / "hold.yaml"
    policy.write_text(text, encoding="utf-8")
    first = policy if alone else ROOT / "policies" / "default.yaml"
    with EmbeddedRedis() as redis:
        more = () if alone else ("--policy", str(policy))
        given = (*more, "--redis", redis.url, *options)
        with serving(directory / "guard", upstream, policy=first, options=given) as guard:
            yield Place(guard, redis.url, policy)


def outcomes(guard):
    """Return what became of each held request, by its decision id."""
    lines = guard.audit()
    held = (line for line in lines if line["event"] == "guard.held")
    return {str(line["decision_id"]): str(line["outcome"]) for line in held}
