"""``guard check``: say whether policies can be used, or everything that is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from guard.core.errors import PolicyError
from guard.policy_files import load_policies

EXIT_INVALID = 3


def check(
    policy: Annotated[list[Path], typer.Argument(help="Policy files; several make one policy.")],
) -> None:
    """Check policy files and exit with 0 if they are valid, with 3 if not."""
    try:
        loaded = load_policies(policy)
    except PolicyError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        count = len(error.problems)
        typer.echo(f"{count} problem{'' if count == 1 else 's'}", err=True)
        raise typer.Exit(EXIT_INVALID) from None
    Console().print(
        f"[green]OK[/green] {escape(loaded.name)}: {len(loaded.tools)} tool mappings, "
        f"{len(loaded.rules)} rules, mode {loaded.mode.value}, digest {loaded.digest[:12]}",
        soft_wrap=True,
        highlight=False,
    )
