"""A real ``guard console`` process, on an audit log and a Redis of the test."""

import os
import re
from dataclasses import dataclass

from guard.processes.loopback import Child, start
from tests.e2e.running_guard import wait_until
from tests.guards import KEY

_LINK = re.compile(r"guard: console at (\S+)/sign-in/(\S+) ")


@dataclass
class RunningConsole:
    """A console and where it is."""

    child: Child
    url: str
    secret: str
    """Of the printed link."""


def start_console(directory, redis, *options):
    """Start it; ``directory`` becomes its state directory, with audit log and label key."""
    key = directory / "label.key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    command = ["-m", "guard", "console", "127.0.0.1:0", "--redis", redis, "--label-key", str(key)]
    command += ["--audit", str(directory / "audit.jsonl"), *options]
    variables = {**os.environ, "XDG_STATE_HOME": str(directory)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    child = start(directory / "console.log", *command, environment=variables)

    def printed():
        assert child.process.poll() is None, child.log.read_text("utf-8")
        return _LINK.search(child.log.read_text("utf-8"))

    found = wait_until(printed, "the console's link")
    return RunningConsole(child, found[1], found[2])
