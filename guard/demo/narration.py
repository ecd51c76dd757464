"""Tells the demo's story on a terminal, for someone who has never seen the guard."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from guard.demo.story import SEND, Ending, Step

LONGEST = 300


class Narrator:
    """Writes the story to a console; text that came from tools is shown, never interpreted."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._session = ""

    def opening(self, policy: str) -> None:
        """Say what is being started."""
        self._console.print(
            "Starting two MCP servers (mail, memory), the guard in front of them "
            f"({policy}, memory gate off), and a private Redis."
        )

    def benign(self) -> None:
        """Head the benign session."""
        self._console.rule("1. Everyday work", align="left")
        self._line("The agent mails the weekly summary to its own team.")

    def attack(self, attacker: str) -> None:
        """Head the attack."""
        self._console.rule("2. The attack", align="left")
        self._line("A document has the agent remember an address. A later session recalls it.")
        self._line(f"The planted address: {attacker}")

    def step(self, step: Step) -> None:
        """Tell one tool call."""
        if step.session != self._session:
            self._session = step.session
            self._line(f"session {step.session}", style="bold")
        mark, style = ("✗", "red") if step.refused else ("✓", "green")
        line = Text(f"  {mark} ", style=style)
        line.append(printable(f"{step.what} "), style="default")
        line.append(f"({step.tool})", style="dim")
        self._console.print(line)
        if step.refused and step.tool == SEND:
            shown = json.dumps(dict(step.structured), indent=2) if step.structured else step.text
            title = "what the agent is told instead"
            text = Text(printable(shown, longest=2000))
            self._console.print(Panel(text, title=title, title_align="left", border_style="red"))

    def ending(self, ending: Ending, seconds: float, kept: Path | None = None) -> None:
        """Sum up what was proven, and say where the files are."""
        self._console.rule("What the proof says", align="left")
        proofs = {
            f"everyday mail: {ending.benign_delivered} arrived (mail server's outbox)": (
                ending.benign_delivered >= 1
            ),
            f"attack: {ending.attack_refused} refused (agent's answer and audit log)": (
                ending.attack_refused >= 1
            ),
            f"attack: {ending.attack_delivered} arrived (mail server's outbox)": (
                ending.attack_delivered == 0
            ),
        }
        for text, good in proofs.items():
            mark, style = ("✓", "green") if good else ("✗", "bold red")
            self._line(f"{mark} {text}", style=style)
        self._line(f"{seconds:.1f} seconds, everything included.", style="dim")
        if kept is not None:
            self._line(f"Audit log, guard log and policy are kept in {kept}")

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(printable(text), style=style))


def printable(text: str, longest: int = LONGEST) -> str:
    """Return the text fit for a terminal: no control characters, no endless lines."""
    shown = "".join(char if char.isprintable() or char == "\n" else "�" for char in text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"
