"""Other MCP gateways: how each is started in front of the tool server, and what it inspects.

Each runs from its package as its own documentation starts it, with one process, without logging of
single calls where that can be chosen, and without authentication where it can be left out.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.load import Post
from lab.tool_server import CALL, TOOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.processes.loopback import Rig

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
