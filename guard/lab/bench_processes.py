"""Starts what a benchmark runs side by side: upstream, stock mitmdump, the guard."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Rig:
    """Ports of everything that runs; each proxy has the same upstream."""

    upstream: int
    mitmdump: int
    guard: int
    audit: Path
    redis_socket: str = ""


@contextmanager
def rig(policy: Path) -> Iterator[Rig]:
    """Start everything, and end it with the block.

    Raises:
        GuardError: mitmdump is not installed, or something did not start.
    """
    mitmdump = shutil.which("mitmdump") or str(Path(sys.executable).with_name("mitmdump"))
    if not Path(mitmdump).exists():
        msg = "`mitmdump` is not installed beside this python; the ratio needs it"
        raise GuardError(msg)
    with tempfile.TemporaryDirectory(prefix="guard-bench-") as directory:
        processes: list[subprocess.Popen[str]] = []
        try:
            yield _start(Path(directory), mitmdump, policy, processes)
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()


def _start(
    directory: Path, mitmdump: str, policy: Path, processes: list[subprocess.Popen[str]]
) -> Rig:
    upstream = _spawn([sys.executable, "-m", "guard.lab.bench_upstream"], processes)
    if upstream.stdout is None:
        msg = "the upstream has no output"
        raise GuardError(msg)
    port = int(upstream.stdout.readline())
    plain, guarded, admin = (free_port() for _ in range(3))
    mode = f"reverse:http://127.0.0.1:{port}@127.0.0.1:{plain}"
    confdir = f"confdir={directory / 'mitm'}"
    _spawn([mitmdump, "-q", "--mode", mode, "--set", confdir], processes)
    audit = directory / "audit.jsonl"
    command = [sys.executable, "-m", "guard", "run", "--policy", str(policy)]
    command += ["--reverse", f"127.0.0.1:{guarded}=http://127.0.0.1:{port}"]
    command += ["--admin", f"127.0.0.1:{admin}", "--audit", str(audit)]
    _spawn(command, processes)
    for waited in (plain, guarded):
        _wait_for(waited, processes)
    return Rig(port, plain, guarded, audit)


def _spawn(command: list[str], processes: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    process = subprocess.Popen(  # noqa: S603  (our own commands)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    processes.append(process)
    return process


def _wait_for(port: int, processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if any(process.poll() is not None for process in processes):
            msg = "a process of the benchmark ended before it served"
            raise GuardError(msg)
        time.sleep(0.05)
    msg = f"nothing listens on port {port} after {START_SECONDS:.0f} s"
    raise GuardError(msg)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
