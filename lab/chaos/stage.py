"""The processes of a chaos run, and how to break and mend each of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest.mock import patch

import redis
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from mitmproxy import certs

from guard.core.errors import GuardError
from guard.processes.loopback import Child, Rig, free_port, start
from guard.settings import Durability
from lab.chaos.history import Event, Saw
from lab.chaos.isolation import Clock, Isolation, fill
from lab.envoy_rig import RunningEnvoy, find_envoy, fronted, start_envoy
from lab.guard_processes import worker_of
from lab.redis_servers import SERVICE, RedisProcess, RedisServers
from lab.wire import credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Fault = Callable[[], None]

T = TypeVar("T")
POLICY: Final = Path(__file__).with_name("policy.yaml")
SETTLE: Final = 0.4
"""Seconds that a stopped process stays stopped, and that a link is cut."""
_DOWN_MILLISECONDS: Final = 1500
"""Silence after which Sentinels begin a failover; a busy machine is silent for a while, too."""
_JUMP: Final = 120
"""Seconds by which the guard's clock jumps."""
_ASKED: Final = 50
_PAUSE_MILLISECONDS: Final = "400"
_GUARD_SIDE: Final = "127.0.0.1"
"""Address from which the guard and the agents connect."""
_REDIS_SIDE: Final = ("127.0.0.12", "127.0.0.13", "127.0.0.14")
"""Addresses from which two Redis servers and the Sentinels connect."""
_WORKERS: Final = (2, 1)
"""Workers of the guard, and of the decision service."""
_HEARTBEAT: Final = 3
"""Seconds without a sign of life after which a supervisor replaces its worker."""
_CANDIDATES: Final = "guard:*:m:c:*"
"""Keys of the records of memory writes (:class:`guard.store.staging.MemoryKeys`)."""
_SECRET: Final = "tools" * 8
"""Secret that Envoy shows the decision service."""
_AUDIT_MEGABYTES: Final = 192
_REDIS_MEGABYTES: Final = 256
_RECORD_MEGABYTES: Final = 16


@dataclass
class GuardProcess:
    """A supervisor, which can be killed and started again as it was.

    Args:
        log: of the process.
        command: what starts it.
        environment: of the process.
    """

    log: Path
    command: tuple[str, ...]
    environment: dict[str, str]
    child: Child = field(init=False)

    def start(self) -> Child:
        """Start it and wait until it serves.

        Raises:
            GuardError: it does not.
        """
        self.child = start(self.log, *self.command, environment=self.environment)
        self.child.wait_ready()
        return self.child

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        return self.child.process.pid

    def worker(self) -> int:
        """Return the process id of the worker, a child of the supervisor.

        Raises:
            GuardError: there is none now.
        """
        return retried(lambda: worker_of(self.pid))


