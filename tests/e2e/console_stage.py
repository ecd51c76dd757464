"""A console on a real guard, and Chromium as its reader, for the tests of the console's pages."""

import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote_plus, urlencode

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.settings import child_environment
from lab.load import UPSTREAM

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


@dataclass(frozen=True, slots=True)
class Stage:
    """A guard with its console."""

    guard: int
    console: int
    audit: Path

    @property
    def url(self):
        """Of the console."""
        return f"http://127.0.0.1:{self.console}"


@contextmanager
def stage(policy):
    """Start an upstream, a guard and its console, and end them with the block.

    Raises:
        GuardError: one did not start.
    """
    with Rig() as rig:
        people = rig.directory / "people.toml"
        people.write_text(PEOPLE, encoding="utf-8")
        console = free_port()
        options = ("--console", f"127.0.0.1:{console}", "--console-people", str(people))
        port = rig.guard(policy, rig.server(UPSTREAM), *options)
        wait_for(console)
        yield Stage(port, console, rig.audit)


def wait_for(port):
    """Wait until somebody listens on a port of loopback.

    Raises:
        GuardError: nobody did.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
            return
        time.sleep(0.05)
    msg = f"the console did not listen on {port}"
    raise GuardError(msg)


def ask(port, method, path, body=b"", headers=None):
    """Send one request; return status and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()


def _api(port, path, document=None):
    headers = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
    body = b"" if document is None else json.dumps(document).encode()
    return ask(port, "POST" if body else "GET", path, body, headers)


def call(port, to, text, *, tool="email_send_email", session=""):
    """Send a tool call through the guard; return its answer."""
    arguments = {"to": to, "subject": "status", "body": text}
    document = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    headers = {"content-type": "application/json"}
    if session:
        headers["x-guard-session"] = session.encode("ascii", "ignore").decode()
    _, body = ask(port, "POST", "/mcp", json.dumps(document).encode(), headers)
    return json.loads(body)


def _decision(answer):
    return str(answer.get("result", {}).get("_meta", {}).get("guard", {}).get("decision_id", ""))


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
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profiles,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryFile() as told,
    ):
        # Files, not pipes: a Chromium that outlived its driver would hold a pipe open.
        process = subprocess.Popen(
            [node, str(BROWSE)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=told,
            env={**child_environment([]), **variables},
            start_new_session=True,
        )
        try:
            given = {"profiles": profiles, "seconds": seconds, **asked}
            process.communicate(json.dumps(given).encode(), seconds + 30)
        except subprocess.TimeoutExpired as error:
            raise BrowserSlowError("the browser's driver did not end") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        told.seek(0)
        if process.returncode:
            why = told.read().decode("utf-8", "replace")[-800:]
            kind = BrowserSlowError if process.returncode == SLOW else GuardError
            raise kind(f"the browser failed: {why}")
        return json.loads(said.read().splitlines()[-1])


def play_hostile(on, texts):
    """Send hostile texts through the guard in every field an agent chooses.

    Returns:
        The pages that show them, and how many texts stand in one of these pages as text.
    """
    decisions = []
    for number, text in enumerate(texts):
        to = f"s{number}@outside.test"
        answer = call(on.guard, to, text, session=text)
        decisions.append(_decision(answer))
        if number % 4 == 0:
            call(on.guard, f"{text}@outside.test", text, tool=text[:100], session=text)
    pages = list(PAGES)
    pages += _drafted(on, texts[:: max(1, len(texts) // 10)])
    _, body = _api(on.console, "/api/decisions")
    ids = [one["id"] for one in json.loads(body)["decisions"]]
    while ids:
        pages.append(f"/?before={ids[-1]}")
        _, body = _api(on.console, f"/api/decisions?before={ids[-1]}")
        ids = [one["id"] for one in json.loads(body)["decisions"]]
    pages += [f"/approvals/default/{one}" for one in decisions if one]
    pages += [f"/decisions/{one}" for one in decisions[::10] if one]
    pages += ["/sessions?" + urlencode({"session": text}) for text in texts[::20]]
    shown = b"".join(_api(on.console, quote(page, safe="/?=&%+"))[1] for page in pages)
    # A mark of each text that survives escaping: its decision is on a page of its own.
    return pages, sum(one.encode() in shown for one in decisions if one)


def _drafted(on, texts):
    """Keep hostile texts as drafts of the policy; return the pages that show them."""
    headers = {
        "authorization": f"Bearer {SECRET}",
        "content-type": "application/x-www-form-urlencoded",
    }
    _, body = _api(on.console, "/policies")
    [file] = re.findall(r'name="file" value="([^"]*)"|edit[?]file=([^"]*)"', body.decode())[:1]
    name = unquote_plus(file[0] or file[1])
    for text in texts:
        form = urlencode({"file": name, "text": f"{text}:\n  - '{text}'\n", "draft": ""})
        ask(on.console, "POST", "/policies/drafts", form.encode(), headers)
    _, body = _api(on.console, "/policies")
    return re.findall(r'href="(/policies/drafts/[0-9a-f]+)"', body.decode())
