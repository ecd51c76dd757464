"""``guard memory …``: what operators do about memory; one file per group of commands."""

from __future__ import annotations

import typer

from guard.cli import memory_gate

app = typer.Typer(
    help="Memory: promote, review, quarantine and release writes; restore trust.",
    no_args_is_help=True,
)
memory_gate.mount(app)
