"""``guard memory …``: what operators do about memory; one file per group of commands."""

from __future__ import annotations

import typer

from guard.cli import memory_gate, memory_labels, memory_loss, memory_resolve, memory_trace

app = typer.Typer(
    help="Memory: promote, resolve, review, quarantine, release writes; restore trust; labels.",
    no_args_is_help=True,
)
memory_gate.mount(app)
memory_resolve.mount(app)
memory_labels.mount(app)
memory_loss.mount(app)
memory_trace.mount(app)
