"""A report for a person, as a table, or for a program, as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from guard.replay.reports import Report


def show(report: Report, *, command: str, as_json: bool) -> None:
    """Print a report.

    Args:
        report: what was measured.
        command: what measured it, e.g. ``guard bench``; the report's name follows in the title.
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
