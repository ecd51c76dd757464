"""The command line: one file per command.

Exit codes: 0 ok, 1 failed, 2 blocked or failed test, 3 invalid policy or input.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

from guard import __version__

_application: Final = partial(
    typer.Typer, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
)
COMMANDS: Final = {
    "run": "run:run",
    "check": "check:check",
    "test": "policy_tests:policy_tests",
    "explain": "explain:explain",
    "diff": "diff:diff",
    "import-openapi": "import_openapi:import_openapi",
    "schema": "schema:schema",
    "replay": "replay:replay",
    "demo": "demo:demo",
    "bench": "bench:app",
    "eval": "eval:app",
    "train": "train:train",
    "approve": "memory_labels:approve",
    "memory": "memory:app",
    "init": "init:init",
    "doctor": "doctor:doctor",
    "ca": "ca:app",
    "stdio": "stdio:stdio",
    "tools": "tools:app",
}
"""Where each command is: module of this package, and the function or Typer application in it."""


class CommandModules(MutableMapping[str, object]):
    """Commands by name, each imported when it is asked for and not before.

    ``guard run`` must not wait for what only ``guard train`` needs.
    """

    def __getitem__(self, name: str) -> object:
        """Return a command.

        Raises:
            KeyError: there is none of that name.
        """
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            single = _application()
            single.command(name)(found)
            found = single
        command = typer.main.get_command(found)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        """Yield the names in the order of ``--help``."""
        return iter(COMMANDS)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(COMMANDS)

    def __setitem__(self, name: str, command: object) -> None:
        """Refuse: ``COMMANDS`` is the list."""
        raise TypeError(name)

    def __delitem__(self, name: str) -> None:
        """Refuse: ``COMMANDS`` is the list."""
        raise TypeError(name)


class Root(TyperGroup):
    """The group of all commands."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # as Typer gives them
        self.commands = CommandModules()  # type: ignore[assignment]  # Typer's click is its own


app = _application(
    cls=Root,
    name="guard",
    help="An inline egress guard for LLM agents: every tool call is judged before a byte leaves.",
    no_args_is_help=True,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line."""
    app()
