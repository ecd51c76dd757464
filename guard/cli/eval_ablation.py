"""``guard eval ablation``: rule, classifier and ladder, each alone and together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from guard.cli.eval_provenance import AsJson, Recorded, Scale, Seed, recorded_beside, watched
from guard.cli.report_table import show
from guard.core.errors import GuardError
from guard.lab.eval_ablation import eval_ablation
from guard.lab.eval_provenance import Options

EXIT_FAILED = 1


def ablation(
    json: AsJson = False,
    data: Recorded = None,
    seed: Seed = "0",
    scale: Scale = 1.0,
    table: Annotated[Path | None, typer.Option(help="Write a Markdown table here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a plot (PNG, SVG) here.")] = None,
) -> None:
    """How much each combination of gates stops, and how many honest sends it flags."""
    try:
        with watched() as begin:
            options = Options(data or recorded_beside(), seed=seed, scale=scale, progress=begin)
            report = eval_ablation(options)
        if table is not None or plot is not None:
            _write(report.details["table"], table, plot)
    except (GuardError, OSError, ImportError) as error:
        typer.echo(f"guard eval: {error}", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    show(report, command="guard eval", as_json=json)


def _write(rows: dict[str, dict[str, float]], table: Path | None, plot: Path | None) -> None:
    # The plotting library is an extra of the offline work.
    from guard.lab.plots import draw_ablation, markdown

    if table is not None:
        table.write_text(markdown(rows), encoding="utf-8")
    if plot is not None:
        draw_ablation(rows, plot)
