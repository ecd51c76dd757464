"""``guard stdio``: put the guard in front of an MCP server that speaks on standard input/output."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from guard.policy import load_policies
from guard.settings import child_environment, read_secret


def stdio(
    command: Annotated[list[str], typer.Argument(help="The server and its arguments, after --.")],
    policy: Annotated[
        list[Path], typer.Option("--policy", "-p", help="As the running guard has it.")
    ],
    decisions: Annotated[
        Path, typer.Option(envvar="GUARD_DECISIONS", help="Socket of the running guard.")
    ],
    name: Annotated[str, typer.Option(help="What the server is called in audit lines.")] = "",
    secret_env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE: a write credential that only the server gets; repeat."),
    ] = None,
    agent_secret: Annotated[
        Path | None, typer.Option(help="File with the agent's own proxy secret.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for one decision.")] = 10.0,
) -> None:
    """Wrap a stdio MCP server; decisions, state and models are those of the running guard.

    Example: guard stdio -p policy.yaml --decisions /run/guard/decide.sock -- npx some-server
    """
    from guard.pep.stdio.wrapper import Decisions, run_stdio

    hello = {"policy": load_policies(policy).digest, "name": name or Path(command[0]).name}
    # Hooks that the same client starts report its session.
    hello["client"] = str(os.getppid())
    if agent_secret is not None:
        hello["secret"] = read_secret(agent_secret)
    environment = child_environment(secret_env or [])
    decided = Decisions(decisions, hello, timeout)
    raise typer.Exit(asyncio.run(run_stdio(command, decided, environment)))
