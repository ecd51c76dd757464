"""Pictures of the docs, made again: the demo, the architecture, the console (``make pictures``).

The demo's attack is played against a guard with a console.  Chromium photographs that console and
draws the diagram of the architecture page.
"""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from guard.demo import play as demo
from guard.demo.narration import Narrator
from guard.demo.scenario import Step, Story, seed
from guard.demo.stage import Places, Via
from guard.processes.loopback import Rig, free_port
from guard.settings import policies_directory
from tests.e2e.console_stage import PEOPLE, SECRET, browse, wait_for

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
FIGURES: Final = DOCS / "figures"
ATTACKER: Final = "reports@collector.example.net"
POLICY: Final = policies_directory() / "default.yaml"
BROKEN: Final = POLICY.read_text(encoding="utf-8").replace("\nrules:\n", "\nrulez:\n")
FILM: Final = (
    {"go": "/", "wait": "#live tbody tr", "file": "now"},
    {"go": "/approvals", "wait": "article.card", "file": "approvals"},
    {"press": ["j", "Enter"], "wait": "ol.lineage", "file": "approval"},
    {"go": "/sessions?session=demo-attack-2", "wait": "tbody tr", "file": "session"},
    {"go": "/policies", "wait": "main a", "file": "policies"},
    {
        "click": "main a[href*=edit]",
        "fill": {"#text": BROKEN},
        "wait": "ul.problems",
        "file": "editor",
    },
    {"go": "/tools", "wait": "table", "file": "tools"},
    {"go": "/memory", "wait": "main", "file": "memory"},
    {"go": "/record", "wait": "main", "file": "record"},
)


def main() -> None:
    """Write every picture."""
    port = free_port()

    class ConsoleRig(Rig):
        """The demo's processes, the guard with a console."""

        def begin_guard(self, *options: str, admin: int = 0):
            people = self.directory / "people.toml"
            people.write_text(PEOPLE, encoding="utf-8")
            console = ("--console", f"127.0.0.1:{port}", "--console-people", str(people))
            return super().begin_guard(*options, *console, admin=admin)

    demo.Rig = ConsoleRig
    terminal = Console(record=True, width=80, file=io.StringIO(), markup=False, highlight=False)
    with tempfile.TemporaryDirectory() as directory:
        places = Places(Path(directory), POLICY)
        seed(places, ATTACKER)
        with demo.stage(places) as running:
            asyncio.run(_play(Narrator(terminal), running, places))
            wait_for(port)
            _photograph(f"http://127.0.0.1:{port}")
    picture = terminal.export_svg(title="guard demo", unique_id="demo")
    (FIGURES / "demo.svg").write_text(picture, encoding="utf-8")


async def _play(narrator: Narrator, running: demo.Stage, places: Places) -> None:
    """Play the demo as ``guard demo`` does, with a shorter refusal."""
    began = time.monotonic()

    def tell(step: Step) -> None:
        told = step.outcome.structured.get("guard", {})
        kept = {name: told[name] for name in ("decision", "code", "request") if name in told}
        short = {"guard": kept} if kept else {}
        narrator.step(replace(step, outcome=replace(step.outcome, structured=short)))

    story = Story(running, places, tell)
    narrator.opening(places.policy.name)
    narrator.benign()
    await story.benign()
    narrator.attack(Via.MEMORY, ATTACKER)
    await story.attack(Via.MEMORY)
    narrator.ending(story.ending, time.monotonic() - began)
    assert story.ending.good, story.ending


def _photograph(url: str) -> None:
    """Take a picture of the console's pages, and draw the diagrams of the docs."""
    console = FIGURES / "console"
    film = [{**one, "file": str(console / f"{one['file']}.png")} for one in FILM]
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    diagram = re.search(r"```mermaid\n(.*?)```", page, re.DOTALL)
    asked = {"url": url, "secret": SECRET, "pages": [], "axe": True, "film": film}
    drawn = [{"text": diagram[1], "file": str(FIGURES / "architecture.svg")}]
    found = browse(ROOT / "tests" / "browser", {**asked, "diagrams": drawn})
    assert isinstance(found, dict), found


if __name__ == "__main__":
    main()
