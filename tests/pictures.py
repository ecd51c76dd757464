"""Pictures of the docs, made again (``make pictures``).

The demo's attack is played against a guard with a console.  Chromium photographs that console and
draws the diagram of the architecture page.  A Prometheus scrapes a second guard under generated
calls, and Grafana's panel components draw its answers to the queries of a dashboard.
"""

import asyncio
import io
import itertools
import json
import re
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
from rich.console import Console

from guard.demo import story as demo
from guard.demo.narration import Narrator
from guard.demo.play import tell
from guard.demo.story import Story, office
from guard.processes.loopback import Rig, free_port
from guard.settings import policies_directory
from lab.guard_processes import begin_guard
from lab.load import UPSTREAM
from tests.e2e.clients import call_tool
from tests.e2e.console_stage import PEOPLE, SECRET, browse
from tests.e2e.running_guard import listens, wait_until

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
ATTACKER = "reports@collector.example.net"
POLICY = policies_directory() / "default.yaml"
BROKEN = POLICY.read_text(encoding="utf-8").replace("\nrules:\n", "\nrulez:\n")
FILM = (
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
BOARD = ROOT / "grafana" / "dashboards" / "overview.json"
PANELS = ("stat", "timeseries")
DRAWN = 10
"""Number of panels in the picture of the dashboard: the first ones."""
SECONDS = 150
"""Length of the traffic in that picture."""
ORDINARY = (
    ("team@example.com", "email_send_email"),
    ("team@example.com", "email_draft_email"),
)
ATTACK = (("drop@elsewhere.test", "email_send_email"), ("a@b@c.test", "email_send_email"))


def main():
    """Write every picture."""
    port = free_port()
    board = _board()

    class ConsoleRig(Rig):
        """The demo's processes, the guard with a console."""

        def begin_guard(self, *options, admin=0):
            people = self.directory / "people.toml"
            people.write_text(PEOPLE, encoding="utf-8")
            console = ("--console", f"127.0.0.1:{port}", "--console-people", str(people))
            return super().begin_guard(*options, *console, admin=admin)

    demo.Rig = ConsoleRig
    terminal = Console(record=True, width=80, file=io.StringIO(), markup=False, highlight=False)
    with tempfile.TemporaryDirectory() as directory:
        place, held = Path(directory), office(ATTACKER)
        with demo.stage(place, POLICY, held) as running:
            asyncio.run(_play(Narrator(terminal), running, held, place / "audit.jsonl"))
            wait_until(partial(listens, port), "the console")
            _photograph(f"http://127.0.0.1:{port}", board)
    picture = terminal.export_svg(title="guard demo", unique_id="demo")
    (FIGURES / "demo.svg").write_text(picture, encoding="utf-8")


async def _play(narrator, running, held, audit):
    """Play the demo as ``guard demo`` does, with a shorter refusal."""
    began = time.monotonic()

    def shorter(step):
        told = step.structured.get("guard", {})
        kept = {name: told[name] for name in ("decision", "code", "request") if name in told}
        short = {"guard": kept} if kept else {}
        narrator.step(replace(step, structured=short))

    story = Story(running, held, audit, shorter)
    narrator.opening(POLICY.name)
    await tell(story, narrator, ATTACKER)
    narrator.ending(story.ending, time.monotonic() - began)
    assert story.ending.good, story.ending


def _board():
    """Return the panels of a dashboard with the answers of a Prometheus that saw an attack."""
    with Rig() as rig:
        admin, prometheus = free_port(), free_port()
        port, _ = begin_guard(rig, POLICY, rig.server(UPSTREAM), admin=admin)
        config = rig.directory / "prometheus.yml"
        scraped = {"job_name": "guard", "static_configs": [{"targets": [f"127.0.0.1:{admin}"]}]}
        scrape = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}
        config.write_text(json.dumps(scrape), encoding="utf-8")
        at = f"--web.listen-address=127.0.0.1:{prometheus}"
        store = f"--storage.tsdb.path={rig.directory / 'series'}"
        rig.start("prometheus", "prometheus", f"--config.file={config}", at, store)
        wait_until(partial(listens, prometheus), "Prometheus")
        began = time.time()
        for number in itertools.count():
            passed = (time.time() - began) / SECONDS
            if passed > 1:
                break
            attacked = 0.4 < passed < 0.7 and number % 3 == 0
            to, tool = (ATTACK if attacked else ORDINARY)[number % 2]
            call_tool(port, tool, {"to": to, "subject": "status", "body": "status"})
            time.sleep(0.1)
        span = {"from": began + 10, "to": began + SECONDS}
        panels = [p for p in json.loads(BOARD.read_text("utf-8"))["panels"] if p["type"] in PANELS]
        answered = [
            {"panel": panel, "answers": _answers(prometheus, panel, span)}
            for panel in panels[:DRAWN]
        ]
    return {"panels": answered, **span}


def _answers(port, panel, span):
    """Return the answers of a Prometheus to the queries of a panel, for every instance."""
    url = f"http://127.0.0.1:{port}/api/v1/query_range"
    asked = {"start": span["from"], "end": span["to"], "step": 1}
    answers = []
    for one in panel["targets"]:
        query = one["expr"].replace("$__rate_interval", "10s")
        query = re.sub(r'"\$\w+"', '".*"', query)
        found = httpx.get(url, params={"query": query, **asked}, trust_env=False).raise_for_status()
        answers.append({"legend": one["legendFormat"], "series": found.json()["data"]["result"]})
    return answers


def _photograph(url, board):
    """Take a picture of the console's pages, and draw the diagrams of the docs."""
    console = FIGURES / "console"
    film = [{**one, "file": str(console / f"{one['file']}.png")} for one in FILM]
    page = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    diagram = re.search(r"```mermaid\n(.*?)```", page, re.DOTALL)
    asked = {"url": url, "secret": SECRET, "pages": [], "axe": True, "film": film}
    drawn = [{"text": diagram[1], "file": str(FIGURES / "architecture.svg")}]
    script = ROOT / "tests" / "grafana_panels" / "build" / "panels.js"
    panels = {"script": str(script), "data": board, "file": str(FIGURES / "dashboard.png")}
    asked |= {"diagrams": drawn, "board": panels}
    found = browse(ROOT / "tests" / "browser", asked)
    assert isinstance(found, dict), found


if __name__ == "__main__":
    main()
