"""Progress of the lab's commands, and reports as a table or as JSON."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from guard.cli.terminal import drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def show(report: Report, *, command: str, as_json: bool) -> None:
    """Print a report.

    Args:
        report: what was measured.
        command: what measured it, e.g. ``guard lab bench``; the report's name follows.
        as_json: one JSON object instead of a table.
    """
    if as_json:
        typer.echo(report.to_json())
        return
    table = Table("check", "value", "unit", "n", "target", title=f"{command} {report.name}")
    for check in report.checks:
        value = check.reason if check.value is None else f"{check.value:g}"
        table.add_row(check.id, value, check.unit, str(check.n or ""), check.target or "")
    Console().print(table)
