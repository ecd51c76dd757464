"""``guard lab bench console --part elicitation``: elicitation through every SDK's client.

Each installed client of ``tests/conformance/elicitation`` makes the same calls behind a real guard,
and whoever sits at it accepts, declines, dismisses the form, or is too slow.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.loopback import Rig, free_port
from guard.core.errors import GuardError
from guard.replay.reports import Check
from guard.settings import child_environment

if TYPE_CHECKING:
    from pathlib import Path

HOLD: Final = 12
"""Seconds for which a call is held."""
SECONDS: Final = 90.0
"""For one call of a client, or for its start."""
POLICY: Final = f"""version: 1
name: elicit
approvals: {{own: allow}}
tools:
  - match: [echo]
    role: send
    destinations: ["$.text", "$.words"]
ask:
  hold: {HOLD}s
  elicit:
    - by: form
      principals: [p0, p1, p2, p3, p4, p5, p6]
      rules: [ask-unknown, ask-unmapped, recall-before-unknown-send, suspicious-unknown-send]
"""
CASES: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "accepted": ({"action": "accept", "content": {"approve": True}}, ""),
    "declined": ({"action": "decline"}, "approval_denied"),
    "cancelled": ({"action": "cancel"}, "approval"),
    "timed out": ({"action": "cancel", "seconds": HOLD + 2}, "approval"),
}
"""How a person answers, and what the model is told then; empty where the call goes out."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client, the environment it runs in, and whether it speaks revision 2026-07-28."""

    name: str
    environment: str
    program: str
    is_modern: bool = False


CLIENTS: Final = (
    Client("mcp 1 (Python)", "here", "mcp1.py"),
    Client("mcp 2 (Python)", "mcp2", "mcp2.py", is_modern=True),
    Client("fastmcp 2", "fastmcp2", "fastmcp_client.py"),
    Client("fastmcp 3", "fastmcp3", "fastmcp_client.py"),
    Client("fastmcp 4", "fastmcp4", "fastmcp_client.py"),
    Client("@modelcontextprotocol/sdk 1", "node", "ts1.mjs"),
    Client("@modelcontextprotocol/client 2", "node", "ts2.mjs", is_modern=True),
)


def elicitation(policy: Path, suite: Path) -> tuple[list[Check], dict[str, Any]]:
    """Play every case with every client; return the check and what each made of it.

    Args:
        policy: of the guard, besides :data:`POLICY`.
        suite: ``tests/conformance``, with the environments that ``make conformance`` makes.

    Raises:
        GuardError: the guard, or a client that is installed, did not start.
    """
    told: dict[str, Any] = {}
    right = played = 0
    with ExitStack() as stack:
        rig = stack.enter_context(Rig())
        more = rig.directory / "elicit.yaml"
        more.write_text(POLICY, encoding="utf-8")
        older = rig.server("guard.lab.fixture_server")
        newer = rig.server("guard.lab.modern_server")
        ports = {client.name: free_port() for client in CLIENTS}
        options = ["--policy", str(policy.resolve()), "--policy", str(more)]
        for number, client in enumerate(CLIENTS):
            # What one has read changes nothing of what another is asked.
            listener = f"p{number}@127.0.0.1:{ports[client.name]}"
            upstream = newer if client.is_modern else older
            options += ["--reverse", f"{listener}=http://127.0.0.1:{upstream}"]
        rig.begin_guard(*options).wait_ready()
        for client in CLIENTS:
            program = _program(suite, client.environment)
            if program is None:
                told[client.name] = "not installed: `make conformance` does"
                continue
            url = f"http://127.0.0.1:{ports[client.name]}/mcp"
            told[client.name] = found = _played([program, str(_script(suite, client)), url])
            played += len(found)
            right += sum(not problem for problem in found.values())
    check = Check(id="elicitation", value=right, unit="cases", n=played, target=f"== {played}")
    return [check], told


def _script(suite: Path, client: Client) -> Path:
    return suite.resolve() / "elicitation" / client.program


def _program(suite: Path, environment: str) -> str | None:
    """Return the interpreter of an environment, None where it is not installed."""
    if environment == "here":
        return sys.executable
    path = suite.resolve() / ".environments" / environment / "bin" / "python"
    if environment == "node":
        path = suite.resolve() / "node_modules" / "node" / "bin" / "node"
    return str(path) if path.exists() else None


def _played(command: list[str]) -> dict[str, str]:
    """Return the problem of each case, empty where there is none."""
    process = subprocess.Popen(  # noqa: S603  (our own scripts)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**child_environment([]), "NODE_USE_ENV_PROXY": "0"},
    )
    try:
        _line(process, command)
        found: dict[str, str] = {}
        for number, (case, (step, words)) in enumerate(CASES.items()):
            to = f"{command[-2].rpartition('/')[2].partition('.')[0]}{number}@partner.test"
            said = {**step, "to": to}
            if process.stdin is not None:
                process.stdin.write(json.dumps(said).encode() + b"\n")
                process.stdin.flush()
            found[case] = _problem(json.loads(_line(process, command)), to, words)
        return found
    finally:
        process.kill()
        process.wait()


def _line(process: subprocess.Popen[bytes], command: list[str]) -> bytes:
    """Return what a client prints next.

    Raises:
        GuardError: it ended, or took too long.
    """
    out = process.stdout
    if out is not None and select.select([out], [], [], SECONDS)[0] and (line := out.readline()):
        return line
    msg = f"`{command[1]}` said nothing"
    raise GuardError(msg)


def _problem(seen: dict[str, Any], to: str, words: str) -> str:
    """Return the problem of a client's answer, empty where there is none."""
    if seen["asked"] != 1:
        return f"the person was asked {seen['asked']} times; it saw: {seen['seen'][:200]}"
    if seen["raised"]:
        return f"it raised {seen['raised']}: {seen['seen'][:200]}"
    wanted = words or to
    return "" if wanted in seen["seen"] else f"it saw: {seen['seen'][:200]}"
