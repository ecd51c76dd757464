"""``guard lab bench chaos``: 16 agents work while parts are killed, stopped and cut off.

One guard (supervisor and worker), a primary and a replica under three Sentinels with durability
``replicated``, one tool server.  The order of faults comes from a seed.  Agents read pages that
name an outside address, write to people inside, and write to addresses that they have read; the
policy lets them write to strangers, so a label that is lost becomes a mail that leaves.
Afterwards :func:`guard.lab.chaos.history.violations` reads what all sides saw.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import signal
import statistics
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.loopback import Rig, free_port
from guard.core.errors import GuardError
from guard.lab.chaos.history import Event, Saw, Violation, violations
from guard.lab.redis_servers import SERVICE, RedisServers
from guard.replay.reports import Check, Report, machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.adapters.loopback import Child
    from guard.lab.redis_servers import RedisProcess

AGENTS: Final = 16
POLICY: Final = Path(__file__).with_name("policy.yaml")
_SERVE_SECONDS: Final = 60.0
_DOWN_MILLISECONDS: Final = 1500
"""Silence after which Sentinels begin a failover; a busy machine is silent for a while, too."""
_POLL: Final = 0.05
_PAUSE: Final = 0.4
"""Seconds that a stopped process stays stopped, and that all work between two faults."""
_NOW: Final = time.time  # noqa: TID251  (the sides are joined by the machine's clock)


class Agent(threading.Thread):
    """One principal that reads and writes until told to stop.

    Args:
        name: of the principal; its secret is made of it.
        port: of the guard.
        seed: of what it does.
        stop: set when it is to end.
    """

    def __init__(self, name: str, port: int, seed: int, stop: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.events: list[Event] = []
        self._port = port
        self._random = random.Random(seed)  # noqa: S311  (a schedule, no secret)
        self._stop_asked = stop
        self._read: list[str] = []
        self._calls = 0

    def run(self) -> None:
        """Work."""
        while not self._stop_asked.is_set():
            self.step()
            time.sleep(0.01)

    def step(self) -> None:
        """Make one call of a kind that is drawn."""
        kind = self._random.random()
        if kind < 0.4 or not self._read:
            name = self._next()
            address = f"x-{name}@evil.test"
            if self.call(name, "rag_query", {"query": self.name}, address) is Saw.READ:
                self._read.append(address)
        else:
            inside = kind < 0.6
            to = "bob@example.com" if inside else self._random.choice(self._read)
            self.call(self._next(), "send_email", {"to": to, "body": self.name}, to)

    def send_inside(self) -> bool:
        """Return whether a mail inside went through."""
        words = {"to": "bob@example.com", "body": self.name}
        return self.call(self._next(), "send_email", words, words["to"]) is Saw.DONE

    def call(self, name: str, tool: str, words: dict[str, str], to: str) -> Saw:
        """Make one call on a connection of its own; return what was seen of its end."""
        self.events.append(Event(_NOW(), Saw.ASKED, name, self.name, to))
        saw = Saw.FAILED
        with suppress(OSError, http.client.HTTPException, ValueError):
            saw = _outcome(self._exchange(name, tool, words), tool)
        self.events.append(Event(_NOW(), saw, name, self.name, to))
        return saw

    def _next(self) -> str:
        self._calls += 1
        return f"{self.name}-{self._calls}"

    def _exchange(self, name: str, tool: str, words: dict[str, str]) -> dict[str, object]:
        params = {"name": tool, "arguments": words}
        body = {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "proxy-authorization": f"Bearer {_secret(self.name)}",
            "x-guard-session": name,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("POST", "/mcp", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer if isinstance(answer, dict) else {}


def _secret(name: str) -> str:
    return f"secret of {name}"


def _outcome(answer: dict[str, object], tool: str) -> Saw:
    result = answer.get("result")
    if not isinstance(result, dict):
        return Saw.FAILED
    if result.get("isError"):
        return Saw.REFUSED if "guard" in (result.get("_meta") or {}) else Saw.FAILED
    return Saw.READ if tool == "rag_query" else Saw.DONE


class Stage(Rig):
    """Everything that runs, and how to break and mend it."""

    def __init__(self) -> None:
        super().__init__()
        self._redis = RedisServers(self.directory / "redis")
        self.port, self._upstream_port, self._admin = free_port(), free_port(), free_port()
        self.policy = self.directory / "policy.yaml"
        self.policy.write_text(POLICY.read_text(encoding="utf-8"), encoding="utf-8")
        names = [*(f"agent{n}" for n in range(AGENTS)), "probe"]
        (self.directory / "agents.toml").write_text(
            "".join(
                f'{name} = "{hashlib.sha256(_secret(name).encode()).hexdigest()}"\n'
                for name in names
            ),
            encoding="utf-8",
        )

    def begin(self) -> None:
        """Start everything."""
        options = ("appendonly yes", "maxmemory-policy noeviction")
        self.primary, self.replica, self.sentinels = self._redis.watched(
            *options, down_after=_DOWN_MILLISECONDS
        )
        self._start_upstream()
        self._start_guard()

    def stop(self) -> None:
        """End everything."""
        super().stop()
        self._redis.__exit__()

    def _start_upstream(self) -> None:
        words = (
            "--port",
            str(self._upstream_port),
            "--log",
            str(self.directory / "upstream.jsonl"),
        )
        self._upstream = self.start("upstream", "-m", "guard.lab.chaos.upstream", *words)
        self._upstream.wait_listening(self._upstream_port)

    def _start_guard(self) -> None:
        self._guard: Child = self.begin_guard(
            *("--policy", str(self.policy), "--redis", self._redis.url),
            *("--reverse", f"127.0.0.1:{self.port}=http://127.0.0.1:{self._upstream_port}"),
            *("--credentials", str(self.directory / "agents.toml")),
            *("--durability", "replicated", "--state-timeout", "1", "--heartbeat", "2"),
            *("--reload", "0.2"),
            admin=self._admin,
        )
        self._guard.wait_ready()

    def _worker(self) -> int:
        """Return the process id of the worker, a child of the supervisor."""
        boss = self._guard.process.pid
        children = Path(f"/proc/{boss}/task/{boss}/children")
        for child in children.read_text(encoding="ascii").split():
            if b"guard.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        msg = "the guard has no worker"
        raise GuardError(msg)

    def kill_worker(self) -> None:
        """Kill -9; the supervisor starts another."""
        os.kill(self._worker(), signal.SIGKILL)

    def stop_worker(self) -> None:
        """SIGSTOP and SIGCONT, shorter than the heartbeat allows."""
        _stopped(self._worker())

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

    def kill_primary(self) -> None:
        """Kill -9; the replica is promoted, and the dead server comes back as its replica."""
        for server in (self.primary, self.replica):
            # Sentinels may have changed roles by themselves while something was stopped.
            if "slave" not in server.cli("ROLE"):
                self.primary, self.replica = server, self._other(server)
        dead, heir = self.primary, self.replica
        dead.kill()
        heir.wait_for("role:master", "INFO", "replication")
        (dead.directory / "redis.conf").unlink()
        kept = tuple(line for line in dead.options if not line.startswith("replicaof"))
        dead.options = (*kept, f"replicaof 127.0.0.1 {heir.port}")
        dead.start()
        heir.wait_for("state=online", "INFO", "replication")
        self.primary, self.replica = heir, dead
        for sentinel in self.sentinels:
            sentinel.wait_for(str(heir.port), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)

    def _other(self, server: RedisProcess) -> RedisProcess:
        return self.replica if server is self.primary else self.primary

    def stop_primary(self) -> None:
        """SIGSTOP and SIGCONT, too short for a failover."""
        _stopped(self.primary.pid, _PAUSE / 2)

    def stop_replica(self) -> None:
        """SIGSTOP and SIGCONT; meanwhile nothing can be acknowledged."""
        _stopped(self.replica.pid)

    def stop_sentinel(self) -> None:
        """SIGSTOP and SIGCONT of the one that is asked first."""
        _stopped(self.sentinels[0].pid)

    def cut_connections(self) -> None:
        """Close every connection of the guard to Redis at once."""
        self.primary.cli("CLIENT", "KILL", "TYPE", "normal")

    def kill_upstream(self) -> None:
        """Kill -9, and start it again."""
        self._upstream.process.kill()
        self._upstream.process.wait()
        self._start_upstream()

    def stop_upstream(self) -> None:
        """SIGSTOP and SIGCONT."""
        _stopped(self._upstream.process.pid)

    def poison_policy(self) -> None:
        """A policy that is cut off in the middle is put in place, then the whole one again."""
        whole = self.policy.read_text(encoding="utf-8")
        for text in (whole[: len(whole) // 2] + "\n  - id:", whole):
            fresh = self.policy.with_suffix(".new")
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self.policy)
            time.sleep(_PAUSE)

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """Every kind of fault by its name."""
        return {
            "worker kill -9": self.kill_worker,
            "worker SIGSTOP": self.stop_worker,
            "supervisor kill -9": self.kill_supervisor,
            "redis primary kill -9, failover": self.kill_primary,
            "redis primary SIGSTOP": self.stop_primary,
            "redis replica SIGSTOP": self.stop_replica,
            "sentinel SIGSTOP": self.stop_sentinel,
            "redis connections cut": self.cut_connections,
            "upstream kill -9": self.kill_upstream,
            "upstream SIGSTOP": self.stop_upstream,
            "poisoned reload": self.poison_policy,
        }

    def seen_elsewhere(self) -> list[Event]:
        """Return what the upstream and the audit log saw."""
        found = [
            Event(line["at"], Saw.RECEIVED, line["call"], line["principal"], line["to"])
            for line in _lines(self.directory / "upstream.jsonl")
        ]
        for line in _lines(self.audit):
            if line.get("event") != "guard.decision":
                continue
            saw = Saw.ALLOWED if line["enforced"] == "allow" else Saw.STOPPED
            at = datetime.fromisoformat(line["at"]).timestamp()
            found.append(Event(at, saw, line["session"], line["principal"]))
        return found


def _stopped(pid: int, seconds: float = _PAUSE) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a log; a process that is killed may leave a piece of one."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def bench_chaos(
    *, faults: int, seed: int, progress: Callable[[str, float], object] = lambda _, __: None
) -> Report:
    """Break things and check what happened.

    Args:
        faults: how many; every kind comes equally often.
        seed: of their order and of what agents do.
        progress: told what is being broken, and which share is done.

    Raises:
        GuardError: the guard, or what is around it, does not come back.
    """
    drawn = random.Random(seed)  # noqa: S311  (a schedule, no secret)
    back: dict[str, list[float]] = defaultdict(list)
    stop = threading.Event()
    with Stage() as stage:
        stage.begin()
        kinds = list(stage.faults) * (faults // len(stage.faults) + 1)
        schedule = kinds[:faults]
        drawn.shuffle(schedule)
        agents = [Agent(f"agent{n}", stage.port, seed + n, stop) for n in range(AGENTS)]
        probe = Agent("probe", stage.port, seed, stop)
        for agent in agents:
            agent.start()
        for number, kind in enumerate(schedule):
            progress(f"{number + 1} of {faults}: {kind}", number / faults)
            time.sleep(_PAUSE)
            began = time.monotonic()
            stage.faults[kind]()
            _until_served(probe, kind)
            back[kind].append(time.monotonic() - began)
        stop.set()
        for agent in agents:
            agent.join()
        events = [event for agent in (*agents, probe) for event in agent.events]
        events += stage.seen_elsewhere()
    return _report(events, back, seed)


def _until_served(probe: Agent, kind: str) -> None:
    deadline = time.monotonic() + _SERVE_SECONDS
    while not probe.send_inside():
        if time.monotonic() > deadline:
            msg = f"after `{kind}` the guard did not serve again"
            raise GuardError(msg)
        time.sleep(_POLL)


def _report(events: list[Event], back: dict[str, list[float]], seed: int) -> Report:
    found = violations(events)
    kinds = Counter(event.saw.value for event in events)
    count = sum(map(len, back.values()))
    lost = [one for one in found if one.rule in {"audit_line_lost", "tainted_became_clean"}]
    failover = back.get("redis primary kill -9, failover", [])
    calls = kinds[Saw.ASKED.value]
    return Report(
        name="chaos",
        machine=machine(),
        checks=[
            Check(id="chaos_violations", value=len(found), unit="count", n=calls, target="= 0"),
            Check(id="chaos_faults", value=count, unit="count", n=len(back)),
            Check(id="lost_acknowledged", value=len(lost), unit="count", n=calls, target="= 0"),
            Check(
                id="failover_seconds",
                value=statistics.median(failover) if failover else None,
                unit="seconds",
                n=len(failover),
                reason=None if failover else "no failover was drawn",
            ),
        ],
        details={
            "seed": seed,
            "violations": [_told(one) for one in found[:100]],
            "events": dict(kinds),
            "seconds_to_serve_again": {
                kind: {
                    "n": len(times),
                    "median": round(statistics.median(times), 2),
                    "max": round(max(times), 2),
                }
                for kind, times in sorted(back.items())
            },
        },
    )


def _told(violation: Violation) -> dict[str, str]:
    return {"rule": violation.rule, "call": violation.call}
