"""Labelled traces: options and reading that ``guard lab train`` and ``guard lab eval`` share."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from guard.cli.terminal import bar
from guard.core.errors import GuardError
from guard.policy import load_policies
from lab.dataset import LAST_SESSION, Dataset, Reading, load_dataset
from lab.paper import ONTOLOGY

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from guard.core.model import Role
    from guard.replay.traces import TraceError


class OnError(StrEnum):
    """Effect of a line that breaks the format."""

    FATAL = "fatal"
    SKIP = "skip"


Traces = Annotated[list[Path], typer.Argument(help="Trace files, format v1: .jsonl or .jsonl.gz.")]
OnErrorOption = Annotated[
    OnError,
    typer.Option("--on-error", help="A bad line: stop there, or say so and leave it out."),
]
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
WithBenignOption = Annotated[
    bool,
    typer.Option(
        "--with-benign",
        help="Use runs without an attack as negatives, by their last session; else they are left "
        "out, as in the paper.",
    ),
]


def require_lab() -> None:
    """Make sure that the libraries of the ``lab`` extra are installed.

    Raises:
        GuardError: some are not.
    """
    missing = [name for name in ("sklearn", "skl2onnx", "scipy") if find_spec(name) is None]
    if missing:
        raise GuardError(
            f"{', '.join(missing)} not installed, add the lab: pip install agent-egress-guard-lab"
        )


def roles_of(tools: Path | None) -> Callable[[str], Role | None]:
    """Return what gives a tool its role.

    Raises:
        PolicyError: the policy cannot be used.
    """
    if tools is None:
        return ONTOLOGY.get
    policy = load_policies([tools])

    def role(tool: str) -> Role | None:
        mapping = policy.mapping(tool)
        return None if mapping is None else mapping.role

    return role


def skipping(console: Console, on_error: OnError) -> Callable[[TraceError], object] | None:
    """Return what is told of a bad line, or None where it is fatal."""
    if on_error is OnError.FATAL:
        return None
    return lambda error: console.print(f"skipped {error}", soft_wrap=True)


def read_runs(paths: list[Path], reading: Reading, console: Console) -> Dataset:
    """Return the examples of trace files, with a bar on a terminal.

    Raises:
        TraceError: as :func:`lab.dataset.load_dataset`.
    """
    with bar(console, "reading", None) as advance:
        data = load_dataset(paths, replace(reading, advance=advance))
    if data.skipped:
        lines = "line" if data.skipped == 1 else "lines"
        console.print(f"{data.skipped} bad {lines} left out", soft_wrap=True)
    return data
