"""Progress on terminals, and tables."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from guard.cli.outcome import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@contextmanager
def drawn(console: Console, *columns: ProgressColumn) -> Iterator[Progress]:
    """Draw progress where the console is a terminal, nothing elsewhere."""
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield progress


@contextmanager
def bar(console: Console, title: str, total: int | None) -> Iterator[Callable[[], object]]:
    """Yield what advances a bar by one step of ``total``, None where nobody knows."""
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with drawn(console, *columns) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], width: int = 160) -> None:
    """Print a table; texts of others are escaped."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*(escape(plain(str(cell))) for cell in row))
    Console(width=width).print(table)
