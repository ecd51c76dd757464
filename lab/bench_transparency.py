"""``guard lab bench transparency``: the same scenarios directly and through the guard.

The scenarios are our own and, where ``make conformance`` has installed them, the official
conformance suite and the SDKs of both eras.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.replay.reports import Check, Report, machine
from lab.mcp_scenarios import MODERN, STEPS, run, run_modern
from lab.refusal_matrix import program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from guard.core.model import Json
    from lab.load import Progress

REVISIONS: Final = ("2025-11-25", "2026-07-28")
SECONDS: Final = 300
_LINE: Final = re.compile(r"^[✓✗] ([\w./-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
_TIMES: Final = re.compile(r'"(?:timestamp|lastModified)":\s*"[^"]*"')
Seen = dict[str, Any]
"""Observations by scenario; one that failed says so under ``failed``."""


class Suite:
    """The installed suite.

    Args:
        folder: with ``node_modules``, ``.environments`` and the files of ``tests/conformance``.

    Raises:
        GuardError: a part of it is not there.
    """

    def __init__(self, folder: Path) -> None:
        node, python = program(folder, "node"), program(folder, "mcp2")
        runner = folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
        if node is None or python is None or not runner.exists():
            raise GuardError(
                f"the conformance suite is not installed in `{folder}`; run `make conformance`"
            )
        self._folder, self._python = folder, python
        self._node, self._runner = node, str(runner)

    def server(self, rig: Rig) -> int:
        """Start the fixture server and return its port."""
        port = free_port()
        server = str(self._folder / "fixture_server.py")
        rig.start("fixture_server", self._python, server, str(port)).wait_listening(port)
        return port

    def see(self, port: int, revision: str) -> Iterator[tuple[str, Json]]:
        """Run all scenarios of a protocol revision against a port; yield what was seen."""
        url = f"http://127.0.0.1:{port}/mcp"
        yield from self._suite(url, revision)
        for name, command in (
            ("python", [self._python, str(self._folder / "client.py")]),
            ("typescript", [self._node, str(self._folder / "client.mjs")]),
        ):
            ended = _run([*command, url, revision])
            if ended.returncode:
                raise GuardError(f"the {name} client failed: {ended.stderr[-300:]}")
            notes: Seen = json.loads(_TIMES.sub('"timestamp": ""', ended.stdout))
            for step, seen in notes.items():
                yield f"{name}/{step}", seen

    def _suite(self, url: str, revision: str) -> Iterator[tuple[str, Json]]:
        with TemporaryDirectory(prefix="guard-conformance-") as directory:
            command = [self._node, self._runner, "server", "--url", url, "--suite", "all"]
            command += ["--spec-version", revision, "-o", directory]
            printed = _run(command).stdout
        summary = printed.partition("=== SUMMARY")[2]
        for name, passed, failed in _LINE.findall(summary):
            seen = {"passed": int(passed)}
            yield f"suite/{name}", {**seen, "failed": int(failed)} if int(failed) else seen
        if not summary:
            raise GuardError(f"the conformance suite said nothing: {printed[-300:]}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  (our own commands)
            command, capture_output=True, text=True, check=False, timeout=SECONDS, encoding="utf-8"
        )
    except subprocess.TimeoutExpired as error:
        raise GuardError(f"`{Path(command[0]).name}` did not end within {SECONDS} s") from error


OLD, NEW = REVISIONS
SCENARIOS: Final = (*STEPS, "raw-bytes")


def bench_transparency(
    policy: Path,
    *,
    progress: Progress,
    suite: Path | None = None,
    made: type[Rig] = Rig,
) -> Report:
    """Run every scenario twice and return the report.

    Args:
        policy: of the guard in between.
        progress: told what runs, and which share is done.
        suite: folder of the installed conformance suite, which then runs as well.
        made: the kind of rig that starts the guard.

    Raises:
        GuardError: a part could not be started.
    """
    direct: dict[str, Seen] = {}
    through: dict[str, Seen] = {}
    for revision, module, scenario, names in (
        (OLD, "lab.fixture_server", run, SCENARIOS),
        (NEW, "lab.modern_server", run_modern, tuple(MODERN)),
    ):
        with made() as rig:
            server = rig.server(module)
            for found, port in ((direct, server), (through, rig.guard(policy, server))):
                found[revision] = asyncio.run(_all(scenario, port, names, progress))
    if suite is not None:
        installed = Suite(suite)
        with made() as rig:
            server = installed.server(rig)
            for found, port in ((direct, server), (through, rig.guard(policy, server))):
                for revision in REVISIONS:
                    progress(f"conformance suite, {revision}", 0.9)
                    found[revision].update(installed.see(port, revision))
    return _report(direct, through)


def _report(direct: dict[str, Seen], through: dict[str, Seen]) -> Report:
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
    names: Sequence[str],
    progress: Progress,
) -> Seen:
    seen: Seen = {}
    for number, name in enumerate(names):
        progress(name, number / len(names))
        seen[name] = await scenario(f"http://127.0.0.1:{port}/mcp", name)
    return seen


def _failed(seen: Any) -> bool:
    if isinstance(seen, dict):
        return "failed" in seen
    return any(isinstance(item, tuple) and item[0] == "failed" for item in seen)
