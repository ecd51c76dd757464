"""The demo's files, and its processes on loopback, which end whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port

NOTES_POLICY: Final = """version: 1
name: notes
http_tools:
  - tool: notes.share
    method: [POST]
    url: http://127.0.0.1:{port}/v1/{{notebook}}/share
    body: json
tools:
  - match: [notes.share]
    role: send
    destinations: ["$.body.to"]
    body: ["$.body.text"]
    ignore: ["$.path.notebook"]
"""
"""Beside the shipped policy, whose rules match this tool as any other that sends."""
SERVERS: Final = ("mail", "memory", "notes")


class Via(StrEnum):
    """The way by which the planted address reaches the send."""

    MEMORY = "memory"
    DOCUMENT = "document"
    SESSION_SPLIT = "session-split"


class DemoError(GuardError):
    """The demo could not be played; says nothing about the guard's verdicts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running processes, as the agent reaches them: through the guard only."""

    mail_url: str
    memory_url: str
    notes_url: str


@dataclass(frozen=True, slots=True)
class Places:
    """The demo's files, all in one directory."""

    directory: Path
    policy: Path

    @property
    def audit(self) -> Path:
        """The guard's audit log."""
        return self.directory / "audit.jsonl"

    def database(self, name: str) -> Path:
        """Return the SQLite file of a server."""
        return self.directory / f"{name}.sqlite"


@contextmanager
def stage(places: Places) -> Iterator[Stage]:
    """Start the servers and the guard in front of them; stop them on the way out.

    Raises:
        GuardError: a process ended before it was ready, or took too long.
    """
    upstreams = {name: free_port() for name in SERVERS}
    listeners = {name: free_port() for name in SERVERS}
    # What makes the notes service's requests calls of tools; its port is known only now.
    notes_policy = places.directory / "notes.yaml"
    notes_policy.write_text(NOTES_POLICY.format(port=upstreams["notes"]), encoding="utf-8")
    # The memory gate would refuse to save the planted note: without it, the send is refused.
    open_policy = places.directory / places.policy.name
    text = places.policy.read_text(encoding="utf-8").replace("\nmemory: {}\n", "\n")
    open_policy.write_text(text, encoding="utf-8")
    options = [f"--policy={open_policy}", f"--policy={notes_policy}", "--redis=embedded"]
    # Nothing of it is kept, so it needs no state directory of its user's.
    options.append(f"--audit-key={places.directory / 'audit.key'}")
    with Rig(places.directory) as rig:
        # All at once: nobody needs another to start, and each takes seconds to load.
        servers = []
        for name, port in upstreams.items():
            words = (name, "--port", str(port), "--db", str(places.database(name)))
            servers.append(rig.begin_server("guard.demo.servers", *words))
            options.append(f"--reverse=127.0.0.1:{listeners[name]}=http://127.0.0.1:{port}")
        guard = rig.begin_guard(*options)
        for server in servers:
            server.printed_port()
        guard.wait_ready()
        urls = [f"http://127.0.0.1:{port}" for port in listeners.values()]
        yield Stage(f"{urls[0]}/mcp", f"{urls[1]}/mcp", f"{urls[2]}/v1")
