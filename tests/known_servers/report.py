"""Report of current releases of public servers: tools, mapped, and why a tool is not mapped.

Run by ``make known-servers``.  A server that does not start here (some need their account to list
tools) is named with its reason; the report fails if fewer than 25 start.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from ruamel.yaml import YAML

from guard.core.errors import GuardError
from guard.policy.client_config import ConfiguredServer
from guard.policy.recognition import proposed
from guard.runtime.mcp_client.tool_listing import list_tools

HERE = Path(__file__).parent
LEAST = 25


def installed(launch):
    """Return the command that starts the installed package of a launch."""
    runner, name, *words = launch
    if runner == "uvx":
        return (str(HERE / ".environments" / name / "bin" / name), *words)
    package = HERE / "node_modules" / name
    programs = json.loads((package / "package.json").read_text("utf-8"))["bin"]
    program = programs if isinstance(programs, str) else next(iter(programs.values()))
    return ("node", str(package / program), *words)


def main():
    """Print the report; return 1 if too few servers list tools."""
    servers = YAML(typ="safe").load(HERE / "servers.yaml")
    tools = mapped = started = 0
    for name, entry in servers.items():
        own = entry.get("env", {})
        known = ConfiguredServer(
            name, command=tuple(entry["launch"]), environment=own, transport="stdio"
        )
        try:
            command = installed(entry["launch"])
            found, _ = asyncio.run(
                list_tools(replace(known, command=command, environment={**os.environ, **own}))
            )
        except (GuardError, OSError) as error:
            sys.stdout.write(f"{name}: not started: {str(error)[:120]}\n")
            continue
        one = proposed(known, f"stdio:{name}", found)
        started, tools, mapped = started + 1, tools + len(found), mapped + one.mapped
        sys.stdout.write(
            f"{name}: {len(found)} tools, {one.mapped} mapped ({', '.join(one.profiles)})\n"
        )
        for reason, count in Counter(one.dropped.values()).most_common():
            sys.stdout.write(f"  {count}: {reason}\n")
    sys.stdout.write(f"{started} servers, {tools} tools, {mapped} mapped\n")
    return 0 if started >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
