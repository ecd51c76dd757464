"""A real MCP memory server that asks writers for a credential, and guards in front of it."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from guard.processes.loopback import Child, free_port, start
from lab.write_path.store import VectorMemory
from tests.e2e.clients import call_tool
from tests.e2e.running_guard import (
    BEHIND_ENVOY,
    ROOT,
    Elsewhere,
    RunningGuard,
    secrets_file,
    start_guard,
)

POLICY = ROOT / "lab" / "write_path" / "gate.yaml"
AGENT, NEWCOMER = "agent", "newcomer"
"""Principals whose secrets are their names; no session of the second one reads anything."""
SECRET = "w" + "rite-" + "credential-0123456789"


@dataclass
class MemoryStage:
    """The server, its files, and the guards."""

    directory: Path
    server: Child
    port: int
    store: VectorMemory
    guards: list[RunningGuard] = field(default_factory=list)

    def guard(self, **options):
        """Start one more guard that holds the write credential."""
        write_secret = self.directory / "secret"
        extra = options.pop("options", ())
        directory = self.directory / f"guard{len(self.guards)}"
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
        agents = secrets_file(directory / "agents.toml", AGENT, NEWCOMER)
        guard = start_guard(
            directory,
            Elsewhere(self.port),
            policy=options.pop("policy", POLICY),
            options=("--write-credentials", str(file), "--credentials", agents, *extra),
            port=port,
            **options,
        )
        self.guards.append(guard)
        return guard

    def close(self):
        """Stop everything."""
        for guard in self.guards:
            guard.stop()
        self.server.stop()


@contextmanager
def memory_stage(directory):
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


call = partial(call_tool, proxy_authorization=f"Bearer {AGENT}")
"""Call of an agent with a credential of its own."""


def reasons(answer):
    """Return the reason codes of a refusal, nothing for an answer that is none."""
    told = answer["result"].get("_meta") or {}
    return [reason["code"] for reason in told.get("guard", {}).get("reasons", [])]
