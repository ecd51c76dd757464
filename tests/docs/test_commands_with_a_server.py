"""Commands of the documents that need a guard, a client, a memory or a waiting question run.

Each block runs line by line in a home directory of its own.  An example in the text (a decision id,
a port, a path below ``/run``) is replaced by what the home has.
"""

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from signal import SIGTERM
from uuid import uuid4

import pytest
from redis import Redis
from typer.testing import CliRunner

from guard import cli
from guard.processes.loopback import free_port, start
from tests.docs.documents import ROOT, blocks, commands
from tests.e2e.running_console import played, send
from tests.e2e.running_guard import wait_until
from tests.guards import KEY
from tests.unit.extensions.propagation.test_incidents import spread
from tests.unit.provenance.agents import POLICY

pytestmark = pytest.mark.e2e

SERVES = ("run", "decide", "federate", "console")
LISTENS = re.compile("guard ready|guard: console at|federation ready")
SECRET = "the secret of the front end, long enough"
FRONT_END = f'front = "{sha256(SECRET.encode()).hexdigest()}"\n'
GUARD = ("--policy", "policy.yaml", "--prompt-credentials", "front.toml", "--reverse")
MAY = {"doctor": (0, 1, 3), "stdio": (0, 128 + SIGTERM)}
"""Exit codes: what is amiss (no Envoy runs here), and that of the wrapped server."""
ENDS = (0, -SIGTERM)
"""Exit codes of what serves, after a SIGTERM."""
SECONDS = 240
SERVER = """
from mcp.server.fastmcp import FastMCP
server = FastMCP("tools")

@server.tool()
def read_page(url: str) -> str:
    return "nothing"

server.run()
"""
TOOLS = {"command": sys.executable, "args": ["server.py"]}


