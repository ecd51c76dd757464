"""Two policies on the same recorded runs: the calls that they decide differently, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from guard.replay.run import Replay, fresh_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from guard.core.policy import Policy
    from guard.core.ports import Detector
    from guard.replay.traces import Run


async def find_flips(
    policies: tuple[Policy, Policy],
    runs: Callable[[], Iterable[Run]],
    url: str,
    detectors: Sequence[Detector],
    judged: Callable[[int, dict[str, Any]], object] = lambda _, __: None,
) -> tuple[list[dict[str, Any]], int]:
    """Return the calls that flip, in the order of the runs, and how many calls there were.

    Args:
        policies: the one before, the one after.
        runs: yields the recorded runs; asked once for each policy.
        url: a Redis for the state of the replays.
        detectors: as in live traffic.
        judged: told 0 or 1 for the policy, and the line of each call, as they come.
    """
    old: list[tuple[str, tuple[str, ...]]] = []
    flips: list[dict[str, Any]] = []
    position = 0

    def remember(text: str) -> None:
        line = json.loads(text)
        old.append((line["action"], _deciding(line)))
        judged(0, line)

    def compare(text: str) -> None:
        nonlocal position
        line = json.loads(text)
        action, rules = old[position]
        position += 1
        judged(1, line)
        if line["action"] != action:
            flips.append(
                {
                    **{name: line[name] for name in ("run_id", "i", "session", "tool", "role")},
                    "before": action,
                    "before_by": list(rules),
                    "after": line["action"],
                    "after_by": list(_deciding(line)),
                }
            )

    for policy, emit in zip(policies, (remember, compare), strict=True):
        async with fresh_store(url, policy.limits) as store:
            await Replay(policy, store, detectors).run(runs(), emit)
    return flips, len(old)


def _deciding(line: dict[str, Any]) -> tuple[str, ...]:
    """Return the rules, or codes without one, whose effect is the action."""
    winning = (reason for reason in line["reasons"] if reason["action"] == line["action"])
    return tuple(dict.fromkeys(reason["rule"] or reason["code"] for reason in winning))


def sentence(flip: dict[str, Any]) -> str:
    """Return a flip as one line for a person."""
    return (
        f"{flip['run_id']} call {flip['i']} {flip['tool']} ({flip['role']}): "
        f"{flip['before']} ({', '.join(flip['before_by'])}) -> "
        f"{flip['after']} ({', '.join(flip['after_by'])})"
    )
