"""``guard lab eval trust``: generated attacks on the trust model, and honest flows.

Every attempt and every flow plays in a world of its own, on the composition that serves traffic.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from guard.core.errors import StateError
from guard.replay.reports import Check, Report, machine
from lab.judged_runs import fraction
from lab.trust.classes import AttackClass, discover_attacks
from lab.trust.flows import Course, tell, tellings
from lab.trust.harness import Compose, policies_read_once, world_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from lab.trust.attacks import Attempt


T = TypeVar("T")
HONEST: Final = (
    ("honest_first_asked", attrgetter("first"), "<= 0.25"),
    ("honest_second_asked", attrgetter("second"), "<= 0.05"),
    ("honest_after_approval_asked", attrgetter("again"), "= 0"),
    ("honest_blocked", attrgetter("blocked"), "= 0"),
)
"""Ids, tools of a course that they count, and targets."""
WORLDS: Final = 3
"""Worlds at most in which an attempt or a flow is played."""
SHOWN: Final = 20
"""Attempts that got through, or failed, shown of each class."""


@dataclass(frozen=True, slots=True)
class Played:
    """Outcome of one attempt."""

    name: str
    got_through: bool
    error: str = ""
    """Error of an attempt that could not be played; it counts as not stopped."""

    @property
    def stopped(self) -> bool:
        """True where the attacker got nothing."""
        return not self.got_through and not self.error


async def play(compose: Compose, redis_url: str, attempt: Attempt) -> Played:
    """Play one attempt in a world of its own.

    A call that the store keeps waiting is refused, and counts as stopped.
    """

    async def once() -> Played:
        async with world_of(compose, redis_url, attempt.policy) as world:
            return Played(attempt.name, await attempt.play(world))

    try:
        return await in_new_worlds(once)
    except Exception as error:  # noqa: BLE001  (an attempt that cannot be played proves nothing)
        said = f"{type(error).__name__}: {error}"[:300]
        return Played(attempt.name, got_through=False, error=said)


async def in_new_worlds(once: Callable[[], Awaitable[T]]) -> T:
    """Return what a play gives, in a new world where the store did not answer in time.

    Then the stage was not set: the store emptied, a prompt noted, an approval given.
    """
    for _ in range(WORLDS - 1):
        with suppress(StateError):
            return await once()
    return await once()


def attempts_of(attack: AttackClass, seed: str, limit: int | None = None) -> list[Attempt]:
    """Return the attempts of a class; of more than ``limit``, ones drawn evenly."""
    found = list(attack.attempts(Random(f"{seed}:{attack.id}")))  # noqa: S311  (no secret)
    if limit is None or len(found) <= limit:
        return found
    return [found[number * len(found) // limit] for number in range(limit)]


def eval_trust(  # noqa: PLR0913  (one parameter per option of the command)
    compose: Compose,
    redis_url: str,
    *,
    seed: str = "0",
    limit: int | None = None,
    only: Sequence[str] = (),
    flows: bool = True,
    progress: Callable[[str], Callable[[], object]] | None = None,
) -> Report:
    """Play everything and return the report.

    Args:
        compose: the composition root.
        redis_url: of a server that nothing else uses; it is emptied again and again.
        seed: of the generators.
        limit: attempts of a class at most.
        only: classes to play; all if empty.
        flows: whether to play the honest flows as well.
        progress: begins a part of the work, and returns what counts one attempt of it.
    """
    begin = progress or (lambda _: lambda: None)

    async def measured() -> tuple[dict[str, list[Played]], dict[str, list[Course]]]:
        table: dict[str, list[Played]] = {}
        for attack in discover_attacks():
            if only and attack.id not in only:
                continue
            found = attempts_of(attack, seed, limit)
            step = begin(f"{attack.id}, {len(found)} attempts")
            table[attack.id] = []
            for attempt in found:
                table[attack.id].append(await play(compose, redis_url, attempt))
                step()
        return table, await _honest(compose, redis_url, limit, begin) if flows else {}

    with policies_read_once():
        table, honest = asyncio.run(measured())
    played = [one for some in table.values() for one in some]
    stopped = sum(one.stopped for one in played)
    asked = Counter(one for some in honest.values() for course in some for one in course.first)
    reason = "no attack class was asked for"
    return Report(
        name="trust",
        machine=machine(),
        checks=[
            fraction("trust_attacks_stopped", stopped, len(played), "= 1", reason),
            *_honest_checks(honest),
        ],
        details={
            "attacks": {name: _row(some) for name, some in table.items()},
            "asked_first": dict(asked.most_common()),
        },
    )


async def _honest(
    compose: Compose,
    redis_url: str,
    limit: int | None,
    begin: Callable[[str], Callable[[], object]],
) -> dict[str, list[Course]]:
    """Tell every flow; return the courses by domain."""
    chosen = list(tellings())
    if limit is not None:
        chosen = chosen[:: -(-len(chosen) // (limit * len({one.domain for one in chosen}))) or 1]
    step = begin(f"honest flows, {len(chosen)}")
    found: dict[str, list[Course]] = {}
    for one in chosen:
        found.setdefault(one.domain, []).append(
            await in_new_worlds(partial(tell, compose, redis_url, one))
        )
        step()
    return found


def _honest_checks(courses: Mapping[str, Sequence[Course]]) -> list[Check]:
    """Return the share of flows with any call asked about or blocked, domains weighted equally."""
    if not courses:
        return []
    checks = []
    for name, tools, target in HONEST:
        shares = [sum(bool(tools(one)) for one in some) / len(some) for some in courses.values()]
        value, n = round(sum(shares) / len(shares), 4), sum(map(len, courses.values()))
        checks.append(Check(id=name, value=value, unit="fraction", n=n, target=target))
    return checks


def _row(played: Sequence[Played]) -> dict[str, Any]:
    return {
        "n": len(played),
        "stopped": sum(one.stopped for one in played),
        "errors": sum(bool(one.error) for one in played),
        "through": [one.name for one in played if one.got_through][:SHOWN],
        "failed": [f"{one.name}: {one.error}" for one in played if one.error][:SHOWN],
    }
