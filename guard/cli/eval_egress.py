"""``guard eval egress-bench``: the cases of agent-egress-bench through a running guard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from guard.cli.progress import Bar
from guard.cli.report_table import show
from guard.core.errors import GuardError
from guard.lab.eval_egress import eval_egress, read_cases
from guard.settings import policies_directory

EXIT_FAILED = 1


def egress_bench(
    cases: Annotated[Path, typer.Argument(help="Cases of agent-egress-bench, one per line.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    policy: Annotated[
        Path | None, typer.Option(help="Policy (default: examples/strict.yaml).")
    ] = None,
) -> None:
    """Attacks stopped and benign traffic stopped, each case by the road it names.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    console = Console(stderr=True, highlight=False)
    try:
        read = read_cases(cases)
        with Bar(console, "cases", len(read)) as advance:
            report = eval_egress(
                read, policy or policies_directory() / "examples" / "strict.yaml", progress=advance
            )
    except (GuardError, OSError) as error:
        typer.echo(f"guard eval: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    show(report, command="guard eval", as_json=json)
    if not json:
        table = Table("category", "attacks", "blocked", "benign", "blocked", "errors")
        for name, row in report.details["categories"].items():
            table.add_row(name, *(str(count) for count in row.values()))
        Console().print(table)
