"""``guard demo``: watch an attack being refused while everyday mail goes through."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from guard.core.errors import PolicyError
from guard.demo.stage import Via

EXIT_FAILED = 1
EXIT_INVALID = 3
EXIT_INTERRUPTED = 130


def demo(
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep audit log, databases and guard log.")
    ] = False,
    attacker: Annotated[
        str, typer.Option(help="The address that the planted document names.")
    ] = "reports@collector.example.net",
    via: Annotated[
        Via, typer.Option(help="The road that the address takes to the send.")
    ] = Via.MEMORY,
) -> None:
    """Play a benign session and an attack against real servers, with the guard in front.

    Exit code 0: the everyday mail arrived, the attack was refused and nothing of it arrived.
    """
    # Here, so that `guard run` does not wait for the MCP SDK to load.
    from guard.demo.narration import Narrator, printable
    from guard.demo.play import play, report
    from guard.demo.stage import DemoError

    errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    policy = _checked_policy(attacker, errors)
    console = Console(file=io.StringIO() if json else None, markup=False, highlight=False)
    try:
        played = play(policy, attacker, via, keep=keep, narrator=Narrator(console))
    except DemoError as error:
        errors.print(f"the demo could not be played: {printable(str(error), longest=4000)}")
        raise typer.Exit(EXIT_FAILED) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        errors.print("interrupted; everything that was started has been stopped")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if json:
        print(report(played, attacker, via).to_json())
    if not played.ending.good:
        raise typer.Exit(EXIT_FAILED)


def _checked_policy(attacker: str, errors: Console) -> Path:
    """Return the shipped policy, having made sure that it does not let the attacker in anyway."""
    from guard.demo.narration import printable
    from guard.demo.play import passes_by_policy
    from guard.policy_files import load_policies
    from guard.settings import policies_directory

    path = policies_directory() / "default.yaml"
    try:
        attacker.encode("utf-8")
        policy = load_policies((path,))
    except (UnicodeEncodeError, PolicyError) as error:
        errors.print(f"cannot start the demo: {error}")
        raise typer.Exit(EXIT_INVALID) from None
    if not attacker.strip():
        errors.print("the attacker's address is empty, give one with `--attacker`")
        raise typer.Exit(EXIT_INVALID)
    if passes_by_policy(policy, attacker):
        errors.print(
            f"`{printable(attacker)}` is internal or allowed under {path.name}: mail to it would "
            "be delivered, as the policy says; choose an address outside"
        )
        raise typer.Exit(EXIT_FAILED)
    return path
