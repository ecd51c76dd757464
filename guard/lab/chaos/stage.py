"""Everything that runs in a chaos run, and how to break and mend each part of it."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import json
import os
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from guard.adapters.loopback import Rig, free_port, start
from guard.core.errors import GuardError
from guard.lab.chaos.agents import secret
from guard.lab.chaos.history import Event, Saw
from guard.lab.chaos.isolation import Clock, fill
from guard.lab.redis_servers import SERVICE, RedisServers
from guard.settings import Durability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guard.adapters.loopback import Child
    from guard.lab.chaos.isolation import Isolation
    from guard.lab.redis_servers import RedisProcess

POLICY: Final = Path(__file__).with_name("policy.yaml")
BEHIND: Final = "redis primary kill -9, replica behind"
"""The kind of fault in which a primary dies whose replica lacks its last writes."""
SETTLE: Final = 0.4
"""Seconds that a stopped process stays stopped, and that all work between two faults."""
_DOWN_MILLISECONDS: Final = 1500
"""Silence after which Sentinels begin a failover; a busy machine is silent for a while, too."""
_SPLIT_SECONDS: Final = 4.0
"""Longer than that: the Sentinels promote the replica."""
_JUMP: Final = 120
"""Seconds by which the guard's clock jumps."""
_ASKED: Final = 50
_PAUSE_MILLISECONDS: Final = "400"
_GUARD_SIDE: Final = "127.0.0.1"
"""Address from which the guard and the agents connect."""
_OTHER_SIDE: Final = "127.0.0.12"
"""Address from which the Redis servers and the Sentinels connect."""
_AUDIT_MEGABYTES: Final = 192
_REDIS_MEGABYTES: Final = 256
_RECORD_MEGABYTES: Final = 16


