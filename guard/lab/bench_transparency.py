"""``guard bench transparency``: the same scenarios directly and through the guard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.loopback import Rig
from guard.lab.conformance import REVISIONS, Suite
from guard.lab.mcp_scenarios import STEPS, run
from guard.lab.modern_scenarios import MODERN, run_modern
from guard.replay.reports import Check, Report, machine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    Seen = dict[str, Any]

OLD, NEW = REVISIONS
SCENARIOS: Final = (*STEPS, "raw-bytes")
CLIENTS: Final = {
    OLD: "the official Python SDK, and raw requests",
    NEW: "requests made by hand",
}
WITH_SUITE: Final = "the conformance suite, the official Python and TypeScript SDKs"


def bench_transparency(
    policy: Path, *, progress: Callable[[str], None], suite: Path | None = None
) -> Report:
    """Run every scenario twice and return the report.

    Args:
        policy: of the guard in between.
        progress: told what runs.
        suite: folder of the installed conformance suite, which then runs as well.

    Raises:
        GuardError: a part could not be started.
    """
    direct: dict[str, Seen] = {}
    through: dict[str, Seen] = {}
    with Rig() as rig:
        server = rig.server("guard.lab.fixture_server")
        direct[OLD] = asyncio.run(_all(run, server, SCENARIOS, progress))
        through[OLD] = asyncio.run(_all(run, rig.guard(policy, server), SCENARIOS, progress))
    with Rig() as rig:
        server = rig.server("guard.lab.modern_server")
        direct[NEW] = asyncio.run(_all(run_modern, server, MODERN, progress))
        through[NEW] = asyncio.run(_all(run_modern, rig.guard(policy, server), MODERN, progress))
    if suite is not None:
        _run_suite(Suite(suite), policy, progress, (direct, through))
    return _report(direct, through, with_suite=suite is not None)


def _run_suite(
    suite: Suite,
    policy: Path,
    progress: Callable[[str], None],
    ways: tuple[dict[str, Seen], dict[str, Seen]],
) -> None:
    with Rig() as rig:
        server = suite.server(rig)
        direct = suite.see(server, progress)
        through = suite.see(rig.guard(policy, server), progress)
    for revision in REVISIONS:
        ways[0][revision].update(direct[revision])
        ways[1][revision].update(through[revision])


def _report(direct: dict[str, Seen], through: dict[str, Seen], *, with_suite: bool) -> Report:
    works = {
        revision: [name for name, seen in found.items() if not _failed(seen)]
        for revision, found in direct.items()
    }
    same = {
        revision: [name for name in names if through[revision].get(name) == direct[revision][name]]
        for revision, names in works.items()
    }
    checks: list[Check] = []
    for suffix, revisions in (("", REVISIONS), *((f"_{one}", (one,)) for one in REVISIONS)):
        n = sum(len(direct[one]) for one in revisions)
        counted = sum(len(works[one]) for one in revisions)
        passed = sum(len(same[one]) for one in revisions)
        target = f"= scenarios_direct{suffix}"
        checks += [
            Check(id=f"scenarios_direct{suffix}", value=counted, unit="count", n=n),
            Check(
                id=f"scenarios_same{suffix}", value=passed, unit="count", n=counted, target=target
            ),
        ]
    return Report(
        name="transparency",
        machine=machine(),
        checks=checks,
        details={
            "clients": {
                revision: f"{clients}; {WITH_SUITE}" if with_suite else clients
                for revision, clients in CLIENTS.items()
            },
            "different": {
                f"{revision}/{name}": {"direct": seen, "guarded": through[revision].get(name)}
                for revision, found in direct.items()
                for name, seen in found.items()
                if through[revision].get(name) != seen
            },
            "failed_directly": [
                f"{revision}/{name}"
                for revision, found in direct.items()
                for name in found
                if name not in works[revision]
            ],
        },
    )


async def _all(
    scenario: Callable[[str, str], Awaitable[list[Any]]],
    port: int,
    names: Iterable[str],
    progress: Callable[[str], None],
) -> Seen:
    seen: Seen = {}
    for name in names:
        progress(name)
        seen[name] = await scenario(f"http://127.0.0.1:{port}/mcp", name)
    return seen


def _failed(seen: Any) -> bool:
    if isinstance(seen, dict):
        return "failed" in seen
    return any(isinstance(item, tuple) and item[0] == "failed" for item in seen)
