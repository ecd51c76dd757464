"""Progress of the lab's commands, and reports as a table or as JSON."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.progress import (
    BarColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from guard.cli.terminal import drawn, show_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from guard.replay.reports import Report


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str, float], object]]:
    """Yield what is told the work's stage and the share of it that is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with drawn(console, *columns) as progress:
        task = progress.add_task("starting", total=1.0)
        yield lambda stage, share: progress.update(task, description=stage, completed=share)


@contextmanager
def counters(console: Console) -> Iterator[Callable[[str], Callable[[], object]]]:
    """Yield what begins a part of the work, and returns what counts one run of it."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed} runs"),
        TimeElapsedColumn(),
    )
    with drawn(console, *columns) as progress:

        def begin(part: str) -> Callable[[], object]:
            task = progress.add_task(part, total=None)
            return lambda: progress.advance(task)

        yield begin


def show(report: Report, *, as_json: bool) -> None:
    """Print a report as a table, or as one JSON object."""
    if as_json:
        typer.echo(report.to_json())
        return
    rows = (
        (
            check.id,
            check.reason if check.value is None else f"{check.value:g}",
            check.unit,
            check.n or "",
            check.target or "",
        )
        for check in report.checks
    )
    show_table(("check", "value", "unit", "n", "target"), rows)
