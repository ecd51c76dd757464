"""A real ``guard console`` process, on an audit log and a Redis of the test."""

import asyncio
import os
import re
import time
from contextlib import aclosing
from types import SimpleNamespace

from guard.core.calls import ToolResult
from guard.policy import load_policies
from guard.processes.loopback import start
from guard.store.store import RedisSessionStore
from tests.e2e.running_guard import wait_until
from tests.guards import KEY, guard_on
from tests.unit.provenance.agents import Agent

_LINK = re.compile(r"guard: console at (\S+)/sign-in/\S+ ")


def played(redis, policy, work):
    """Return what an agent's work gives, under a policy file and on the Redis of a console."""

    async def play():
        async with aclosing(RedisSessionStore.at(redis, timeout=60.0)) as store:
            return await work(Agent(guard_on(store, load_policies([policy])), at=time.time()))

    return asyncio.run(play())


async def send(agent, arguments):
    """Send, where that is allowed; return the id of the decision and the verdict."""
    asked, verdict = await agent.ask("send", arguments)
    if verdict.enforced.forwards:
        await agent.guard.observe(ToolResult(asked, "sent", agent.at))
    return asked.call.id, verdict.enforced.label


def start_console(directory, redis, *options):
    """Start it in its state directory, with audit log and label key; return process and URL."""
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
    return SimpleNamespace(child=child, url=found[1])
