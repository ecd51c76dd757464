"""Starts the demo's processes on loopback and ends every one of them, whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import guard
from guard.adapters.free_ports import free_port

START_SECONDS: Final = 30.0
"""Longest wait for a process to be ready; a loaded machine is slow, a broken one never is."""
STOP_SECONDS: Final = 8.0
POLL_SECONDS: Final = 0.02
READY_WORDS: Final = "guard ready"
"""What ``guard run`` prints on standard error once every listener accepts."""
LOG_TAIL: Final = 12
NOTES_POLICY: Final = """version: 1
name: notes
http_tools:
  - tool: notes.share
    method: [POST]
    url: http://127.0.0.1:{port}/v1/{{notebook}}/share
    body: json
tools:
  - match: [notes.share]
    role: send
    destinations: ["$.body.to"]
    body: ["$.body.text"]
    ignore: ["$.path.notebook"]
"""
"""Beside the shipped policy, whose rules speak for this tool as for any other that sends."""


class DemoError(Exception):
    """The demo could not be played; says nothing about the guard's verdicts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running processes, as the agent reaches them: through the guard only."""

    mail_url: str
    memory_url: str
    notes_url: str
    admin_url: str


@dataclass(frozen=True, slots=True)
class Places:
    """The demo's files, all in one directory."""

    directory: Path
    policy: Path

    @property
    def mail(self) -> Path:
        """SQLite file of the mail server."""
        return self.directory / "mail.sqlite"

    @property
    def memory(self) -> Path:
        """SQLite file of the memory server."""
        return self.directory / "memory.sqlite"

    @property
    def notes(self) -> Path:
        """SQLite file of the notes service."""
        return self.directory / "notes.sqlite"

    @property
    def notes_policy(self) -> Path:
        """What makes the notes service's requests calls of tools; its port is known at start."""
        return self.directory / "notes.yaml"

    @property
    def audit(self) -> Path:
        """The guard's audit log."""
        return self.directory / "audit.jsonl"

    @property
    def guard_log(self) -> Path:
        """What the guard wrote to standard error."""
        return self.directory / "guard.log"


@asynccontextmanager
async def stage(places: Places) -> AsyncIterator[Stage]:
    """Start the servers and the guard in front of them; stop them on the way out.

    Raises:
        DemoError: a process ended before it was ready, or took too long.
    """
    running: list[asyncio.subprocess.Process] = []
    mail_port, memory_port, notes_port, mail, memory, notes, admin = (free_port() for _ in range(7))
    places.notes_policy.write_text(NOTES_POLICY.format(port=notes_port), encoding="utf-8")
    try:
        # All at once: nobody needs another to start, and each takes seconds to load.
        servers = [
            await _start_server(places, running, name, database, port)
            for name, database, port in (
                ("mail_server", places.mail, mail_port),
                ("memory_server", places.memory, memory_port),
                ("notes_server", places.notes, notes_port),
            )
        ]
        await _start_guard(
            places,
            running,
            "--reverse",
            f"127.0.0.1:{mail}=http://127.0.0.1:{mail_port}",
            "--reverse",
            f"127.0.0.1:{memory}=http://127.0.0.1:{memory_port}",
            "--reverse",
            f"127.0.0.1:{notes}=http://127.0.0.1:{notes_port}",
            "--admin",
            f"127.0.0.1:{admin}",
        )
        for process, log in servers:
            await _printed_port(process, log)
        yield Stage(
            f"http://127.0.0.1:{mail}/mcp",
            f"http://127.0.0.1:{memory}/mcp",
            f"http://127.0.0.1:{notes}/v1",
            f"http://127.0.0.1:{admin}",
        )
    finally:
        # The guard was started last and stops first, while its upstreams still answer.
        for process in reversed(running):
            await _stop(process)


async def _start_server(
    places: Places,
    running: list[asyncio.subprocess.Process],
    name: str,
    database: Path,
    port: int,
) -> tuple[asyncio.subprocess.Process, Path]:
    log = places.directory / f"{name}.log"
    arguments = ("-m", f"guard.demo.{name}", "--port", str(port), "--db", str(database))
    process = await _spawn(arguments, log, stdout=asyncio.subprocess.PIPE)
    running.append(process)
    return process, log


async def _spawn(arguments: tuple[str, ...], log: Path, stdout: int) -> asyncio.subprocess.Process:
    with log.open("wb") as stderr:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            # `-m guard` must find this guard, installed or not.
            cwd=Path(guard.__file__).parent.parent,
            # Ctrl-C reaches the demo only, which then stops its processes in order.
            start_new_session=True,
        )


async def _printed_port(process: asyncio.subprocess.Process, log: Path) -> int:
    if process.stdout is None:
        raise DemoError("a server was started without a pipe to read its port from")
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        return int(line)
    except (TimeoutError, ValueError) as error:
        raise DemoError(f"a demo server did not start:\n{_tail(log)}") from error


async def _start_guard(
    places: Places, running: list[asyncio.subprocess.Process], *listeners: str
) -> None:
    process = await _spawn(
        (
            "-m",
            "guard",
            "run",
            "--policy",
            str(places.policy),
            "--policy",
            str(places.notes_policy),
            "--redis",
            "embedded",
            "--label-key",
            str(places.directory / "label.key"),
            "--audit",
            str(places.audit),
            *listeners,
        ),
        places.guard_log,
        stdout=asyncio.subprocess.DEVNULL,
    )
    running.append(process)
    try:
        async with asyncio.timeout(START_SECONDS):
            while READY_WORDS not in places.guard_log.read_text("utf-8", "replace"):
                if process.returncode is not None:
                    raise DemoError(
                        f"the guard ended before it was ready:\n{_tail(places.guard_log)}"
                    )
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise DemoError(f"the guard was not ready in time:\n{_tail(places.guard_log)}") from error


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
    try:
        # Whatever the process started and left behind is in the session made for it.
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-LOG_TAIL:])
