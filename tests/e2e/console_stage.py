"""A console on a real guard, and Chromium as its reader, for the tests of the console's pages."""

import hashlib
import json
import re
import shutil
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote_plus, urlencode

import httpx

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.settings import child_environment
from lab.load import UPSTREAM
from tests.e2e.clients import call_tool
from tests.e2e.running_guard import listens, wait_until

SECRET = "a secret of the tests, of no deployment"
PEOPLE = f"""
[people.operator]
secret = "{hashlib.sha256(SECRET.encode()).hexdigest()}"
roles = ["admin"]
"""
PAGES = (
    "/",
    "/approvals",
    "/sessions",
    "/lineage",
    "/incidents",
    "/policies",
    "/policies/trial",
    "/tools",
    "/memory",
    "/record",
)
"""Pages of the console in their empty state."""
BROWSE = Path(__file__).parents[1] / "browser" / "browse.mjs"
SLOW = 3
"""Exit code of ``browse.mjs`` after its time limit."""


@contextmanager
def stage(policy):
    """Start an upstream, a guard and its console; yield the guard's port and the console's URL.

    Raises:
        GuardError: one did not start.
    """
    with Rig() as rig:
        people = rig.directory / "people.toml"
        people.write_text(PEOPLE, encoding="utf-8")
        console = free_port()
        options = ("--console", f"127.0.0.1:{console}", "--console-people", str(people))
        port = rig.guard(policy, rig.server(UPSTREAM), *options)
        wait_until(partial(listens, console), "the console")
        yield SimpleNamespace(guard=port, url=f"http://127.0.0.1:{console}")


class BrowserSlowError(GuardError):
    """The browser was not done in time."""


def browse(modules, asked, seconds=900.0):
    """Have Chromium view pages; return what it found, or why it could not.

    Args:
        modules: directory that holds ``node_modules`` with ``playwright-core`` and ``axe-core``.
        asked: what ``browse.mjs`` takes.
        seconds: after which it is ended.

    Raises:
        BrowserSlowError: it was ended.
        GuardError: the browser's script failed.
    """
    node, chromium = shutil.which("node"), shutil.which("chromium")
    if modules is None or not (modules / "node_modules" / "playwright-core").is_dir():
        return "playwright-core and axe-core are not installed: npm install, --browser-modules"
    if node is None or chromium is None:
        return "node or chromium is not installed"
    variables = {"BROWSER_MODULES": str(modules.resolve()), "CHROMIUM": chromium}
    with Rig(environment={**child_environment([]), **variables}) as rig:
        child = rig.start("browser", node, str(BROWSE))
        given = {"profiles": str(rig.directory), "seconds": seconds, **asked}
        try:
            child.process.communicate(json.dumps(given).encode(), seconds + 30)
        except subprocess.TimeoutExpired as error:
            raise BrowserSlowError("the browser's driver did not end") from error
        said = child.said()
        if code := child.process.returncode:
            kind = BrowserSlowError if code == SLOW else GuardError
            raise kind(f"the browser failed: {said[-800:]}")
        return json.loads(next(line for line in reversed(said.splitlines()) if line[:1] == "{"))


def play_hostile(on, texts):
    """Send hostile texts through the guard in every field an agent chooses, and keep drafts.

    Returns:
        The pages that show them, and how many decisions on them stand in one of these pages.
    """
    decisions = []
    for number, text in enumerate(texts):
        arguments = {"to": f"s{number}@outside.test", "subject": "status", "body": text}
        answer = call_tool(on.guard, "email_send_email", arguments, text)
        told = answer.get("result", {}).get("_meta", {}).get("guard", {})
        decisions += [told["decision_id"]] if "decision_id" in told else []
        call_tool(on.guard, text[:100], arguments | {"to": f"{text}@outside.test"}, text)
    bearer = {"authorization": f"Bearer {SECRET}"}
    with httpx.Client(base_url=on.url, headers=bearer, timeout=60, trust_env=False) as client:
        name = re.search(r"edit[?]file=([^\"]*)", client.get("/policies").text)[1]
        for text in texts[::10]:
            form = {"file": unquote_plus(name), "text": f"{text}:\n  - '{text}'\n", "draft": ""}
            client.post("/policies/drafts", data=form)
        drafts = re.findall(r'href="(/policies/drafts/[0-9a-f]+)"', client.get("/policies").text)
        pages = [*PAGES, *drafts, *(f"/approvals/default/{one}" for one in decisions)]
        pages += [f"/decisions/{decisions[0]}", "/sessions?" + urlencode({"session": texts[0]})]
        shown = "".join(client.get(page).text for page in pages)
    return pages, sum(one in shown for one in decisions)
