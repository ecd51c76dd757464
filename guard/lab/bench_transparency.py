"""``guard bench transparency``: the same scenarios directly and through the guard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from guard.lab.bench_processes import fixture_server, guard_before
from guard.lab.mcp_scenarios import STEPS, run
from guard.reporting import Check, Report, machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCENARIOS: Final = (*STEPS, "raw-bytes")
MODERN: Final = "2026-07-28"
NOT_MEASURED: Final = (
    "the supported MCP SDK (1.x) speaks revisions up to 2025-11-25; run the official conformance "
    "suite for this one"
)


def bench_transparency(policy: Path, *, progress: Callable[[str], None]) -> Report:
    """Run every scenario twice and return the report.

    Raises:
        GuardError: a part could not be started.
    """
    with fixture_server() as server, guard_before(server, policy) as guarded:
        direct = asyncio.run(_all(server, progress, "directly"))
        through = asyncio.run(_all(guarded, progress, "through the guard"))
    works = [name for name, seen in direct.items() if not _failed(seen)]
    same = [name for name in works if through[name] == direct[name]]
    return Report(
        name="transparency",
        machine=machine(),
        checks=[
            Check(id="scenarios_direct", value=len(works), unit="count", n=len(SCENARIOS)),
            Check(
                id="scenarios_same",
                value=len(same),
                unit="count",
                n=len(works),
                target="= scenarios_direct",
            ),
            *(
                Check(id=f"{name}_{MODERN}", value=None, unit="count", reason=NOT_MEASURED)
                for name in ("scenarios_direct", "scenarios_same")
            ),
        ],
        details={
            "revision": "2025-11-25",
            "client": "the official Python SDK, and raw requests",
            "different": {
                name: {"direct": direct[name], "guarded": through[name]}
                for name in direct
                if through[name] != direct[name]
            },
        },
    )


async def _all(port: int, progress: Callable[[str], None], way: str) -> dict[str, list[Any]]:
    seen: dict[str, list[Any]] = {}
    for name in SCENARIOS:
        progress(f"{name}, {way}")
        seen[name] = await run(f"http://127.0.0.1:{port}/mcp", name)
    return seen


def _failed(seen: list[Any]) -> bool:
    return any(isinstance(item, tuple) and item[0] == "failed" for item in seen)
