"""Progress on terminals, and reports as a table or as JSON."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from guard.cli.outcome import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from guard.replay.reports import Report


@contextmanager
def _drawn(console: Console, *columns: ProgressColumn) -> Iterator[Progress]:
    """Draw progress where the console is a terminal, nothing elsewhere."""
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield progress


@contextmanager
def bar(console: Console, title: str, total: int | None) -> Iterator[Callable[[], object]]:
    """Yield what advances a bar by one step of ``total``, None where nobody knows."""
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with _drawn(console, *columns) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str, float], object]]:
    """Yield what is told the work's stage and the share of it that is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with _drawn(console, *columns) as progress:
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
    with _drawn(console, *columns) as progress:

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


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], width: int = 160) -> None:
    """Print a table; texts of others are escaped."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*(escape(plain(str(cell))) for cell in row))
    Console(width=width).print(table)
