"""The official conformance suite and the SDKs of both eras, where ``make conformance`` put them.

Everything runs against ``fixture_server.py`` of that folder, directly and through the guard.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from guard.adapters.loopback import Rig, free_port
from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guard.core.model import Json

REVISIONS: Final = ("2025-11-25", "2026-07-28")
SECONDS: Final = 300
_LINE: Final = re.compile(r"^[✓✗] ([\w./-]+): (\d+) passed, (\d+) failed", re.MULTILINE)
_TIMES: Final = re.compile(r'"(?:timestamp|lastModified)":\s*"[^"]*"')
Seen = dict[str, "Json"]
"""What was seen, by scenario; one that failed says so under ``failed``."""


class Suite:
    """The installed suite.

    Args:
        folder: with ``node_modules``, ``.venv`` and the files of ``tests/conformance``.

    Raises:
        GuardError: a part of it is not there.
    """

    def __init__(self, folder: Path) -> None:
        modules = folder / "node_modules"
        own = modules / "node" / "bin" / "node"
        node = str(own) if own.exists() else shutil.which("node")
        runner = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
        python = folder / ".venv" / "bin" / "python"
        if node is None or not runner.exists() or not python.exists():
            msg = f"the conformance suite is not installed in `{folder}`; run `make conformance`"
            raise GuardError(msg)
        self._folder, self._python = folder, str(python)
        self._node, self._runner = node, str(runner)

    def server(self, rig: Rig) -> int:
        """Start the fixture server and return its port."""
        port = free_port()
        server = str(self._folder / "fixture_server.py")
        rig.start("fixture_server", self._python, server, str(port)).wait_listening(port)
        return port

    def see(self, port: int, progress: Callable[[str], None]) -> dict[str, Seen]:
        """Run everything against a port; return what was seen, by revision."""
        return {revision: dict(self._all(port, revision, progress)) for revision in REVISIONS}

    def _all(
        self, port: int, revision: str, progress: Callable[[str], None]
    ) -> Iterator[tuple[str, Json]]:
        url = f"http://127.0.0.1:{port}/mcp"
        progress(f"conformance suite, {revision}")
        yield from self._suite(url, revision)
        for name, command in (
            ("python", [self._python, str(self._folder / "client.py")]),
            ("typescript", [self._node, str(self._folder / "client.mjs")]),
        ):
            progress(f"{name} sdk, {revision}")
            for step, seen in self._client([*command, url, revision]).items():
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
            msg = f"the conformance suite said nothing: {printed[-300:]}"
            raise GuardError(msg)

    def _client(self, command: list[str]) -> Seen:
        ended = _run(command)
        if ended.returncode:
            msg = f"`{Path(command[1]).name}` failed: {ended.stderr[-300:]}"
            raise GuardError(msg)
        notes: Seen = json.loads(_TIMES.sub('"timestamp": ""', ended.stdout))
        return notes


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  (our own commands)
            command, capture_output=True, text=True, check=False, timeout=SECONDS, encoding="utf-8"
        )
    except subprocess.TimeoutExpired as error:
        msg = f"`{Path(command[0]).name}` did not end within {SECONDS} s"
        raise GuardError(msg) from error
