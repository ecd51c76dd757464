"""``guard hook``: the command that coding agents run at each prompt, call and result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def hook(
    client: Annotated[str, typer.Argument(help="claude-code, codex or cursor.")],
    decisions: Annotated[
        Path | None, typer.Option(envvar="GUARD_DECISIONS", help="Socket of the running guard.")
    ] = None,
    process: Annotated[
        str, typer.Option(help="Process id of the client: joins its MCP servers to the session.")
    ] = "",
    agent_secret: Annotated[
        Path | None, typer.Option(help="File with the agent's own proxy secret.")
    ] = None,
) -> None:
    """Judge one hook of a coding agent: payload on standard input, answer on standard output.

    Exit code 2 refuses the call; it is also that of a guard which does not answer.

    Example: guard init --hooks writes this command into the clients' settings.
    """
    from guard.pep.hook.client import main

    given = {"--decisions": decisions, "--process": process, "--agent-secret": agent_secret}
    options = [text for name, value in given.items() if value for text in (name, str(value))]
    raise typer.Exit(main([client, *options]))
