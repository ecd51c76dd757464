"""``guard demo``: watch an attack being refused while everyday mail goes through."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from guard.cli.outcome import Code, given_input
from guard.core.errors import GuardError, InputError
from guard.demo.narration import Narrator, printable
from guard.demo.play import passes_by_policy, play
from guard.demo.story import DemoError
from guard.policy import load_policies
from guard.settings import policies_directory

EXIT_INTERRUPTED = 130


def demo(
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep audit log and guard log.")] = False,
    attacker: Annotated[
        str, typer.Option(help="The address that the planted document names.")
    ] = "reports@collector.example.net",
) -> None:
    """Play a benign session and an attack against real servers, with the guard in front.

    The memory gate is off: it would already refuse to save the planted address.

    Exit code 0: the everyday mail arrived, the attack was refused and nothing of it arrived.
    """
    policy = _checked_policy(attacker)
    console = Console(file=io.StringIO() if json else None, markup=False, highlight=False)
    try:
        ending, report = play(policy, attacker, keep=keep, narrator=Narrator(console))
    except DemoError as error:
        raise GuardError(printable(str(error), longest=4000)) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("interrupted; everything that was started has been stopped", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if json:
        print(report.to_json())
    if not ending.good:
        raise typer.Exit(Code.FAILED)


def _checked_policy(attacker: str) -> Path:
    """Return the shipped policy, having made sure that it does not let the attacker in anyway."""
    path = policies_directory() / "default.yaml"
    with given_input():
        attacker.encode("utf-8")
        policy = load_policies((path,))
    if not attacker.strip():
        raise InputError("the attacker's address is empty, give one with `--attacker`")
    if passes_by_policy(policy, attacker):
        raise GuardError(
            f"`{printable(attacker)}` is internal or allowed under {path.name}: mail to it would "
            "be delivered, as the policy says; choose an address outside"
        )
    return path
