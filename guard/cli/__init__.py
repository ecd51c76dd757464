"""The command line: one file per command.

Exit codes: 0 ok, 1 failed, 2 blocked or failed test, 3 invalid policy or input.
"""

from __future__ import annotations

from typing import Annotated

import typer

from guard import __version__

app = typer.Typer(
    name="guard",
    help="An inline egress guard for LLM agents: every tool call is judged before a byte leaves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
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


def _mount() -> None:
    from guard.cli import (
        bench,
        ca,
        check,
        demo,
        diff,
        doctor,
        explain,
        import_openapi,
        memory,
        memory_labels,
        policy_tests,
        replay,
        run,
        schema,
        stdio,
        train,
    )
    from guard.cli import eval as evaluations

    app.command()(run.run)
    app.command()(check.check)
    app.command("test")(policy_tests.policy_tests)
    app.command()(explain.explain)
    app.command()(diff.diff)
    app.command()(import_openapi.import_openapi)
    app.command()(schema.schema)
    app.command()(replay.replay)
    app.command()(demo.demo)
    app.add_typer(bench.app, name="bench")
    app.add_typer(evaluations.app, name="eval")
    app.command()(train.train)
    app.command()(memory_labels.approve)
    app.add_typer(memory.app, name="memory")
    app.command()(doctor.doctor)
    app.add_typer(ca.app, name="ca")
    app.command()(stdio.stdio)


def main() -> None:
    """Run the command line."""
    _mount()
    app()
