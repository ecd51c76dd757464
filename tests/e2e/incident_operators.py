"""Operators of incidents as processes of their own, that may be killed at any point of a step.

Reads commands from standard input, one a line: ``INCIDENT ACT POINT NUMBER...``; forks one operator
per number of the last words (``contain`` and ``repair`` take any), waits for all, and prints their
ends.  A repair writes through a guard of its own, under the policy that is named first.
"""

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path

from guard.core.errors import GuardError
from guard.core.model import Identity
from guard.extensions.propagation.repair import RESTORE, RESTORED
from guard.operations.incidents import IncidentOperator
from guard.policy import load_policies
from guard.provenance.seal import Seal
from guard.store.store import RedisSessionStore
from tests.guards import guard_on
from tests.unit.provenance.agents import Agent

NOW = 1_700_000_500.0
TOLD = 3
"""Exit code of an operator that was told that somebody else is at work."""


def writer(store, policy):
    """Return what saves through a guard, in a session that has read nothing."""
    agent = Agent(
        guard_on(store, load_policies([Path(policy)])), Identity("op", f"repair-{os.getpid()}")
    )

    async def write(tool, arguments):
        verdict = await agent.call(tool, arguments, "ok", at=NOW)
        if not verdict.enforced.forwards:
            raise OSError(verdict.reasons[0].code)

    return write


async def repair(operator, incident, write, at=NOW):
    """Restore what can be; return what came of each item of which anything did."""
    found, texts = await operator.proposals(incident)
    return [
        await operator.repair(incident, one, (texts, b""), write, at, "op")
        for one in found
        if one.action in {RESTORE, RESTORED}
    ]


async def act(url, namespace, key, policy, command):
    """Take one step; die by SIGKILL where the command says so."""
    incident, what, point, argument = command

    def reached(name):
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)

    store = RedisSessionStore.at(url, namespace=namespace, timeout=60.0)
    operator = IncidentOperator(store, Seal(key), reached=reached)
    try:
        if what == "contain":
            await operator.contain(incident, NOW, argument)
        elif what == "undo":
            await operator.undo(incident, int(argument), NOW, "op")
        elif what == "repair":
            await repair(operator, incident, writer(store, policy))
        else:
            await operator.release(incident, [argument], NOW, "op")
    except GuardError:
        return TOLD
    finally:
        await store.aclose()
    return 0


def main():
    """Serve until standard input ends."""
    url, namespace, key, policy = sys.argv[1:]
    for line in sys.stdin:
        *command, arguments = line.rstrip("\n").split(" ", 3)
        children = []
        for argument in arguments.split(","):
            child = os.fork()
            if not child:
                code = 1
                try:
                    given = (*command, argument)
                    code = asyncio.run(act(url, namespace, bytes.fromhex(key), policy, given))
                except Exception:  # noqa: BLE001  (a child tells what ended it)
                    traceback.print_exc()
                finally:
                    os._exit(code)
            children.append(child)
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        sys.stdout.write(" ".join(map(str, ends)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