class Home:
    """A user's home directory, the working directory too, and what runs there."""

    def __init__(self, place, redis):
        self.place, self.redis = place, redis
        self.admin = free_port()
        self.ports, self.serving, self.incident, self.recipient = {}, [], "", ""
        state = place / ".local" / "state" / "egress-guard"
        for directory in (state, *(place / one for one in (".claude", ".codex", ".cursor"))):
            directory.mkdir(mode=0o700, parents=True)
        (state / "label.key").write_bytes(KEY)
        (state / "label.key").chmod(0o600)
        for name in ("policies", "deploy"):
            (place / name).symlink_to(ROOT / name)
        files = {
            "policy.yaml": POLICY + "propagation: {events: 1000, versions: 100}\n",
            "server.py": SERVER,
            "front-end.secret": SECRET,
            "memory.secret": SECRET,
            "front.toml": FRONT_END,
            "other.jsonl": "",
        }
        for name, text in files.items():
            (place / name).write_text(text, encoding="utf-8")
            (place / name).chmod(0o600)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GUARD_")}
        self.environment = kept | {
            "HOME": str(place),
            "XDG_STATE_HOME": str(place / ".local" / "state"),
            "PYTHONPATH": str(ROOT),
            "GUARD_REDIS": redis,
            "GUARD_AUDIT": str(place / "audit.jsonl"),
        }

    def play(self, line):
        """Run the command of a line, with what is here in the place of its examples."""
        words = [self._here(word) for word in line[1:]]
        if words[0] == "prompt":
            words += ["--admin", f"http://127.0.0.1:{self.admin}"]
        if words[0] == "prompt" or words[:2] == ["memory", "accept-loss"]:
            self._serve(["run", *GUARD, f"127.0.0.1:{free_port()}=http://tools.internal.example"])
        if words[:2] == ["memory", "accept-loss"]:
            self._lose_labels()
        if words[:2] == ["keys", "rotate"]:
            # A person waits for the minute that the page names.
            words += ["--in", "0"]
        if words[0] in SERVES:
            return self._serve(words)
        if words[0] == "init" and "--undo" not in words:
            self._configure_client()
        done = self._run(words)
        if "--remember" in words:
            # It is remembered once the call has gone out.
            assert self._send()[1] == "allow"
        if words[:2] == ["incident", "open"]:
            self.incident = re.search(r"inc-\w+", done)[0]
        return done

    def _ask(self):
        """Have a call wait for an answer; return its decision id."""
        self.recipient = f"{uuid4().hex}@evil.test"
        decision, verdict = self._send()
        assert verdict == "ask"
        return decision

    def _send(self):
        async def work(agent):
            await agent.say("Tell everybody about it")
            return await send(agent, {"to": self.recipient, "body": "b"})

        return self.work(work)

    def work(self, work):
        """Return what an agent's work gives."""
        return played(self.redis, self.place / "policy.yaml", work)

    def _configure_client(self):
        """Write the configurations of clients: a server that is a command, and one at a URL."""
        words = ("-m", "guard.demo.servers")
        child = start(self.place / "mail.log", *words, read=True, root=ROOT)
        self.serving.append((set(), child))
        servers = {"tools": TOOLS, "mail": {"url": f"http://127.0.0.1:{child.printed_port()}/mcp"}}
        for name in (".mcp.json", ".cursor/mcp.json"):
            text = json.dumps({"mcpServers": servers})
            (self.place / name).write_text(text, encoding="utf-8")

    def _lose_labels(self):
        """Empty the Redis, and wait until the guard has seen it."""
        with Redis.from_url(self.redis) as client:
            client.flushall()
        log = self.serving[-1][1]
        wait_until(lambda: "label store is empty" in log.said(), "the loss of the labels", SECONDS)

    def _here(self, word):
        word = re.sub(r"^(unix:)?~/", rf"\g<1>{self.place}/", word)
        word = re.sub(r"/run/(user/1000/)?guard\b", str(self.place / "run"), word)
        word = word.replace("redis://localhost", self.redis)
        word = re.sub(r"127\.0\.0\.1:(\d+)", self._port, word)
        return self._example(word)

    def _port(self, found):
        port = self.ports.setdefault(found[1], free_port())
        return f"127.0.0.1:{port}"

    def _example(self, word):
        listed = {"MARK": ["grants", "list"], "0c7d5e8a2b11": ["keys", "list", "labels"]}
        if word in listed:
            return self._run(listed[word]).split()[0]
        if word == "4f1c0b7a9d2e6f83":
            return self._ask()
        here = {"npx": sys.executable, "some-server": "server.py"}
        return (here | {"inc-167a8b312290": self.incident}).get(word, word)

    def _serve(self, words):
        """Start a command that serves, after those that have its addresses."""
        wanted = set(re.findall(r"127\.0\.0\.1:\d+", " ".join(words)))
        for addresses, child in self.serving:
            if addresses & wanted:
                assert child.stop() in ENDS, child.said()
        if words[0] in {"run", "decide"} and "--admin" not in words:
            words = [*words, "--admin", f"127.0.0.1:{self.admin}"]
        log = self.place / f"{len(self.serving)}.log"
        child = start(log, "-m", "guard", *words, environment=self.environment, root=self.place)
        self.serving.append((wanted, child))
        wait_until(
            lambda: LISTENS.search(child.said()) or child.process.poll(), "a server", SECONDS
        )
        assert child.process.poll() is None, child.said()

    def stop(self):
        """End what serves, as its operator would."""
        ended = [(child.stop(), child.said()) for _, child in self.serving]
        assert [one for one in ended if one[0] not in ENDS] == []

    def _run(self, words):
        """Run a command to its end, in this process where it does not own standard input."""
        if words[0] == "stdio":
            command = [sys.executable, "-m", "guard", *words]
            code = subprocess.run(
                command, cwd=self.place, env=self.environment, check=False, input=b""
            ).returncode
            said = ""
        else:
            done = CliRunner().invoke(cli.app, words, env=self.environment, input="y\n")
            code, said = done.exit_code, done.stdout
            assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert code in MAY.get(words[0], (0,)), (words, said)
        return said


@pytest.fixture
def home(short_directory, own_server, monkeypatch):
    """Give a home directory on a Redis of its own."""
    made = Home(short_directory(), own_server.url)
    monkeypatch.chdir(made.place)
    yield made
    made.stop()


@pytest.mark.parametrize("text", blocks("console", "needs a server"))
def test_commands_that_need_a_server_run(text, home):
    """Each line does what it says, in order, without an error."""
    lines = list(commands(text))
    if ["guard", "incident", "open"] in (line[:3] for line in lines):
        # A poisoned item spreads from one agent to the next.
        home.work(spread)
    for line in lines:
        home.play(line)
