"""A progress bar on terminals, nothing elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console


class Bar:
    """A bar; entering it gives what advances it by one step.

    Args:
        console: where to draw, if it is a terminal.
        title: what is going on.
        total: steps, None where nobody knows.
    """

    def __init__(self, console: Console, title: str, total: int | None) -> None:
        self._progress = Progress(
            TextColumn(title),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Callable[[], object]:
        self._progress.start()
        return lambda: self._progress.advance(self._task)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


class Stages:
    """A bar of work that says what it does and how far it is; entering it gives what to tell.

    Args:
        console: where to draw, if it is a terminal.
    """

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("starting", total=1.0)

    def __enter__(self) -> Callable[[str, float], object]:
        self._progress.start()
        return lambda stage, share: self._progress.update(
            self._task, description=stage, completed=share
        )

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
