"""Operators of incidents as processes of their own, that may be killed at any point of a step.

Reads commands from standard input, one a line: ``INCIDENT ACT POINT NUMBER...``; forks one operator
per number of the last words (``contain`` takes any), waits for all, and prints their ends.
"""

import asyncio
import os
import signal
import sys

from guard.adapters.redis.incidents import IncidentOperator
from guard.adapters.redis.store import RedisSessionStore
from guard.core.errors import GuardError
from guard.provenance.seal import Seal

NOW = 1_700_000_500.0
TOLD = 3
"""Exit code of an operator that was told that somebody else is at work."""


async def act(url, namespace, key, command):
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
        else:
            await operator.release(incident, [argument], NOW, "op")
    except GuardError:
        return TOLD
    finally:
        await store.aclose()
    return 0


def main():
    """Serve until standard input ends."""
    url, namespace, key = sys.argv[1:]
    for line in sys.stdin:
        *command, arguments = line.rstrip("\n").split(" ", 3)
        children = []
        for argument in arguments.split(","):
            child = os.fork()
            if not child:
                code = 1
                try:
                    given = (*command, argument)
                    code = asyncio.run(act(url, namespace, bytes.fromhex(key), given))
                finally:
                    os._exit(code)
            children.append(child)
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        sys.stdout.write(" ".join(map(str, ends)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
