"""``guard lab bench peers``: the guard beside other gateways of MCP, in one run, as ratios.

Each peer is installed from its package into an environment of its own (``make bench-peers``), gets
the same tool server behind it and the same call in front, and is loaded in turns with the guard.
Each runs as its own documentation starts it, with one process, without logging of single calls
where that can be chosen, and without authentication where it can be left out.
"""

from __future__ import annotations

import json
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import httpx

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.replay.reports import Report, machine
from lab.load import (
    UPSTREAM,
    Contestant,
    Load,
    Post,
    Progress,
    load_in_turns,
    rates,
    ratio,
    stock_mitmdump,
)
from lab.tool_server import CALL, TOOL

if TYPE_CHECKING:
    from collections.abc import Callable

    Start = Callable[[Rig, Path, int, int], Post]
    """Rig, directory of the environments, port of the tool server, own port to its request."""

HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway to compare with."""

    name: str
    package: str
    environment: str
    """Its directory among the environments."""
    program: str
    """In that directory; it is installed where this exists."""
    start: Start
    inspects: str


def _fastmcp(mode: str) -> Start:
    def start(rig: Rig, place: Path, upstream: int, port: int) -> Post:
        url = f"http://127.0.0.1:{upstream}/mcp"
        words = (str(HERE / "fastmcp_proxy.py"), mode, url, str(port))
        child = rig.start("fastmcp", str(place / "fastmcp" / "bin" / "python"), *words)
        child.wait_listening(port)
        return Post()

    return start


def _litellm(rig: Rig, place: Path, upstream: int, port: int) -> Post:
    key = f"sk-{secrets.token_hex(24)}"
    server = {"url": f"http://127.0.0.1:{upstream}/mcp", "transport": "http"}
    config = {
        "general_settings": {"master_key": key},
        "mcp_servers": {"tools": {**server, "allow_all_keys": True}},
    }
    file = rig.directory / "litellm.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    words = ("--config", str(file), "--host", "127.0.0.1", "--port", str(port))
    program = str(place / "litellm" / "bin" / "litellm")
    # Without it, the start waits for a list of prices from the network.
    child = rig.start(
        "litellm",
        "env",
        "LITELLM_LOCAL_MODEL_COST_MAP=True",
        program,
        *words,
        "--telemetry",
        "False",
    )
    child.wait_listening(port)
    headers = (("x-litellm-api-key", f"Bearer {key}"),)
    return Post(path="/mcp/", body=CALL.replace(TOOL, f"tools-{TOOL}"), headers=headers)


PEERS: Final = (
    Peer(
        "FastMCP proxy, shared session",
        "fastmcp",
        "fastmcp",
        "bin/fastmcp",
        _fastmcp("shared"),
        "parses MCP, validates; one upstream session for all clients",
    ),
    Peer(
        "FastMCP proxy",
        "fastmcp",
        "fastmcp",
        "bin/fastmcp",
        _fastmcp("default"),
        "parses MCP; an upstream session for each request",
    ),
    Peer(
        "LiteLLM MCP gateway",
        "litellm[proxy]",
        "litellm",
        "bin/litellm",
        _litellm,
        "who may call which tool (key, team); guardrails where configured (none here)",
    ),
)


GUARD: Final = "guard"
MITMDUMP: Final = "mitmdump"
DIRECT: Final = "no gateway"
INSPECTS: Final = {
    DIRECT: "nothing; the tool server itself",
    GUARD: "every call and result: policy, provenance, memory, content",
    MITMDUMP: "HTTP; addons see the messages",
}
TRY_SECONDS: Final = 30
TARGETS: Final = {
    "ratio_vs_fastmcp_proxy": ("FastMCP proxy, shared session", ">= 6"),
    "ratio_vs_fastmcp_proxy_default": ("FastMCP proxy", ">= 60"),
    "ratio_vs_litellm": ("LiteLLM MCP gateway", ">= 80"),
}
"""The peer that the guard's rate is divided by, and what the quotient should be."""


def bench_peers(
    policy: Path, place: Path, *, rounds: int, seconds: float, progress: Progress
) -> Report:
    """Run everything and return the report.

    Args:
        policy: of the guard.
        place: where ``make bench-peers`` has installed the peers.
        rounds: alternating ones.
        seconds: length of one load.
        progress: is told what is going on and which share is done.

    Raises:
        GuardError: the guard or the tool server could not be started.
    """
    with ExitStack() as stack:
        rig = stack.enter_context(Rig())
        upstream = rig.server(UPSTREAM)
        port = rig.guard(policy, upstream, "--workers", "1")
        plain = stock_mitmdump(rig, upstream)
        found = {
            name: Contestant(one, post=Post(numbered=True))
            for name, one in ((DIRECT, upstream), (GUARD, port), (MITMDUMP, plain))
        }
        inspects = dict(INSPECTS)
        missing: dict[str, str] = {}
        for number, peer in enumerate(PEERS):
            progress(f"starting {peer.name}", 0.3 * number / len(PEERS))
            own = stack.enter_context(Rig())
            try:
                found[peer.name] = _started(own, peer, place.resolve(), upstream)
                inspects[peer.name] = peer.inspects
            except (GuardError, OSError, ValueError, httpx.HTTPError) as error:
                own.stop()
                missing[peer.name] = str(error)
        loads = load_in_turns(found, rounds, seconds, progress)
    return Report(
        name="peers",
        machine=machine(),
        checks=[
            ratio(identifier, loads, (GUARD, peer), target, missing.get(peer, ""))
            for identifier, (peer, target) in TARGETS.items()
        ],
        details={
            "connections": found[GUARD].connections,
            "table": [_row(name, inspects[name], loads[name]) for name in found],
            "missing": missing,
            "rounds": rates(loads),
        },
    )


def _row(name: str, inspects: str, loads: list[Load]) -> dict[str, Any]:
    return {
        "gateway": name,
        "requests_per_second": round(median(load.per_second for load in loads), 1),
        "p50_ms": round(median(load.p50_ms for load in loads), 2),
        "p99_ms": round(median(load.p99_ms for load in loads), 2),
        "errors": sum(load.errors for load in loads),
        "inspects": inspects,
    }


def _started(rig: Rig, peer: Peer, place: Path, upstream: int) -> Contestant:
    """Start a peer and find that it answers the call with the tool server's result.

    Raises:
        GuardError: it is not installed, did not start, or answers something else.
    """
    if not (place / peer.environment / peer.program).exists():
        raise GuardError(
            f"{peer.package} is not installed in `{peer.environment}`; run `make bench-peers`"
        )
    port = free_port()
    post = peer.start(rig, place, upstream, port)
    headers = (
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        *post.headers,
    )
    post = replace(post, headers=headers, numbered=True)
    url = f"http://127.0.0.1:{port}{post.path}"
    answer = httpx.post(
        url, content=post.body, headers=dict(headers), timeout=TRY_SECONDS, trust_env=False
    ).text
    if '"sent"' not in answer:
        raise GuardError(f"{peer.name} does not answer the call: {answer[:300]}")
    return Contestant(port, post=post)
