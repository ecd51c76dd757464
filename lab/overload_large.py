"""Small calls of other principals while two clients send the guard all that one message can carry.

``python -m lab.overload_large PORT PRINCIPAL KIND`` is a client that makes one large request after
the other until its standard input ends: ``arguments`` of 5 to 7.5 MB that no mapping declares, or
``listing``, a list of 30,000 tools.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from guard.processes.loopback import Rig
from guard.replay.reports import Check, Report
from lab.load import UPSTREAM
from lab.overload import DEADLINE, Agent, Tally, run_agents
from lab.pages import page
from lab.tool_server import TOOL
from lab.wire import call_body, credentials, percentile, secret_of, shown

if TYPE_CHECKING:
    from pathlib import Path

    from guard.core.model import Json
    from lab.load import Progress

TOOLS: Final = 30_000
SIZES: Final = (5_000_000, 7_500_000)
AGENTS: Final = 4
RATE: Final = 25.0
"""Small calls per second of each agent."""
ROUNDS: Final = 2
QUIET, LOUD, LISTER = "quiet", "loud", "lister"
_PARTS: Final = 250
"""Texts of a list in the arguments."""


def _bodies(kind: str) -> list[bytes]:
    """Return the requests of a client, which it sends in turn."""
    if kind == "listing":
        return [b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}']
    found: list[bytes] = []
    for size in SIZES:
        extras: tuple[Json, ...] = (
            page(size, size),
            [f"user{n}@host{n}.test" for n in range(size // 24)],
            [page(size // _PARTS, n) for n in range(_PARTS)],
        )
        for extra in extras:
            arguments: dict[str, Json] = {"to": "team@example.com", "body": "hi", "extra": extra}
            found.append(call_body(TOOL, arguments))
    return found


def send_large(port: int, principal: str, kind: str) -> None:
    """Make one large request after the other until standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    head = {"content-type": "application/json", **shown(secret_of(principal), principal)}
    bodies = itertools.cycle(_bodies(kind))
    print(port, flush=True)
    while not ended.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/mcp", next(bodies), head)
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            ended.wait(0.1)
        finally:
            connection.close()


def measure_large(policy: Path, *, seconds: float, progress: Progress) -> dict[str, list[float]]:
    """Return the seconds of small calls alone, beside large ones, and beside large ones elsewhere.

    The last ones go to the tool server directly: on a machine of few cores their clients and
    servers alone delay small calls, whatever the guard does.  A call that had no answer in time
    counts with the whole deadline.

    Args:
        policy: of the guard.
        seconds: of each of the loads; there are two rounds of each.
        progress: told what is going on, and which share is done.

    Raises:
        GuardError: a part could not be started.
    """
    found: dict[str, list[float]] = {"alone": [], "beside": [], "direct": []}
    with Rig() as rig:
        upstream = rig.server(UPSTREAM, str(TOOLS))
        port = rig.guard(policy, upstream, *credentials(rig.directory, QUIET, LOUD, LISTER))
        _seconds(port, 1.0)
        for number in range(ROUNDS):
            for name, target in (("alone", None), ("beside", port), ("direct", upstream)):
                progress(f"small calls {name}", 0.6 + 0.2 * number)
                with ExitStack() as stack:
                    for sender, kind in ((LOUD, "arguments"), (LISTER, "listing")):
                        if target is not None:
                            client = rig.begin_server(__name__, str(target), sender, kind)
                            stack.callback(client.stop)
                            client.printed_port()
                    found[name] += _seconds(port, seconds)
    return found


def _seconds(port: int, seconds: float) -> list[float]:
    tally = Tally()
    agents = [Agent(port, QUIET, tally, rate=RATE, patient=True, seed=n) for n in range(AGENTS)]
    asyncio.run(run_agents(agents, seconds))
    return [*tally.seconds, *[DEADLINE] * (tally.made - tally.served)]


def with_large_messages(
    report: Report, policy: Path, *, seconds: float, progress: Progress
) -> Report:
    """Return a report with the figure of small calls beside large messages.

    Args:
        report: of the overload.
        policy: of the guard.
        seconds: of each load.
        progress: told what is going on, and which share is done.
    """
    found = measure_large(policy, seconds=seconds, progress=progress)
    p99 = {name: percentile(times, 99) or DEADLINE for name, times in found.items()}
    checks = [
        Check(
            id=name,
            value=round(p99["beside"] / p99[base], 2),
            unit="ratio",
            n=len(found["beside"]),
            target=target,
        )
        for name, base, target in (
            ("p99_others_during_large_ratio", "alone", "<= 1.5"),
            ("p99_others_during_large_against_direct_ratio", "direct", None),
        )
    ]
    details = {name: {"n": len(found[name]), "p99_s": p99[name]} for name in found}
    more = {"checks": [*report.checks, *checks], "details": report.details | {"large": details}}
    return report.model_copy(update=more)


if __name__ == "__main__":
    send_large(int(sys.argv[1]), sys.argv[2], sys.argv[3])
