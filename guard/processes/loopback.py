"""Programs on loopback: free ports, serving, and processes that are started, awaited and stopped.

The demo, the benchmarks and the end-to-end tests all start guards and the servers around them here.
A server made with :func:`serve_on_loopback` listens before it prints its port, and ends when its
standard input does: a parent that was killed leaves no server behind.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.applications import Starlette

LOWEST: Final = 10_000
TRIES: Final = 1000
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL: Final = 32_768
"""Start of the kernel's range on Linux unless somebody changed it; elsewhere it is higher."""
_given: Final[set[int]] = set()
"""Given out by this process; whoever asked may not listen on it yet."""
_kept: Final[deque[int]] = deque()
"""Descriptors of sockets that are bound to the ports given out last, and do not listen."""
KEPT: Final = 64
START_SECONDS: Final = 150.0
"""Longest wait for a process: a loaded machine is slow, and the first start compiles everything."""
STOP_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.02
READY_WORDS: Final = "guard ready"
"""Line that a guard prints on standard error once every listener accepts."""
LOG_TAIL: Final = 12
_ROOT: Final = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port that nobody listens on and no connection is given, a different one each time.

    A port that the kernel gave out a moment ago it may give to the next connection of anybody, so
    these come from below the range that it gives out of.  On Linux a socket stays bound to each of
    the last ones: other processes that look for a port see that it is taken, and a server may
    listen on it all the same, as every server sets ``SO_REUSEADDR``.

    Raises:
        GuardError: there is none.
    """
    end = _kernel_starts()
    for _ in range(TRIES):
        port = LOWEST + secrets.randbelow(end - LOWEST)
        if port in _given:
            continue
        try:
            keep_port(port)
        except OSError:
            continue
        return port
    raise GuardError(f"no port of loopback from {LOWEST} to {end} is free")


def keep_port(port: int) -> None:
    """Keep a port of loopback from being given out, by this process or another.

    Raises:
        OSError: somebody has it.
    """
    with socket.socket() as made:
        made.bind(("127.0.0.1", port))
        _given.add(port)
        if sys.platform == "linux":
            # Only after it was bound: before, two processes could have the same port.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _kept.append(made.detach())
    while len(_kept) > KEPT:
        os.close(_kept.popleft())


def _kernel_starts() -> int:
    """Return the first port that connections are given."""
    try:
        first = int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        first = _USUAL
    # Where they are given nearly all ports there is nothing below to choose from.
    return first if first > LOWEST + TRIES else _USUAL


def serve_on_loopback(build: Callable[[], Starlette], port: int = 0) -> None:
    """Print the port and serve on it until told to stop, or until standard input ends.

    Args:
        build: makes the application, once the socket listens.
        port: 0 chooses a free one.
    """
    import uvicorn

    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(build(), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()

    def stop_at_end_of_input() -> None:
        # Nothing is ever written to it: reading ends when the parent does.
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    asyncio.run(server.serve(sockets=[listener]))


@dataclass(slots=True)
class Child:
    """A process with a log of its own, in a session of its own.

    Ctrl-C therefore reaches the parent only, which stops its children in order.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def printed_port(self) -> int:
        """Return the port that a server prints once it listens.

        Raises:
            GuardError: it ended without.
        """
        line = self.process.stdout.readline() if self.process.stdout is not None else b""
        if not line.strip().isdigit():
            raise self._failed("did not say on which port it listens")
        return int(line)

    def wait_ready(self, times: int = 1) -> None:
        """Wait until a guard has said that it serves, so many times since it was started.

        Raises:
            GuardError: it ended, or took too long.
        """
        self._wait(lambda: self.said().count(READY_WORDS) >= times)

    def wait_listening(self, port: int) -> None:
        """Wait until something accepts connections on a port of loopback.

        Raises:
            GuardError: the process ended, or took too long.
        """

        def listens() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return True
            return False

        self._wait(listens)

    def said(self) -> str:
        """Return what the process has logged."""
        return self.log.read_text("utf-8", "replace")

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """End the process as an operator would, then whatever it left; return its exit code."""
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return self.process.wait()

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if self.process.poll() is not None:
                raise self._failed("ended before it was ready")
            if time.monotonic() > deadline:
                raise self._failed(f"was not ready within {START_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _failed(self, what: str) -> GuardError:
        tail = "\n".join(self.said().splitlines()[-LOG_TAIL:])
        return GuardError(f"`{self.log.stem}` {what}:\n{tail}")


def start(
    log: Path,
    *command: str,
    read: bool = False,
    environment: Mapping[str, str] | None = None,
    root: Path = _ROOT,
) -> Child:
    """Start a command; its errors go to a log, its output too unless it is read.

    Args:
        log: is begun anew.
        command: a program and its arguments; what begins with a dash is python's, which runs where
            the package is, so that paths in it must be absolute.
        read: whether the parent reads its output.
        environment: the parent's if None.
        root: where the package is.
    """
    python = (sys.executable,) if command[0].startswith("-") else ()
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603  (our own commands)
            (*python, *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if read else file,
            stderr=file,
            # `-m guard` must find this guard, installed or not, and no other where the user is.
            cwd=root if python else None,
            env=environment,
            start_new_session=True,
        )
    return Child(process, log)


class Rig:
    """A directory and processes that end with the block, the last started first.

    Args:
        directory: a temporary one if None; it goes with the block.
        root: of the files that are run; another revision's, for a comparison.
        environment: of every process; this one's if None.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        root: Path = _ROOT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._environment = environment
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="guard-rig-"))
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process, and remove a temporary directory."""
        while self._children:
            self._children.pop().stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name: str, *command: str, read: bool = False) -> Child:
        """Start a command that logs under a name."""
        log = self.directory / f"{name}.log"
        told = self._environment
        return self.keep(start(log, *command, read=read, environment=told, root=self._root))

    def keep(self, child: Child) -> Child:
        """End a process with the others."""
        self._children.append(child)
        return child

    def begin_server(self, module: str, *words: str) -> Child:
        """Start a module that prints the port it serves on."""
        name = f"{module.rpartition('.')[2]}-{len(self._children)}"
        return self.start(name, "-m", module, *words, read=True)

    def server(self, module: str, *words: str) -> int:
        """Start a module that prints the port it serves on; return the port.

        Raises:
            GuardError: it ended without.
        """
        return self.begin_server(module, *words).printed_port()

    def begin_guard(self, *options: str, admin: int = 0) -> Child:
        """Start ``guard run`` with an audit log and a label key of its own in the directory."""
        command = ["-m", "guard", "run", "--admin", f"127.0.0.1:{admin or free_port()}"]
        # To the user's key, the embedded store of this run would be one that lost labels.
        command += ["--label-key", str(self.directory / "label.key"), "--data", "memory"]
        return self.start("guard", *command, "--audit", str(self.audit), *options)

    def guard(self, policy: Path, upstream: int, *options: str) -> int:
        """Start a guard in front of a port of loopback; return its own once it serves.

        Raises:
            GuardError: it did not start.
        """
        port = free_port()
        listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
        self.begin_guard(
            "--policy", str(policy.resolve()), "--reverse", listener, *options
        ).wait_ready()
        return port

    @property
    def audit(self) -> Path:
        """The audit log of the guard."""
        return self.directory / "audit.jsonl"
