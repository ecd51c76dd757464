"""Real redis-server processes on loopback: one, with a replica, under Sentinels, a Cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from guard.core.errors import InputError
from guard.processes.child_process import SHIM
from guard.processes.loopback import Child, free_port, keep_port, start

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_READY_PAUSE: Final = 0.02
_TRIES: Final = 1500
_BUS: Final = 10_000
"""Between the port of a Cluster's server and the one on which it talks to the others."""
_LAST: Final = 32_767
"""Last port that the kernel gives to no connection, unless somebody changed that."""
SERVICE: Final = "guard"
_ANNOUNCED: Final = (
    ("replica-announce-ip",),
    ("replica-announce-ip",),
    ("sentinel", "announce-ip"),
)
"""Setting by which a primary, a replica and a Sentinel say where they are found."""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, and nobody on a Cluster's bus port, 10,000 above.

    Raises:
        InputError: there are not enough.
    """
    ports: list[int] = []
    for _ in range(_TRIES):
        # Both below the ports that the kernel gives to connections: what is free now is still free
        # when the server starts.
        port = free_port()
        bus = port + _BUS
        if bus > _LAST or {port - _BUS, bus} & set(ports):
            continue
        try:
            keep_port(bus)
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise InputError(f"there are no {count} free ports with another one {_BUS} above")


@dataclass
class RedisProcess:
    """One redis-server, or one Sentinel, that can be killed and started again.

    Args:
        directory: its own; configuration and data are kept there.
        port: where it listens.
        options: further lines of its configuration.
        sentinel: whether it is a Sentinel.
    """

    directory: Path
    port: int
    options: tuple[str, ...] = ()
    sentinel: bool = False
    _child: Child | None = field(default=None, init=False, repr=False)

    @property
    def url(self) -> str:
        """Host and port on which it listens."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the last start."""
        if self._child is None:
            raise InputError(f"the server on port {self.port} was not started")
        return self._child.process

    @property
    def pid(self) -> int:
        """Process id of the last start."""
        return self.process.pid

    def start(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            GuardError: there is no redis-server, or it does not answer.
        """
        binary = shutil.which("redis-server")
        if binary is None:
            raise InputError("no redis-server on the PATH")
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "redis.conf"
        if not config.exists():
            # A Sentinel, and a server that is told to follow another, rewrite theirs.
            lines = [f"port {self.port}", f"dir {self.directory}", "save ''", *self.options]
            config.write_text("\n".join(lines).replace("''", '""') + "\n", encoding="utf-8")
        words = [binary, str(config), *(["--sentinel"] if self.sentinel else [])]
        self.kill()
        # Ends with this process, however that ends.
        shim = ("-I", "-S", "-c", SHIM, str(os.getpid()))
        self._child = start(self.directory / "log", *shim, *words)
        self._child.wait_listening(self.port)
        return self

    def kill(self) -> None:
        """End it without warning, stopped or not, and wait until it is gone.  Idempotent."""
        if self._child is not None:
            self.process.kill()
            self._child.stop()

    def cli(self, *words: str) -> str:
        """Return what ``redis-cli`` prints for a command.

        Raises:
            InputError: it fails.
        """
        return redis_cli("-p", str(self.port), *words)

    def wait_for(self, wanted: str, *words: str) -> None:
        """Repeat a command until its answer contains a text.

        Raises:
            InputError: it never does.
        """
        for _ in range(_TRIES):
            with suppress(InputError):
                if wanted in self.cli(*words):
                    return
            time.sleep(_READY_PAUSE)
        raise InputError(f"`{' '.join(words)}` on port {self.port} never answered `{wanted}`")


def redis_cli(*words: str) -> str:
    """Return what ``redis-cli`` prints.

    Raises:
        InputError: it is absent or fails.
    """
    binary = shutil.which("redis-cli")
    if binary is None:
        raise InputError("no redis-cli on the PATH")
    try:
        done = subprocess.run(  # noqa: S603  (a found binary)
            [binary, "-e", *words], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError("redis-cli did not end") from error
    if done.returncode:
        raise InputError(f"redis-cli failed: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout


def _connecting_from(source: str, *announced: str) -> tuple[str, ...]:
    """Return what tells a server to connect from an address of loopback; nothing without one.

    Args:
        source: the address.
        announced: what the setting is called that says where the server itself is found.
    """
    if not source:
        return ()
    # To Redis, only 127.0.0.1 is the machine itself.  Without an announcement Sentinels would know
    # the server by both addresses, as two.
    return (f"bind-source-addr {source}", "protected-mode no", f"{' '.join(announced)} 127.0.0.1")


class RedisServers:
    """A set of servers that ends with its context.

    Args:
        directory: holds one directory for each.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.servers: list[RedisProcess] = []
        self.sentinels: list[RedisProcess] = []
        self.url = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.sentinels, *self.servers):
            process.kill()

    def single(self, *options: str, port: int | None = None) -> RedisProcess:
        """Start one more server."""
        port = port or free_ports(1)[0]
        process = RedisProcess(self._directory / str(port), port, options)
        self.servers.append(process.start())
        self.url = self.url or process.url
        return process

    def watched(
        self, *options: str, down_after: int = 300, sources: Sequence[str] = ()
    ) -> tuple[RedisProcess, RedisProcess, list[RedisProcess]]:
        """Start a primary, a replica and three Sentinels that fail over.

        Args:
            options: of primary and replica.
            down_after: milliseconds of silence before a Sentinel thinks the primary is gone.
            sources: addresses that the primary, the replica and the Sentinels connect from.
        """
        of_primary, of_replica, of_sentinels = (
            _connecting_from(source, *announced)
            for source, announced in zip(sources or ("", "", ""), _ANNOUNCED, strict=True)
        )
        primary = self.single("repl-diskless-sync-delay 0", *options, *of_primary)
        followed = f"replicaof 127.0.0.1 {primary.port}"
        replica = self.single(*options, *of_replica, followed)
        primary.wait_for("state=online", "INFO", "replication")
        for port in free_ports(3):
            self.sentinels.append(
                RedisProcess(
                    self._directory / f"sentinel-{port}",
                    port,
                    (
                        f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 2",
                        f"sentinel down-after-milliseconds {SERVICE} {down_after}",
                        f"sentinel failover-timeout {SERVICE} 2000",
                        *of_sentinels,
                    ),
                    sentinel=True,
                ).start()
            )
        for sentinel in self.sentinels:
            sentinel.wait_for("num-other-sentinels\n2", "SENTINEL", "MASTER", SERVICE)
            sentinel.wait_for("num-slaves\n1", "SENTINEL", "MASTER", SERVICE)
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/{SERVICE}"
        return primary, replica, self.sentinels

    def cluster(self, *options: str) -> list[RedisProcess]:
        """Start three primaries and three replicas as one Cluster."""
        ports = free_ports(6)
        for port in ports:
            self.single(
                "cluster-enabled yes",
                "cluster-node-timeout 1000",
                "repl-diskless-sync-delay 0",
                *options,
                port=port,
            )
        places = [f"127.0.0.1:{port}" for port in ports]
        redis_cli("--cluster", "create", *places, "--cluster-replicas", "1", "--cluster-yes")
        for server in self.servers:
            server.wait_for("cluster_state:ok", "CLUSTER", "INFO")
        self.url = f"redis+cluster://{','.join(places)}"
        return self.servers
