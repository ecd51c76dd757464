"""Options by which a command finds the running guard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from guard.adapters.processes.run_note import RunNote, find_running
from guard.core.errors import GuardError

EXIT_INVALID = 3


def _url() -> str:
    """Return the state of this user's running guard, or end the command."""
    try:
        return find_running().redis
    except GuardError as error:
        typer.echo(f"guard: {error}", err=True)
        raise typer.Exit(EXIT_INVALID) from None


def label_key_of(redis: str) -> Path | None:
    """Return the label key of the guard with that state, None for the user's own."""
    try:
        note: RunNote | None = find_running()
    except GuardError:
        note = None
    return Path(note.label_key) if note and note.redis == redis and note.label_key else None


Redis = Annotated[
    str,
    typer.Option(
        envvar="GUARD_REDIS",
        default_factory=_url,
        show_default="the embedded one of this user's running guard",
        help="Redis URL of the guard.",
    ),
]