class Stage(Rig):
    """One guard, a primary and a replica under three Sentinels, one tool server.

    Args:
        isolation: what may be cut and filled.
        principals: who may call.
        durability: of the guard's writes; with ``fsync`` there is one server and nothing else.
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
        self.audit.touch()
        self._redis = RedisServers(self.directory / "redis")
        self.port, self._upstream_port, self._admin = free_port(), free_port(), free_port()
        self.policy = self.directory / "policy.yaml"
        self.policy.write_text(POLICY.read_text(encoding="utf-8"), encoding="utf-8")
        self._clock = Clock(self.directory)
        (self.directory / "agents.toml").write_text(
            "".join(
                f'{name} = "{hashlib.sha256(secret(name).encode()).hexdigest()}"\n'
                for name in principals
            ),
            encoding="utf-8",
        )
        self._chain, self._expired = _chains(self.directory)

    @property
    def audit(self) -> Path:
        """The audit log of the guard."""
        return self.directory / "audit" / "log.jsonl"

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
        network: list[str] = []
        if self._isolation.has_network:
            # Nobody else is in this network; to Redis, only 127.0.0.1 is the machine itself.
            network = [f"bind-source-addr {_OTHER_SIDE}", "protected-mode no"]
        if self.durability is Durability.FSYNC:
            self.primary = self.replica = self._redis.single(*options, "appendfsync always")
            self.sentinels: list[RedisProcess] = []
        else:
            self.primary, self.replica, self.sentinels = self._redis.watched(
                *options, down_after=_DOWN_MILLISECONDS, network=network
            )
        self._start_upstream(self._chain)
        self._start_guard()

    def stop(self) -> None:
        """End everything."""
        super().stop()
        self._redis.__exit__()
        for disk in self._disks:
            self._isolation.remove_disk(disk)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start_upstream(self, chain: Path) -> None:
        words = ["-m", "guard.lab.chaos.upstream", "--port", str(self._upstream_port)]
        words += ["--directory", str(self.directory), "--audit", str(self.audit)]
        self._upstream = self.start("upstream", *words, "--chain", str(chain))
        self._upstream.wait_listening(self._upstream_port)

    def _start_guard(self) -> None:
        words = ["-m", "guard", "run", "--admin", f"127.0.0.1:{self._admin}"]
        words += ["--label-key", str(self.label_key), "--audit", str(self.audit)]
        words += ["--policy", str(self.policy), "--redis", self.redis]
        words += ["--reverse", f"127.0.0.1:{self.port}=https://127.0.0.1:{self._upstream_port}"]
        words += ["--upstream-ca", str(self.directory / "authority.pem")]
        words += ["--credentials", str(self.directory / "agents.toml")]
        words += ["--durability", self.durability.value, "--state-timeout", "1", "--heartbeat", "3"]
        words += ["--reload", "0.2", "--record", str(self.directory / "recordings")]
        words += ["--record-key", str(self.directory / "record.key"), "--record-limit", "8m"]
        words += ["--audit-key", str(self.directory / "audit.key")]
        environment = os.environ | self._clock.environment  # noqa: TID251  (a child's)
        log = self.directory / "guard.log"
        self._guard: Child = self.keep(start(log, *words, environment=environment))
        self._guard.wait_ready()

    def _worker(self) -> int:
        """Return the process id of the worker, a child of the supervisor."""
        boss = self._guard.process.pid
        children = Path(f"/proc/{boss}/task/{boss}/children")
        for child in children.read_text(encoding="ascii").split():
            with suppress(OSError):
                if b"guard.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        msg = "the guard has no worker"
        raise GuardError(msg)

    # --- faults --------------------------------------------------------------------------------

    def kill_worker(self) -> None:
        """Kill -9; the supervisor starts another."""
        os.kill(self._worker(), signal.SIGKILL)

    def stop_worker(self) -> None:
        """SIGSTOP and SIGCONT, shorter than the heartbeat allows."""
        stopped(self._worker())

    def stop_supervisor(self) -> None:
        """SIGSTOP and SIGCONT; its worker goes on."""
        stopped(self._guard.process.pid)

    def kill_supervisor(self) -> None:
        """Kill -9 of the supervisor, with which the worker ends; an operator starts another."""
        self._guard.process.kill()
        self._guard.process.wait()
        # Its worker holds the port until it has noticed.
        for _ in range(200):
            with suppress(GuardError):
                self._start_guard()
                return
        msg = "the guard does not start again"
        raise GuardError(msg)

    def _find_primary(self) -> None:
        """Find out who is primary: Sentinels may have changed it while something was stopped."""
        for server in (self.primary, self.replica):
            if "slave" not in _ask(server, "ROLE"):
                self.primary, self.replica = server, self._other(server)
                return

    def kill_primary(self) -> None:
        """Kill -9; the replica is promoted, and the dead server comes back as its replica."""
        self._find_primary()
        dead, heir = self.primary, self.replica
        dead.kill()
        heir.wait_for("role:master", "INFO", "replication")
        self._come_back(dead, heir)

    def kill_primary_ahead(self) -> None:
        """Kill -9 of a primary that has gone on without its replica, which is promoted.

        What the primary has acknowledged by itself meanwhile is gone.
        """
        self._find_primary()
        dead, heir = self.primary, self.replica
        try:
            self._isolation.cut(_OTHER_SIDE, dead.port)
            time.sleep(SETTLE)
            dead.kill()
        finally:
            self._isolation.mend()
        heir.wait_for("role:master", "INFO", "replication")
        self._come_back(dead, heir)

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

    def _other(self, server: RedisProcess) -> RedisProcess:
        return self.replica if server is self.primary else self.primary

    def stop_primary(self) -> None:
        """SIGSTOP and SIGCONT, too short for a failover."""
        stopped(self.primary.pid, SETTLE / 2)

    def stop_replica(self) -> None:
        """SIGSTOP and SIGCONT; meanwhile nothing can be acknowledged."""
        stopped(self.replica.pid)

    def kill_replica(self) -> None:
        """Kill -9; nothing can be acknowledged until it is back."""
        self._find_primary()
        self.replica.kill()
        self._come_back(self.replica, self.primary)

    def stop_sentinel(self) -> None:
        """SIGSTOP and SIGCONT of the one that is asked first."""
        stopped(self.sentinels[0].pid)

    def kill_sentinel(self) -> None:
        """Kill -9 of the one that is asked first, and start it again."""
        self.sentinels[0].kill()
        time.sleep(SETTLE)
        self.sentinels[0].start()

    def slow_redis(self) -> None:
        """The primary answers late, as over a bad link."""
        self._find_primary()
        _ask(self.primary, "CLIENT", "PAUSE", _PAUSE_MILLISECONDS, "ALL")

    def cut_connections(self) -> None:
        """Close every connection of the guard to Redis at once."""
        self._find_primary()
        _ask(self.primary, "CLIENT", "KILL", "TYPE", "normal")

    def kill_upstream(self) -> None:
        """Kill -9, and start it again."""
        self._restart_upstream(self._chain)

    def _restart_upstream(self, chain: Path) -> None:
        self._upstream.process.kill()
        self._upstream.process.wait()
        self._start_upstream(chain)

    def stop_upstream(self) -> None:
        """SIGSTOP and SIGCONT."""
        stopped(self._upstream.process.pid)

    def slow_upstream(self) -> None:
        """Each answer comes late, as over a bad link."""
        os.kill(self._upstream.process.pid, signal.SIGUSR1)
        time.sleep(SETTLE)
        os.kill(self._upstream.process.pid, signal.SIGUSR2)

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

    def cut_guard_from_redis(self) -> None:
        """Neither guard nor agents reach the primary; the Sentinels and the replica do."""
        self._find_primary()
        self._while_cut(SETTLE, (_GUARD_SIDE, self.primary.port))

    def cut_primary_off(self) -> None:
        """The guard and the primary on one side, replica and Sentinels on the other: a failover."""
        self._find_primary()
        old, heir = self.primary, self.replica
        self._while_cut(_SPLIT_SECONDS, (_OTHER_SIDE, old.port))
        # Who was cut off learns that it is a replica now, unless nobody was promoted in time.
        self._find_primary_among(old, heir)

    def _find_primary_among(self, old: RedisProcess, heir: RedisProcess) -> None:
        for _ in range(600):
            roles = {one.port: "slave" in _ask(one, "ROLE") for one in (old, heir)}
            if sum(roles.values()) == 1:
                primary = heir if roles[old.port] else old
                self._in_step(primary, old if primary is heir else heir)
                return
            time.sleep(0.1)
        msg = "after the partition there is not one primary and one replica"
        raise GuardError(msg)

    def cut_replica_off(self) -> None:
        """The replica does not reach the primary; nothing can be acknowledged meanwhile."""
        self._find_primary()
        self._while_cut(SETTLE, (_OTHER_SIDE, self.primary.port))

    def cut_sentinels_off(self) -> None:
        """Guard and agents do not reach the Sentinels."""
        self._while_cut(SETTLE, *((_GUARD_SIDE, one.port) for one in self.sentinels))

    def cut_upstream_off(self) -> None:
        """The guard does not reach the tool server."""
        self._while_cut(SETTLE, (_GUARD_SIDE, self._upstream_port))

    def cut_agents_off(self) -> None:
        """No agent reaches the guard."""
        self._while_cut(SETTLE, (_GUARD_SIDE, self.port))

    def _while_cut(self, seconds: float, *pairs: tuple[str, int]) -> None:
        try:
            for source, port in pairs:
                self._isolation.cut(source, port)
            time.sleep(seconds)
        finally:
            self._isolation.mend()

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
            self._find_primary_among(self.primary, self.replica)

    def _answers(self, server: RedisProcess) -> bool:
        """Return whether a server answers; start it where it has ended."""
        if server.is_running:
            with suppress(GuardError):
                return "PONG" in server.cli("PING")
            return False
        heir = self._other(server)
        if heir is not server and heir.is_running and "slave" not in _ask(heir, "ROLE"):
            self._come_back(server, heir)
        else:
            server.start()
        return False

    def state(self) -> dict[str, object]:
        """Return what an operator would look at where the guard does not serve."""
        found: dict[str, object] = {"guard": self._guard.said()[-800:]}
        for server in (self.primary, self.replica):
            with suppress(GuardError):
                found[str(server.port)] = _ask(server, "ROLE").split()
                persistence = _ask(server, "INFO", "persistence").split()
                found[f"{server.port} disk"] = [one for one in persistence if "status" in one]
            log = (server.directory / "log").read_text("utf-8", "replace")
            found[f"{server.port} log"] = [
                line for line in log.splitlines() if " # " in line or "ASSERT" in line
            ][-12:]
        lines = [line for _, line in _lines(self.audit)]
        found["last"] = [line.get("errors") or line.get("event") for line in lines[-3:]]
        return found

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """Every kind of fault that can be had here, by its name."""
        found: dict[str, Callable[[], None]] = {
            "worker kill -9": self.kill_worker,
            "worker SIGSTOP": self.stop_worker,
            "supervisor kill -9": self.kill_supervisor,
            "supervisor SIGSTOP": self.stop_supervisor,
            "redis primary SIGSTOP": self.stop_primary,
            "redis primary slow": self.slow_redis,
            "redis connections cut": self.cut_connections,
            "upstream kill -9": self.kill_upstream,
            "upstream SIGSTOP": self.stop_upstream,
            "upstream slow": self.slow_upstream,
            "upstream certificate expired": self.expire_certificate,
            "poisoned reload": self.poison_policy,
        }
        if self.sentinels:
            found |= {
                "redis primary kill -9, failover": self.kill_primary,
                "redis replica kill -9": self.kill_replica,
                "redis replica SIGSTOP": self.stop_replica,
                "sentinel kill -9": self.kill_sentinel,
                "sentinel SIGSTOP": self.stop_sentinel,
            }
        else:
            found["redis kill -9, restart"] = self.kill_redis
        if self._clock.environment:
            found["clock jumps"] = self.jump_clock
        if self._isolation.has_network:
            found |= {
                "partition guard | primary": self.cut_guard_from_redis,
                "partition guard | upstream": self.cut_upstream_off,
                "partition agents | guard": self.cut_agents_off,
            }
        if self._isolation.has_network and self.sentinels:
            found |= {
                BEHIND: self.kill_primary_ahead,
                "partition guard, primary | replica, sentinels": self.cut_primary_off,
                "partition primary | replica": self.cut_replica_off,
                "partition guard | sentinels": self.cut_sentinels_off,
            }
        if self._isolation.has_mounts:
            found |= {
                f"disk full under {name}": partial(self.fill_disk, name)
                for name in ("audit", "redis", "recordings")
            }
        return found

    # --- what its sides saw --------------------------------------------------------------------

    def seen(self, asked: dict[str, str], refusals: dict[str, Event]) -> list[Event]:
        """Return what the upstream and the audit log saw.

        Args:
            asked: receiver of each call.
            refusals: what agents saw of refused calls, by decision id.
        """
        found = [
            Event(
                line["at"], Saw.RECEIVED, line["call"], line["principal"], line["to"], line["audit"]
            )
            for _, line in _lines(self.directory / "upstream.jsonl")
        ]
        for end, line in _lines(self.audit):
            told = refusals.get(line.get("decision_id", ""))
            if line.get("event") == "guard.unreadable" and told is not None:
                at = datetime.fromisoformat(line["at"]).timestamp()
                found.append(Event(at, Saw.NOTED, told.call, told.principal, mark=end))
            if line.get("event") != "guard.decision":
                continue
            call, at = line["session"], datetime.fromisoformat(line["at"]).timestamp()
            saw = _verdict(line)
            to = asked.get(call, "") if saw is Saw.GRANTED else ""
            found.append(Event(at, saw, call, line["principal"], to, end))
        return found

    def noticed(self) -> Counter[str]:
        """Return how often the guard has noticed that labels are gone, by what it found."""
        lines = (line for _, line in _lines(self.audit))
        return Counter(
            line["loss"] for line in lines if line.get("event") == "guard.labels_incomplete"
        )

    def cut_short(self) -> int:
        """Return how many lines of the audit log are not whole.

        A process that is killed, or a disk that is full, may leave a piece of one.
        """
        return len(self.audit.read_bytes().splitlines()) - sum(1 for _ in _lines(self.audit))


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
    for _ in range(_ASKED - 1):
        with suppress(GuardError):
            return server.cli(*words)
        time.sleep(SETTLE / 4)
    return server.cli(*words)


def stopped(pid: int, seconds: float = SETTLE) -> None:
    """Stop a process for a while."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
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
    now = dt.datetime.now(dt.UTC)  # noqa: TID251  (of certificates that programs check)
    root = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "chaos authority")])
    root_key = ec.generate_private_key(ec.SECP256R1())

    def issue(
        name: x509.Name, public: ec.EllipticCurvePublicKey, end: dt.datetime, *, is_root: bool
    ) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(root)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=2))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
        )
        if not is_root:
            names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(root_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    days = dt.timedelta(days=1)
    authority = issue(root, root_key.public_key(), now + 30 * days, is_root=True)
    (directory / "authority.pem").write_bytes(authority)
    found = []
    for name, end in (("good", now + 30 * days), ("expired", now - days)):
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        private = key.private_bytes(*form, serialization.NoEncryption())
        chain = private + issue(leaf, key.public_key(), end, is_root=False)
        found.append(directory / f"{name}.pem")
        found[-1].write_bytes(chain)
        found[-1].chmod(0o600)
    return found[0], found[1]
