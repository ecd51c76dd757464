"""Labelled traces: options and reading that ``guard lab train`` and ``guard lab eval`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from guard.policy import load_policies
from lab.dataset import LAST_SESSION
from lab.paper import ONTOLOGY

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.core.model import Role


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
