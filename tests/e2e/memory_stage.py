"""A real MCP memory server that asks writers for a credential, and guards in front of it."""

from __future__ import annotations

import hashlib
import http.client
import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from guard.processes.loopback import Child, free_port, start
from lab.write_path.store import VectorMemory
from tests.e2e.running_guard import BEHIND_ENVOY, ROOT, RunningGuard, start_guard

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICY = ROOT / "lab" / "write_path" / "gate.yaml"
AGENT = "the-agents-" + "own-secret"
NEWCOMER = "a-newcomers-" + "own-secret"
"""Of an agent whose sessions have read nothing; who calls with it must not read either."""
SECRET = "w" + "rite-" + "credential-0123456789"


@dataclass
class MemoryStage:
    """The server, its files, and the guards."""

    directory: Path
    server: Child
    port: int
    store: VectorMemory
    guards: list[RunningGuard] = field(default_factory=list)
    redis: str = ""

    def guard(self, **options: Any) -> RunningGuard:
        """Start one more guard that holds the write credential."""
        name = f"guard{len(self.guards)}"
        write_secret = self.directory / "secret"
        upstream: Any = SimpleNamespace(port=self.port)
        extra = options.pop("options", ())
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        file = directory / "write.toml"
        # The listener's name is known only once its port is: the guard reads the file at start.
        port = free_port()
        listener = f"decide:s{port}" if BEHIND_ENVOY else f"127.0.0.1:{port}"
        file.write_text(
            f'["{listener}"]\nheader = "authorization"\nprefix = "Bearer "\n'
            f'secret_file = "{write_secret}"\n',
            encoding="utf-8",
        )
        agents = directory / "agents.toml"
        secrets = {"agent": AGENT, "newcomer": NEWCOMER}
        agents.write_text(
            "".join(
                f'{name} = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
                for name, secret in secrets.items()
            ),
            encoding="utf-8",
        )
        guard = start_guard(
            directory,
            upstream,
            policy=options.pop("policy", POLICY),
            options=("--write-credentials", str(file), "--credentials", str(agents), *extra),
            port=port,
            **options,
        )
        self.guards.append(guard)
        return guard

    def close(self) -> None:
        """Stop everything."""
        for guard in self.guards:
            guard.stop()
        self.server.stop()


@contextmanager
def memory_stage(directory: Path) -> Iterator[MemoryStage]:
    """Start the memory server."""
    (directory / "secret").write_text(SECRET, encoding="utf-8")
    command = ["-m", "lab.write_path.server", "--db", str(directory / "memory.sqlite")]
    command += ["--secret-file", str(directory / "secret")]
    server = start(directory / "server.log", *command, read=True)
    port = server.printed_port()
    stage = MemoryStage(directory, server, port, VectorMemory(directory / "memory.sqlite"))
    try:
        yield stage
    finally:
        stage.close()


def call(
    port: int, tool: str, arguments: dict[str, Any], session: str = "s", **headers: str
) -> dict[str, Any]:
    """Call a tool as an agent does and return the JSON-RPC answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    sent = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "x-guard-session": session,
        "proxy-authorization": f"Bearer {AGENT}",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    connection.request("POST", "/mcp", json.dumps(message), sent)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def reasons(answer: dict[str, Any]) -> list[str]:
    """Return the reason codes of a refusal, nothing for an answer that is none."""
    told = answer["result"].get("_meta") or {}
    return [reason["code"] for reason in told.get("guard", {}).get("reasons", [])]
