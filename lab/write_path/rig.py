"""Starts what the write-path benchmark needs: memory servers, a Redis, guards, and an agent."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from guard.processes import loopback
from guard.processes.loopback import Child, free_port
from guard.settings import Settings
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.embedded import EmbeddedRedis
from lab.wire import call_body, write_credentials
from lab.write_path.store import VectorMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POLICY: Final = Path(__file__).with_name("gate.yaml")
PRINCIPALS: Final = 1200
"""Agents the guards know; each trial is one of them, so that no trial lowers another's trust."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer that an agent gets for one call."""

    text: str
    is_error: bool
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Agent:
    """One agent that speaks MCP with one guard (or straight with a server)."""

    port: int
    secret: str = ""
    session: str = "s"
    _connection: http.client.HTTPConnection | None = None

    def call(self, tool: str, arguments: dict[str, Any]) -> Answer:
        """Call a tool and return what came back.

        Raises:
            OSError: the other side is gone.
        """
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "x-guard-session": self.session,
        }
        if self.secret:
            headers["proxy-authorization"] = f"Bearer {self.secret}"
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            self._connection.request("POST", "/mcp", call_body(tool, arguments), headers)
            text = self._connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._connection = None
            raise OSError(str(error)) from error
        result = json.loads(text).get("result", {})
        observation = (result.get("_meta") or {}).get("guard", {})
        codes = tuple(reason["code"] for reason in observation.get("reasons", []))
        shown = "\n".join(item.get("text", "") for item in result.get("content", []))
        failed = not result or bool(result.get("isError"))
        return Answer(shown + json.dumps(observation), failed, codes)

    def close(self) -> None:
        """End its connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Rig(loopback.Rig):
    """Everything that runs: memory servers, an embedded Redis, guards that know many agents."""

    def __init__(self) -> None:
        super().__init__()
        self._redis = EmbeddedRedis()
        self.secrets = [secrets.token_hex(8) for _ in range(PRINCIPALS)]
        self.stores: dict[str, VectorMemory] = {}
        self.server_ports: dict[str, int] = {}
        self.guard_ports: dict[str, int] = {}
        self.guards: dict[str, Child] = {}
        self.admin_ports: dict[str, int] = {}
        self.used = 0
        self.front_end = secrets.token_hex(16)
        """Credential of the prompt channel."""

    def __enter__(self) -> Self:
        agents = {f"agent{i}": secret for i, secret in enumerate(self.secrets)}
        write_credentials(self.directory / "agents.toml", agents)
        write_credentials(self.directory / "front_ends.toml", {"bench": self.front_end})
        (self.directory / "secret").write_text(secrets.token_hex(16), encoding="utf-8")
        self._redis.start()
        self.redis = self._redis.url
        return self

    def stop(self) -> None:
        """End every process and the Redis."""
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

    def agent(self, guard: str, principal: int | None = None) -> Agent:
        """Return an agent that nobody has been before, or the one of a number."""
        if principal is None:
            principal = self.used
            self.used += 1
        return Agent(self.guard_ports[guard], self.secrets[principal % len(self.secrets)])

    def say(self, guard: str, principal: str, session: str, text: str) -> None:
        """Say a text to an agent, as its front end tells a guard."""
        body = json.dumps({"principal": principal, "session": session, "text": text}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin_ports[guard]}/v1/prompts",
            body,
            {"content-type": "application/json", "authorization": f"Bearer {self.front_end}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  (loopback)
            answer.read()

    def memory_server(self, name: str, *, protected: bool) -> None:
        """Start a memory server on a file of its own."""
        database = self.directory / f"{name}.sqlite"
        secret = ("--secret-file", str(self.directory / "secret")) if protected else ()
        module = "lab.write_path.server"
        self.server_ports[name] = self.server(module, "--db", str(database), *secret)
        self.stores[name] = VectorMemory(database)

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
            Its directory.
        """
        listen = port or free_port()
        place = self.directory / f"{name}-{secrets.token_hex(4)}"
        place.mkdir()
        credentials = place / "write.toml"
        credentials.write_text(
            f'["127.0.0.1:{listen}"]\nheader = "authorization"\nprefix = "Bearer "\n'
            f'secret_file = "{self.directory / "secret"}"\n',
            encoding="utf-8",
        )
        admin = self.admin_ports[name] = free_port()
        settings = Settings(
            policy=[policy],
            reverse=[f"127.0.0.1:{listen}=http://127.0.0.1:{upstream}"],
            admin=f"127.0.0.1:{admin}",
            prompt_credentials=self.directory / "front_ends.toml",
            label_key=self.directory / "label.key",
            audit=place / "audit.jsonl",
            credentials=self.directory / "agents.toml",
            write_credentials=credentials,
            state_timeout=2.0,
            owner=owner,
        )
        optimise = () if point else ("-OO",)
        command = (
            *optimise,
            "-m",
            "guard.runtime.worker",
            str(os.getpid()),
            str(place),
            self.redis,
        )
        worker = self.guards[name] = self.start(place.name, *command, *([point] if point else []))
        if worker.process.stdin is not None:
            worker.process.stdin.write(settings.model_dump_json().encode() + b"\n")
            worker.process.stdin.close()
        self.guard_ports[name] = listen
        worker.wait_ready()
        return place


def variant(rig_: Rig, name: str, replace: dict[str, str]) -> Path:
    """Return the benchmark's policy with some text replaced, as a file."""
    text = POLICY.read_text(encoding="utf-8")
    for old, new in replace.items():
        text = text.replace(old, new)
    path = rig_.directory / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def ungated(rig_: Rig) -> Path:
    """Return the benchmark's policy without its ``memory`` section."""
    text = POLICY.read_text(encoding="utf-8")
    head, _, rest = text.partition("memory:\n")
    path = rig_.directory / "ungated.yaml"
    path.write_text(head + "rules:\n" + rest.partition("rules:\n")[2], encoding="utf-8")
    return path
