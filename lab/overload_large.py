"""Small calls of other principals while two clients send the guard all that one message can carry.

``python -m lab.overload_large`` is the upstream, which lists 30,000 tools.
``python -m lab.overload_large client PORT PRINCIPAL KIND`` is a client that makes one large
request after the other until its standard input ends: ``arguments`` of 5 to 7.5 MB that no mapping
declares, or ``listing``, a list of the tools.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from guard.processes.loopback import Rig
from guard.replay.reports import Check, Report
from lab.load import ANSWER, Responder, serve_until_end_of_input
from lab.overload import DEADLINE, Agent, Tally, run_agents, secret
from lab.pages import page, percentile
from lab.wire import call_body, shown, write_credentials

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guard.core.model import Json

TOOLS: Final = 30_000
SIZES: Final = (5_000_000, 7_500_000)
AGENTS: Final = 4
RATE: Final = 25.0
"""Small calls per second of each agent."""
ROUNDS: Final = 2
QUIET, LOUD, LISTER = "quiet", "loud", "lister"
_PARTS: Final = 250
"""Texts of a list in the arguments."""


class ListingServer(Responder):
    """A tool server with a long list of tools."""

    def answer(self, head: bytes, body: bytes) -> bytes:
        """Return the list of tools where it is asked for."""
        del head
        return _LISTING if b'"tools/list"' in body[:200] else ANSWER


def _listing() -> bytes:
    tools = [
        {
            "name": f"tool_{n}",
            "description": f"Returns what is known of item {n}.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
        }
        for n in range(TOOLS)
    ]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


_LISTING: bytes = b""


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
            found.append(call_body("email_send_email", arguments))
    return found


def send_large(port: int, principal: str, kind: str) -> None:
    """Make one large request after the other until standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    head = {"content-type": "application/json", **shown(secret(principal), principal)}
    bodies, count = _bodies(kind), 0
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    for body in itertools.cycle(bodies):
        if ended.is_set():
            break
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/mcp", body, head)
            connection.getresponse().read()
            count += 1
        except (OSError, http.client.HTTPException):
            ended.wait(0.1)
        finally:
            connection.close()
    sys.stderr.write(f"{count} answered\n")


def measure_large(
    policy: Path, *, seconds: float, announce: Callable[[str], object] = lambda _: None
) -> dict[str, list[float]]:
    """Return the seconds of small calls alone, beside large ones, and beside large ones elsewhere.

    The last ones go to the tool server directly: on a machine of few cores their clients and
    servers alone delay small calls, whatever the guard does.  A call that had no answer in time
    counts with the whole deadline.

    Args:
        policy: of the guard.
        seconds: of each of the loads; there are two rounds of each.
        announce: what is going on.

    Raises:
        GuardError: a part could not be started.
    """
    found: dict[str, list[float]] = {"alone": [], "beside": [], "direct": []}
    with Rig() as rig:
        upstream = rig.server(__name__)
        secrets = {name: secret(name) for name in (QUIET, LOUD, LISTER)}
        credentials = write_credentials(rig.directory / "agents.toml", secrets)
        port = rig.guard(policy, upstream, "--credentials", str(credentials))
        asyncio.run(run_agents(_agents(port, Tally()), 1.0))
        for _ in range(ROUNDS):
            announce("small calls alone")
            found["alone"] += _seconds(port, seconds)
            for name, target in (("beside", port), ("direct", upstream)):
                announce(f"small calls, large messages {name}")
                with ExitStack() as stack:
                    for sender, kind in ((LOUD, "arguments"), (LISTER, "listing")):
                        client = rig.begin_server(__name__, "client", str(target), sender, kind)
                        stack.callback(client.stop)
                        client.printed_port()
                    found[name] += _seconds(port, seconds)
    return found


def _agents(port: int, tally: Tally) -> list[Agent]:
    return [Agent(port, QUIET, tally, rate=RATE, patient=True, seed=n) for n in range(AGENTS)]


def _seconds(port: int, seconds: float) -> list[float]:
    tally = Tally()
    asyncio.run(run_agents(_agents(port, tally), seconds))
    return [*tally.seconds, *[DEADLINE] * (tally.late + tally.failed + tally.refused)]


def with_large_messages(
    report: Report, policy: Path, *, seconds: float, progress: Callable[[str, float], object]
) -> Report:
    """Return a report with the figure of small calls beside large messages.

    Args:
        report: of the overload.
        policy: of the guard.
        seconds: of each load.
        progress: told what is going on, and which share is done.
    """
    found = measure_large(policy, seconds=seconds, announce=lambda said: progress(said, 0.9))
    details = {
        name: {"n": len(times), **{f"p{at}_ms": percentile(times, at) * 1e3 for at in (50, 99)}}
        for name, times in found.items()
    }
    ratios = (
        ("p99_others_during_large_ratio", "alone", "<= 1.5"),
        ("p99_others_during_large_against_direct_ratio", "direct", None),
    )
    checks = [
        *report.checks,
        *(
            Check(
                id=name,
                value=round(percentile(found["beside"], 99) / percentile(found[base], 99), 2),
                unit="ratio",
                n=len(found["beside"]),
                target=target,
            )
            for name, base, target in ratios
        ),
    ]
    more = {**report.details, "during_large": details}
    return Report(name=report.name, machine=report.machine, checks=checks, details=more)


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        send_large(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        _LISTING = _listing()
        asyncio.run(serve_until_end_of_input(ListingServer))