class Stage(Rig):
    """Two guards, a primary and a replica under three Sentinels, one tool server.

    One guard has a listener of its own; the other, where an Envoy is installed, is the decision
    service behind it.  Both have the same state, policy and label key.

    Args:
        isolation: what may be cut, slowed and filled.
        principals: who may call; each goes one of the ways, in turn.
        durability: of the guards' writes; with ``fsync`` there is one server and nothing else.
    """

    def __init__(
        self, isolation: Isolation, principals: Sequence[str], durability: Durability
    ) -> None:
        super().__init__()
        self.durability = durability
        self._isolation = isolation
        self._disks: list[Path] = []
        if isolation.has_mounts:
            for name, size in (
                ("audit", _AUDIT_MEGABYTES),
                ("redis", _REDIS_MEGABYTES),
                ("recordings", _RECORD_MEGABYTES),
            ):
                self._disks.append(self.directory / name)
                isolation.small_disk(self._disks[-1], size)
        (self.directory / "audit").mkdir(exist_ok=True)
        self._redis = RedisServers(self.directory / "redis")
        self._upstream_port = free_port()
        self.ports = [free_port() for _ in range(2 if find_envoy() else 1)]
        """Ports on which agents reach the guard, and the Envoy in front of the other one."""
        self._decision_port = free_port()
        self._envoy: RunningEnvoy | None = None
        self._way = {name: number % len(self.ports) for number, name in enumerate(principals)}
        self._guards: list[GuardProcess] = []
        self._logs = [self.directory / "audit" / f"{n}.jsonl" for n in range(len(self.ports))]
        for log in self._logs:
            log.touch()
        self.policy = self.directory / "policy.yaml"
        self.policy.write_text(POLICY.read_text(encoding="utf-8"), encoding="utf-8")
        self._clock = Clock(self.directory)
        credentials(self.directory, *principals)
        self._chain, self._expired = _chains(self.directory)

    def port_of(self, principal: str) -> int:
        """Return where one of the principals reaches a guard."""
        return self.ports[self._way[principal]]

    @property
    def label_key(self) -> Path:
        """The key of the deployment."""
        return self.directory / "label.key"

    @property
    def redis(self) -> str:
        """URL of the guard's store."""
        return self._redis.url

    def begin(self) -> None:
        """Start everything."""
        options = ["appendonly yes", "maxmemory-policy noeviction", "crash-memcheck-enabled no"]
        # Nobody else is in this network.
        sources = _REDIS_SIDE if self._isolation.has_network else ()
        if self.durability is Durability.FSYNC:
            self.primary = self.replica = self._redis.single(*options, "appendfsync always")
            self.sentinels: list[RedisProcess] = []
        else:
            self.primary, self.replica, self.sentinels = self._redis.watched(
                *options, down_after=_DOWN_MILLISECONDS, sources=sources
            )
        # From where each of both connects: they change their parts, and not their addresses.
        self._source = dict(zip((self.primary.port, self.replica.port), _REDIS_SIDE, strict=False))
        self._start_upstream(self._chain)
        self._start_guards()

    def stop(self) -> None:
        """End everything."""
        super().stop()
        self._redis.__exit__()
        for disk in self._disks:
            self._isolation.remove_disk(disk)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start_upstream(self, chain: Path) -> None:
        words = ["-m", "lab.chaos.upstream", str(self._upstream_port), str(self.directory)]
        self._upstream = self.start("upstream", *words, str(chain), *map(str, self._logs))
        self._upstream.wait_listening(self._upstream_port)

    def _start_guards(self) -> None:
        environment = dict(os.environ | self._clock.environment)  # noqa: TID251  (a child's)
        upstream = f"https://127.0.0.1:{self._upstream_port}"
        secret = self.directory / "front.secret"
        secret.write_text(_SECRET, encoding="utf-8")
        secret.chmod(0o600)
        for number, log in enumerate(self._logs):
            recordings = self.directory / "recordings" / str(number)
            recordings.mkdir(parents=True, exist_ok=True)
            settings = {
                "admin": f"127.0.0.1:{free_port()}",
                "audit": str(log),
                "policy": str(self.policy),
                "workers": str(_WORKERS[number]),
                "reverse": f"127.0.0.1:{self.ports[number]}={upstream}",
                "redis": self.redis,
                "label-key": str(self.label_key),
                "credentials": str(self.directory / "agents.toml"),
                "upstream-ca": str(self.directory / "authority.pem"),
                "durability": self.durability.value,
                "state-timeout": "1",
                "heartbeat": str(_HEARTBEAT),
                "reload": "0.2",
                "record": str(recordings),
                "record-key": str(self.directory / "record.key"),
                "record-limit": "4m",
                "audit-key": str(self.directory / "audit.key"),
            }
            words = [word for name in settings for word in (f"--{name}", settings[name])]
            command = ["run", *words]
            if number == 1:
                words += ["--front-secret", str(secret)]
                place = f"127.0.0.1:{self._decision_port}"
                command, edge = fronted(words, self.directory, place)
                self._edge = replace(edge, secret=_SECRET)
            log_of_process = self.directory / f"guard-{number}.log"
            guard = GuardProcess(log_of_process, ("-m", "guard", *command), environment)
            self._guards.append(guard)
            self.keep(guard.start())
        if len(self._guards) > 1:
            self._start_envoy()

    def _start_envoy(self) -> None:
        self._envoy = start_envoy(self.directory, self._edge)
        self.keep(self._envoy.child)

    # --- faults --------------------------------------------------------------------------------

    def replace_worker(self) -> None:
        """SIGSTOP for so long that the supervisor replaces it."""
        worker = self._guards[0].worker()
        os.kill(worker, signal.SIGSTOP)
        for _ in range(_ASKED * 4):
            time.sleep(SETTLE / 2)
            if self._guards[0].worker() != worker:
                return
        raise GuardError("a worker without a sign of life is not replaced")

    def _kill_guard(self, guard: GuardProcess) -> None:
        """Kill -9 of a supervisor, with which its worker ends; an operator starts another."""
        guard.child.process.kill()
        guard.child.process.wait()
        # Its worker holds the port until it has noticed.
        self.keep(retried(guard.start, 4 * _ASKED))

    def _kill_envoy(self, envoy: RunningEnvoy) -> None:
        """Kill -9, and start it again."""
        envoy.child.process.kill()
        envoy.child.process.wait()
        self._start_envoy()

    def _roles(self) -> tuple[RedisProcess, RedisProcess]:
        """Return primary and replica: Sentinels may have changed them while one was stopped."""
        if "slave" in _ask(self.primary, "ROLE"):
            self.primary, self.replica = self.replica, self.primary
        return self.primary, self.replica

    def kill_primary(self, *, ahead: bool = False) -> None:
        """Kill -9; the replica is promoted, and the dead server comes back as its replica.

        Args:
            ahead: the primary first goes on without its replica.  What it has acknowledged by
                itself meanwhile is gone.
        """
        dead, heir = self._roles()
        with self._isolation.cut(*([(self._source[heir.port], dead.port)] if ahead else [])):
            time.sleep(SETTLE if ahead else 0)
            dead.kill()
        heir.wait_for("role:master", "INFO", "replication")
        self._come_back(dead, heir)

    def fail_over(self) -> None:
        """An operator asks a Sentinel for a failover; nothing is dead."""
        old, heir = self._roles()
        _ask(self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE)
        heir.wait_for("role:master", "INFO", "replication")
        self._demote(old, heir)

    def outlive_failover(self) -> None:
        """SIGSTOP of the primary until its replica is promoted, then SIGCONT."""
        old, heir = self._roles()
        os.kill(old.pid, signal.SIGSTOP)
        try:
            heir.wait_for("role:master", "INFO", "replication")
        finally:
            os.kill(old.pid, signal.SIGCONT)
        self._demote(old, heir)

    def _demote(self, old: RedisProcess, heir: RedisProcess) -> None:
        """Have two primaries for a while, then make a replica of the one that was replaced.

        The Sentinels would do that too, after ten seconds.
        """
        time.sleep(SETTLE)
        _ask(old, "REPLICAOF", "127.0.0.1", str(heir.port))
        self._in_step(heir, old)

    def kill_redis(self) -> None:
        """Kill -9 of the only server, which comes back with its disk."""
        self.primary.kill()
        self.primary.start()

    def _come_back(self, dead: RedisProcess, heir: RedisProcess) -> None:
        """Start a server again that another one has replaced, as its replica."""
        (dead.directory / "redis.conf").unlink(missing_ok=True)
        # All of it comes from the heir; after a full disk its own file may be damaged.
        shutil.rmtree(dead.directory / "appendonlydir", ignore_errors=True)
        kept = tuple(line for line in dead.options if not line.startswith("replicaof"))
        dead.options = (*kept, f"replicaof 127.0.0.1 {heir.port}")
        dead.start()
        self._in_step(heir, dead)

    def _in_step(self, primary: RedisProcess, replica: RedisProcess) -> None:
        primary.wait_for("state=online", "INFO", "replication")
        self.primary, self.replica = primary, replica
        for sentinel in self.sentinels:
            wanted = str(primary.port)
            sentinel.wait_for(wanted, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)

    def kill_replica(self) -> None:
        """Kill -9; nothing can be acknowledged until it is back."""
        primary, replica = self._roles()
        replica.kill()
        self._come_back(replica, primary)

    def kill_sentinel(self) -> None:
        """Kill -9 of the one that is asked first, and start it again."""
        self.sentinels[0].kill()
        time.sleep(SETTLE)
        self.sentinels[0].start()

    def _stop_primary(self) -> None:
        """SIGSTOP and SIGCONT, too short for a failover."""
        stopped(SETTLE / 2, self._roles()[0].pid)

    def _tell_primary(self, *words: str) -> None:
        _ask(self._roles()[0], *words)

    def _restart_upstream(self, chain: Path) -> None:
        self._upstream.process.kill()
        self._upstream.process.wait()
        self._start_upstream(chain)

    def expire_certificate(self) -> None:
        """The tool server shows a certificate that has expired, then a good one again."""
        self._restart_upstream(self._expired)
        time.sleep(SETTLE)
        self._restart_upstream(self._chain)

    def poison_policy(self) -> None:
        """A policy that is cut off in the middle is put in place, then the whole one again."""
        whole = self.policy.read_text(encoding="utf-8")
        for text in (whole[: len(whole) // 2] + "\n  - id:", whole):
            fresh = self.policy.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self.policy)
            time.sleep(SETTLE)

    def jump_clock(self) -> None:
        """The guard's clock goes ahead, back, and is right again."""
        for shift in (_JUMP, -_JUMP, 0):
            self._clock.set(shift)
            time.sleep(SETTLE)

    def cut_primary_off(self) -> None:
        """The guard and the primary on one side, replica and Sentinels on the other: a failover."""
        old, heir = self._roles()
        with self._isolation.cut((self._source[heir.port], old.port), (_REDIS_SIDE[-1], old.port)):
            heir.wait_for("role:master", "INFO", "replication")
            time.sleep(SETTLE)
        self._demote(old, heir)

    def _settle(self) -> None:
        """Wait until primary and replica are in step again.

        Raises:
            GuardError: there is not one of each.
        """
        if ["slave" in _ask(one, "ROLE") for one in self._roles()] != [False, True]:
            raise GuardError("after a full disk there is not one primary and one replica")
        self._in_step(self.primary, self.replica)

    def _links(self) -> dict[str, Callable[[], list[tuple[str, int]]]]:
        """Return who connects to whom: from which address, to which port, now."""
        found = {
            "agents | guard": lambda: [(_GUARD_SIDE, self.ports[0])],
            "guard | primary": lambda: [(_GUARD_SIDE, self._roles()[0].port)],
            "guard | upstream": lambda: [(_GUARD_SIDE, self._upstream_port)],
        }
        if self._envoy is not None:
            found |= {
                "agents | envoy": lambda: [(_GUARD_SIDE, self.ports[1])],
                "envoy | decision service": lambda: [(_GUARD_SIDE, self._decision_port)],
            }
        if self.sentinels:
            watchers = _REDIS_SIDE[-1]
            found |= {
                "primary | replica": lambda: [
                    (self._source[self._roles()[1].port], self.primary.port)
                ],
                "guard | sentinels": lambda: [(_GUARD_SIDE, one.port) for one in self.sentinels],
                "sentinels | primary": lambda: [(watchers, self._roles()[0].port)],
                "sentinels | replica": lambda: [(watchers, self._roles()[1].port)],
                "sentinels | sentinels": lambda: [(watchers, one.port) for one in self.sentinels],
            }
        return found

    def _cut(self, ends: Callable[[], list[tuple[str, int]]]) -> None:
        """Cut links for a while."""
        with self._isolation.cut(*ends()):
            time.sleep(SETTLE)

    def fill_disk(self, name: str) -> None:
        """Leave no room on the disk of a name, then make room again."""
        path = fill(self.directory / name)
        time.sleep(SETTLE)
        path.unlink()
        if name == "redis":
            self._revive()

    def _revive(self) -> None:
        """Start again what could not go on without a disk, until both servers answer.

        A replica that cannot write ends by itself (``replica-ignore-disk-write-errors no``).
        """
        for _ in range(_ASKED):
            if all(self._answers(one) for one in (self.primary, self.replica)):
                break
            time.sleep(SETTLE / 2)
        if self.sentinels:
            retried(self._settle, 600)

    def _answers(self, server: RedisProcess) -> bool:
        """Return whether a server answers; start it where it has ended."""
        if server.process.poll() is None:
            with suppress(GuardError):
                return "PONG" in server.cli("PING")
            return False
        heir = self.replica if server is self.primary else self.primary
        if heir is not server and heir.process.poll() is None and "slave" not in _ask(heir, "ROLE"):
            self._come_back(server, heir)
        else:
            server.start()
        return False

    @property
    def faults(self) -> dict[str, dict[str, Fault]]:
        """Every kind of fault that can be had here, and its variants, by their names."""
        guard, links = self._guards[0], self._links()
        found: dict[str, dict[str, Fault]] = {
            "worker kill -9": {"": lambda: os.kill(guard.worker(), signal.SIGKILL)},
            "worker SIGSTOP": {
                "resumed": lambda: stopped(SETTLE, guard.worker()),
                "replaced": self.replace_worker,
            },
            "supervisor kill -9": {"": partial(self._kill_guard, guard)},
            "supervisor SIGSTOP": {"": lambda: stopped(SETTLE, guard.pid)},
            "upstream kill -9": {"": partial(self._restart_upstream, self._chain)},
            "upstream SIGSTOP": {"": lambda: stopped(SETTLE, self._upstream.process.pid)},
            "certificate expired": {"": self.expire_certificate},
            "poisoned reload": {"": self.poison_policy},
            "slow link": {
                "primary answers late": partial(
                    self._tell_primary, "CLIENT", "PAUSE", _PAUSE_MILLISECONDS, "ALL"
                )
            },
            "partition": {
                "connections to primary closed": partial(
                    self._tell_primary, "CLIENT", "KILL", "TYPE", "normal"
                )
            },
            **(self._of_sentinels() if self.sentinels else self._of_one_redis()),
            **(self._of_envoy(self._envoy) if self._envoy is not None else {}),
        }
        if self._clock.environment:
            found["clock jumps"] = {"": self.jump_clock}
        if self._isolation.has_network:
            for name, ends in links.items():
                found["partition"][name] = partial(self._cut, ends)
        if self._isolation.has_network and self.sentinels:
            found["failover"] |= {
                "replica behind": partial(self.kill_primary, ahead=True),
                "guard, primary | replica, sentinels": self.cut_primary_off,
            }
        if self._isolation.has_mounts:
            for name in ("audit", "redis", "recordings"):
                found[f"disk full under {name}"] = {"": partial(self.fill_disk, name)}
        return found

    def _of_sentinels(self) -> dict[str, dict[str, Fault]]:
        return {
            "redis primary kill -9": {"": self.kill_primary},
            "redis primary SIGSTOP": {
                "resumed": self._stop_primary,
                "replaced": self.outlive_failover,
            },
            "redis replica kill -9": {"": self.kill_replica},
            "redis replica SIGSTOP": {"": lambda: stopped(SETTLE, self._roles()[1].pid)},
            "sentinel kill -9": {"": self.kill_sentinel},
            "sentinel SIGSTOP": {"": lambda: stopped(SETTLE, self.sentinels[0].pid)},
            "failover": {"asked for": self.fail_over},
        }

    def _of_one_redis(self) -> dict[str, dict[str, Fault]]:
        return {
            "redis primary kill -9": {"restarted": self.kill_redis},
            "redis primary SIGSTOP": {"resumed": self._stop_primary},
        }

    def _of_envoy(self, envoy: RunningEnvoy) -> dict[str, dict[str, Fault]]:
        service = self._guards[1]
        return {
            "envoy kill -9": {"": partial(self._kill_envoy, envoy)},
            "envoy SIGSTOP": {"": lambda: stopped(SETTLE, envoy.child.process.pid)},
            "decision service kill -9": {"": partial(self._kill_guard, service)},
            "decision service SIGSTOP": {
                "": lambda: stopped(SETTLE, service.pid, service.worker())
            },
        }

    # --- what its sides saw --------------------------------------------------------------------

    def seen(self, asked: dict[str, str], refusals: dict[str, Event]) -> list[Event]:
        """Return what the upstream and the audit log saw.

        Args:
            asked: receiver of each call.
            refusals: what agents saw of refused calls, by decision id.
        """
        found = [
            Event(
                line["at"],
                Saw.RECEIVED,
                line["call"],
                line["principal"],
                line["to"],
                line["audit"][self._way[line["principal"]]],
            )
            for _, line in _lines(self.directory / "upstream.jsonl")
        ]
        for end, line in self._audit_lines():
            refusal = refusals.get(line.get("decision_id", ""))
            if line.get("event") == "guard.unreadable" and refusal is not None:
                at = datetime.fromisoformat(line["at"]).timestamp()
                found.append(Event(at, Saw.NOTED, refusal.call, refusal.principal, mark=end))
            if line.get("event") != "guard.decision":
                continue
            call, at = line["session"], datetime.fromisoformat(line["at"]).timestamp()
            saw = _verdict(line)
            to = asked.get(call, "") if saw is Saw.GRANTED else ""
            found.append(Event(at, saw, call, line["principal"], to, end))
        return found + self._committed()

    def _audit_lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Return the whole lines of every guard's log, each with the length of its log there."""
        return (line for log in self._logs for line in _lines(log))

    def _committed(self) -> list[Event]:
        """Return the memory writes of whose commit the store knows now."""
        client = redis.Redis(port=self._roles()[0].port)
        keys = list(client.scan_iter(_CANDIDATES, count=1000))
        with client.pipeline(transaction=False) as asked:
            for key in keys:
                asked.hmget(key, "session", "principal", "committed_at")
            answers = asked.execute()
        return [
            Event(int(at) / 1000, Saw.COMMITTED, call.decode(), principal.decode())
            for call, principal, at in answers
            if at is not None
        ]

    def noticed(self) -> Counter[str]:
        """Return how often the guards detected lost labels, by kind of loss."""
        return Counter(
            line["loss"]
            for _, line in self._audit_lines()
            if line.get("event") == "guard.labels_incomplete"
        )


def _verdict(line: dict[str, Any]) -> Saw:
    if line["enforced"] != "allow":
        return Saw.WAITS if line["action"] == "ask" else Saw.STOPPED
    granted = any(reason.get("code") == "granted" for reason in line["reasons"])
    return Saw.GRANTED if granted else Saw.ALLOWED


def _ask(server: RedisProcess, *words: str) -> str:
    """Return what a server answers; Sentinels cut the connections of one whose role they change.

    Raises:
        GuardError: it does not answer at all.
    """
    return retried(lambda: server.cli(*words))


def retried(ask: Callable[[], T], tries: int = _ASKED) -> T:
    """Return an answer, asked for again and again.

    Raises:
        GuardError: there is none.
    """
    for _ in range(tries - 1):
        with suppress(GuardError):
            return ask()
        time.sleep(SETTLE / 4)
    return ask()


def stopped(seconds: float, *pids: int) -> None:
    """Stop processes for a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the whole lines of a log, each with the length of the log at its end."""
    end = 0
    for line in path.read_bytes().splitlines(keepends=True):
        end += len(line)
        with suppress(ValueError):
            yield end, json.loads(line)


def _chains(directory: Path) -> tuple[Path, Path]:
    """Write an authority, and two chains for loopback: a good one and one that has expired."""
    key, authority = certs.create_ca("chaos", "chaos authority", 2048)
    (directory / "authority.pem").write_bytes(certs.Cert(authority).to_pem())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    found = []
    for name, days in (("good", 30), ("expired", -1)):
        with patch.object(certs, "CERT_EXPIRY", timedelta(days=days)):
            names = [x509.IPAddress(ip_address("127.0.0.1"))]
            leaf = certs.dummy_cert(key, authority, name, names)
        found.append(directory / f"{name}.pem")
        found[-1].write_bytes(private + leaf.to_pem())
        found[-1].chmod(0o600)
    return found[0], found[1]
