"""Processes of the memory benches: a Redis, guards whose agents have credentials, a memory."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx

from guard.processes import loopback
from guard.processes.loopback import Child, free_port
from guard.settings import Settings
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.embedded import EmbeddedRedis
from lab.wire import Wire, credentials, secret_of
from lab.write_path.store import VectorMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from guard.core.model import Json

POLICY: Final = Path(__file__).with_name("gate.yaml")
FRONT_END: Final = "bench"
PRINCIPALS: Final = tuple(f"agent{number}" for number in range(1200))
"""Agents the guards know; each trial is one of them, so that no trial lowers another's trust."""


@dataclass(slots=True)
class Agent:
    """One agent that speaks with one guard, in a session."""

    wire: Wire
    name: str
    session: str = "s"

    def call(self, tool: str, arguments: Mapping[str, Json]) -> dict[str, Any]:
        """Call a tool and return its result."""
        return self.wire.call(self.name, self.session, tool, arguments)


class Rig(loopback.Rig):
    """An embedded Redis, guards in front of servers, and at most one vector memory.

    Args:
        agents: names of the principals that the guards know.
    """

    def __init__(self, agents: Iterable[str] = PRINCIPALS) -> None:
        super().__init__()
        self._redis = EmbeddedRedis()
        self._agents = tuple(agents)
        self._fresh = iter(self._agents)
        self._admin_ports: dict[str, int] = {}
        self.wires: dict[str, Wire] = {}
        """Calls through each guard, by its name."""
        self.guards: dict[str, Child] = {}

    def __enter__(self) -> Self:
        credentials(self.directory, *self._agents)
        credentials(self.directory, FRONT_END, file="front_ends.toml")
        (self.directory / "secret").write_text(secrets.token_hex(16), encoding="utf-8")
        self._redis.start()
        self.redis = self._redis.url
        return self

    def stop(self) -> None:
        """End every process and the Redis."""
        for wire in self.wires.values():
            wire.close()
        super().stop()
        self._redis.stop()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RedisClient]:
        """Yield a connection to the guards' state."""
        client = RedisClient(parse_endpoint(self.redis), timeout=5.0)
        try:
            yield client
        finally:
            await client.aclose()

    def fresh(self) -> str:
        """Return the name of an agent that nobody has been before."""
        return next(self._fresh)

    def agent(self, guard: str, name: str = "") -> Agent:
        """Return an agent that nobody has been before, or the one of a name."""
        return Agent(self.wires[guard], name or self.fresh())

    def say(self, guard: str, agent: Agent, text: str) -> None:
        """Say a text to an agent, as its front end tells a guard."""
        httpx.post(
            f"http://127.0.0.1:{self._admin_ports[guard]}/v1/prompts",
            json={"principal": agent.name, "session": agent.session, "text": text},
            headers={"authorization": f"Bearer {secret_of(FRONT_END)}"},
            timeout=30,
            trust_env=False,
        ).raise_for_status()

    def memory(self, *, is_protected: bool = True) -> int:
        """Start the vector memory and return its port; a protected one takes guarded writes."""
        database = self.directory / "memory.sqlite"
        secret = ("--secret-file", str(self.directory / "secret")) if is_protected else ()
        self.memory_port = self.server("lab.write_path.server", "--db", str(database), *secret)
        self.store = VectorMemory(database)
        return self.memory_port

    def worker(
        self,
        name: str,
        policy: Path,
        *,
        upstream: int,
        point: str = "",
        port: int | None = None,
        owner: str = "",
    ) -> Path:
        """Start a worker as the supervisor does; with a fault point, one that dies there.

        Returns:
            Its audit log.
        """
        listen = port or free_port()
        place = self.directory / f"{name}-{secrets.token_hex(4)}"
        place.mkdir()
        write_credentials = place / "write.toml"
        write_credentials.write_text(
            f'["127.0.0.1:{listen}"]\nheader = "authorization"\nprefix = "Bearer "\n'
            f'secret_file = "{self.directory / "secret"}"\n',
            encoding="utf-8",
        )
        admin = self._admin_ports[name] = free_port()
        settings = Settings(
            policy=[policy],
            reverse=[f"127.0.0.1:{listen}=http://127.0.0.1:{upstream}"],
            admin=f"127.0.0.1:{admin}",
            prompt_credentials=self.directory / "front_ends.toml",
            label_key=self.directory / "label.key",
            audit=place / "audit.jsonl",
            credentials=self.directory / "agents.toml",
            write_credentials=write_credentials,
            state_timeout=2.0,
            owner=owner,
        )
        # A fault point is compiled in without optimisation only.
        command = [*(() if point else ("-OO",)), "-m", "guard.runtime.worker", str(os.getpid())]
        command += [str(place), self.redis, *([point] if point else [])]
        worker = self.guards[name] = self.start(place.name, *command)
        if worker.process.stdin is not None:
            worker.process.stdin.write(settings.model_dump_json().encode() + b"\n")
            worker.process.stdin.close()
        worker.wait_ready()
        self.wires[name] = Wire(listen)
        return place / "audit.jsonl"

    def variant(self, name: str, policy: str) -> Path:
        """Return a policy as a file."""
        path = self.directory / f"{name}.yaml"
        path.write_text(policy, encoding="utf-8")
        return path


def events(audit: Path, name: str) -> list[dict[str, Json]]:
    """Return the lines of an event in an audit log."""
    lines = map(json.loads, audit.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line.get("event") == name]
