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

from guard.adapters.free_ports import free_port
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


@contextmanager
def rig(policy: Path) -> Iterator[Rig]:
    """Start everything, and end it with the block.

    Raises:
        GuardError: mitmdump is not installed, or something did not start.
    """
    mitmdump = find_mitmdump()
    with directory_and_processes() as (directory, processes):
        yield _start(directory, mitmdump, policy, processes)


@contextmanager
def guard_before(upstream: int, policy: Path) -> Iterator[int]:
    """Start a guard in front of a port of loopback and give its own port.

    Raises:
        GuardError: it did not start.
    """
    with directory_and_processes() as (directory, processes):
        model = ("--model-api", f"127.0.0.1:{upstream}")
        port = _guard_before(directory / "audit.jsonl", upstream, policy, processes, *model)
        wait_for(port, processes)
        yield port


@contextmanager
def fixture_server(module: str = "guard.lab.fixture_server") -> Iterator[int]:
    """Start an MCP fixture server and give its port.

    Raises:
        GuardError: it did not start.
    """
    with directory_and_processes() as (_, processes):
        yield spawn_server(module, processes)


@contextmanager
def directory_and_processes() -> Iterator[tuple[Path, list[subprocess.Popen[str]]]]:
    """Give a directory and a list of processes that end with the block."""
    with tempfile.TemporaryDirectory(prefix="guard-bench-") as directory:
        processes: list[subprocess.Popen[str]] = []
        try:
            yield Path(directory), processes
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()


def find_mitmdump() -> str:
    """Return the stock mitmdump.

    Raises:
        GuardError: it is not installed.
    """
    found = shutil.which("mitmdump") or str(Path(sys.executable).with_name("mitmdump"))
    if not Path(found).exists():
        msg = "`mitmdump` is not installed beside this python; the ratio needs it"
        raise GuardError(msg)
    return found


def spawn_server(module: str, processes: list[subprocess.Popen[str]], *words: str) -> int:
    """Start a module that prints the port it serves on, and return that.

    Raises:
        GuardError: it ended without.
    """
    server = spawn([sys.executable, "-m", module, *words], processes)
    line = server.stdout.readline() if server.stdout is not None else ""
    if not line:
        msg = f"`{module}` did not say on which port it listens"
        raise GuardError(msg)
    return int(line)


def spawn_guard(audit: Path, processes: list[subprocess.Popen[str]], *options: str) -> None:
    """Start ``guard run`` with an audit log, an admin port and a label key of its own."""
    command = [sys.executable, "-m", "guard", "run", "--admin", f"127.0.0.1:{free_port()}"]
    # To the user's key, the embedded store of this run would be one that lost labels.
    command += ["--label-key", str(audit.with_name("label.key"))]
    spawn([*command, "--audit", str(audit), *options], processes)


def _guard_before(
    audit: Path, upstream: int, policy: Path, processes: list[subprocess.Popen[str]], *more: str
) -> int:
    port = free_port()
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
    spawn_guard(audit, processes, "--policy", str(policy), "--reverse", listener, *more)
    return port


def _start(
    directory: Path, mitmdump: str, policy: Path, processes: list[subprocess.Popen[str]]
) -> Rig:
    port = spawn_server("guard.lab.bench_upstream", processes)
    plain = free_port()
    mode = f"reverse:http://127.0.0.1:{port}@127.0.0.1:{plain}"
    confdir = f"confdir={directory / 'mitm'}"
    spawn([mitmdump, "-q", "--mode", mode, "--set", confdir], processes)
    audit = directory / "audit.jsonl"
    guarded = _guard_before(audit, port, policy, processes)
    for waited in (plain, guarded):
        wait_for(waited, processes)
    return Rig(port, plain, guarded, audit)


def spawn(command: list[str], processes: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    """Start a command and add it to the list."""
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


def wait_for(port: int, processes: list[subprocess.Popen[str]]) -> None:
    """Wait until something listens on a port of loopback.

    Raises:
        GuardError: nothing does in time, or a process ended.
    """
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
