"""Starts what the write-path benchmark needs: memory servers, a Redis, guards, and an agent."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.free_ports import free_port
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.core.errors import GuardError
from guard.lab.write_path.store import VectorMemory
from guard.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY: Final = Path(__file__).with_name("gate.yaml")
PRINCIPALS: Final = 1200
"""Agents the guards know; each trial is one of them, so that no trial lowers another's trust."""
START_LINES: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent gets back for one call."""

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
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
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
            self._connection.request("POST", "/mcp", json.dumps(message), headers)
            text = self._connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._connection = None
            raise OSError(str(error)) from error
        result = json.loads(text).get("result", {})
        told = (result.get("structuredContent") or {}).get("guard", {})
        codes = tuple(reason["code"] for reason in told.get("reasons", []))
        shown = "\n".join(item.get("text", "") for item in result.get("content", []))
        failed = not result or bool(result.get("isError"))
        return Answer(shown + json.dumps(told), failed, codes)


@dataclass(slots=True)
class Rig:
    """Everything that runs."""

    directory: Path
    redis: str
    secrets: list[str]
    stack: ExitStack
    stores: dict[str, VectorMemory] = field(default_factory=dict)
    server_ports: dict[str, int] = field(default_factory=dict)
    guard_ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    admin_ports: dict[str, int] = field(default_factory=dict)
    used: int = 0
    front_end: str = field(default_factory=lambda: secrets.token_hex(16))
    """Credential of the prompt channel."""

    def agent(self, guard: str, principal: int | None = None) -> Agent:
        """Return an agent that nobody has been before, or the one of a number."""
        if principal is None:
            principal = self.used
            self.used += 1
        return Agent(self.guard_ports[guard], self.secrets[principal % len(self.secrets)])

    def server(self, name: str, *, protected: bool) -> None:
        """Start a memory server on a file of its own."""
        database = self.directory / f"{name}.sqlite"
        command = [sys.executable, "-m", "guard.lab.write_path.server", "--db", str(database)]
        if protected:
            command += ["--secret-file", str(self.directory / "secret")]
        process = subprocess.Popen(  # noqa: S603  (our own module)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.stack.callback(_stop, process)
        if process.stdout is None:
            msg = "the memory server has no output"
            raise GuardError(msg)
        self.server_ports[name] = int(process.stdout.readline() or 0)
        self.stores[name] = VectorMemory(database)

    def responder(self) -> int:
        """Start an upstream that only answers; return its port."""
        process = subprocess.Popen(
            [sys.executable, "-m", "guard.lab.bench_upstream"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.stack.callback(_stop, process)
        if process.stdout is None:
            msg = "the upstream has no output"
            raise GuardError(msg)
        return int(process.stdout.readline())

    def guard(
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
        front_ends = place / "front_ends.toml"
        digest = hashlib.sha256(self.front_end.encode()).hexdigest()
        front_ends.write_text(f'bench = "{digest}"\n', encoding="utf-8")
        admin = self.admin_ports[name] = free_port()
        settings = Settings(
            policy=[policy],
            reverse=[f"127.0.0.1:{listen}=http://127.0.0.1:{upstream}"],
            admin=f"127.0.0.1:{admin}",
            prompt_credentials=front_ends,
            label_key=self.directory / "label.key",
            audit=place / "audit.jsonl",
            credentials=self.directory / "agents.toml",
            write_credentials=credentials,
            state_timeout=2.0,
            owner=owner,
        )
        optimise = [] if point else ["-O"]
        command = [sys.executable, *optimise, "-m", "guard.worker", str(os.getpid()), str(place)]
        command += [self.redis, *([point] if point else [])]
        log = (place / "log").open("wb")
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log)  # noqa: S603  (ours)
        self.stack.callback(log.close)
        self.stack.callback(_stop, process)
        if process.stdin is not None:
            process.stdin.write(settings.model_dump_json().encode() + b"\n")
            process.stdin.close()
        self.processes[name] = process
        self.guard_ports[name] = listen
        _wait(place / "log", process)
        return place


@contextmanager
def rig() -> Iterator[Rig]:
    """Make the directory, the secrets and a Redis, and end everything with the block."""
    directory = Path(tempfile.mkdtemp(prefix="guard-write-path-"))
    agents = [secrets.token_hex(8) for _ in range(PRINCIPALS)]
    (directory / "secret").write_text(secrets.token_hex(16), encoding="utf-8")
    (directory / "agents.toml").write_text(
        "".join(
            f'agent{i} = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
            for i, secret in enumerate(agents)
        ),
        encoding="utf-8",
    )
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        redis = stack.enter_context(EmbeddedRedis())
        yield Rig(directory, redis.url, agents, stack)


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


def _wait(log: Path, process: subprocess.Popen[bytes]) -> None:
    import time

    for _ in range(START_LINES):
        if b"guard ready" in log.read_bytes():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    msg = f"a guard did not start: {log.read_text(encoding='utf-8', errors='replace')[-300:]}"
    raise GuardError(msg)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
