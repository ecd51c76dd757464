"""Labelled traces: options and reading that ``guard lab train`` and ``guard lab eval`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lab.dataset import LAST_SESSION

Traces = Annotated[list[Path], typer.Argument(help="Trace files, format v1: .jsonl or .jsonl.gz.")]
SessionOption = Annotated[
    str,
    typer.Option(
        "--session", help=f"The trigger session's name, or `{LAST_SESSION}` for each run's last."
    ),
]
ToolsOption = Annotated[
    Path | None,
    typer.Option(
        "--tools", help="A policy whose tool mappings give the roles; else the paper's tool names."
    ),
]
