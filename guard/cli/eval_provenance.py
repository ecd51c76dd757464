"""``guard eval provenance``: where destinations came from, measured against ground truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from guard.cli.report_table import show
from guard.core.errors import GuardError
from guard.lab.eval_provenance import Options, eval_provenance
from guard.settings import policies_directory

EXIT_FAILED = 1

# Options that this command shares with the ablation of its parts.
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Recorded = Annotated[
    Path | None,
    typer.Option("--data", help="Directory of recorded runs; beside a checkout if unset."),
]
Seed = Annotated[str, typer.Option(help="Seed of the generated runs.")]
Scale = Annotated[float, typer.Option(min=0.01, help="Generated runs per kind, times the default.")]


def provenance(
    json: AsJson = False,
    data: Recorded = None,
    seed: Seed = "0",
    scale: Scale = 1.0,
    rewrite: Annotated[
        str | None,
        typer.Option(help="Tell recorded runs again by this seed: other names, words and shapes."),
    ] = None,
) -> None:
    """Stopped attacks and honest sends flagged, on recorded and on generated runs.

    Exit code 0: measured, whatever the figures; 1: something could not run.
    """
    try:
        with watched() as begin:
            options = Options(
                data or recorded_beside(), seed=seed, rewrite=rewrite, scale=scale, progress=begin
            )
            report = eval_provenance(options)
    except (GuardError, OSError) as error:
        typer.echo(f"guard eval: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    show(report, command="guard eval", as_json=json)


@contextmanager
def watched() -> Iterator[Callable[[str], Callable[[], object]]]:
    """Yield what begins a part: a counter of runs on a terminal, nothing elsewhere."""
    console = Console(stderr=True, highlight=False)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed} runs"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:

        def begin(part: str) -> Callable[[], object]:
            task = progress.add_task(part, total=None)
            return lambda: progress.advance(task)

        yield begin


def recorded_beside() -> Path | None:
    """Return where a source checkout has the recorded runs beside it, if it has."""
    data = policies_directory().parent.parent / "shared" / "data" / "traces"
    return data if data.is_dir() else None
