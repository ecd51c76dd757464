"""An Envoy on loopback with the shipped configuration, in front of a ``guard decide``.

For tests and benchmarks: what they measure is ``deploy/envoy/envoy.yaml``, with addresses,
certificates and servers of their own in it and nothing else changed.
"""

from __future__ import annotations

import json
import shutil
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import GuardError
from guard.processes.loopback import Child, Rig, free_port, start
from guard.settings import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


SHIPPED: Final = Path(__file__).parents[1] / "deploy" / "envoy" / "envoy.yaml"
INSTALLED: Final = Path(__file__).parents[1] / "tests" / "envoy" / ".venv"
"""Directory in which ``make envoy`` installs it; its Python package carries the binary."""
_ANYWHERE: Final = "0.0.0.0"  # noqa: S104  (replaced by loopback)
_UNSUPPORTED: Final = frozenset({"--forward", "--ca", "--upstream-proxy"})
"""Options of ``guard run`` about what an Envoy in front does not do."""
_LISTS: Final = frozenset({"--model-api", "--authorization-server"})
_SHARED: Final = frozenset(
    f"--{name}"
    for name in (
        *("policy", "redis", "data", "admin", "audit", "credentials", "label-key"),
        *("upstream-ca", "workers"),
    )
)
"""Options that ``guard decide`` has as well; the others are settings."""


def find_envoy() -> str | None:
    """Return the Envoy that is on the PATH or that ``make envoy`` has installed, None without."""
    if found := shutil.which("envoy"):
        return found
    for base in (INSTALLED, Path(sys.prefix)):
        for binary in base.glob("lib/python3*/site-packages/envoy/_bin/envoy*"):
            return str(binary)
    return None


@dataclass(frozen=True, slots=True)
class Edge:
    """Additions to the shipped configuration of an Envoy."""

    guard: str
    """``unix:PATH`` or ``HOST:PORT`` of the guard."""
    clear: Mapping[int, str]
    """Ports of listeners in the clear, and the server each leads to."""
    tls: Mapping[int, str] = field(default_factory=dict)
    """Ports of listeners over TLS and QUIC, and the server each leads to."""
    certificates: Mapping[str, Path] = field(default_factory=dict)
    """Files by the names that the shipped configuration gives them; needed by these."""
    egress: str = ""
    """Path of the socket of the guard's way out; empty leaves it out."""
    servers: Mapping[str, tuple[str, int]] | None = None
    """Addresses of the servers that the way out leads to."""
    secret: str = ""
    """Secret that Envoy shows the guard; empty shows nothing."""


def shipped() -> dict[str, Any]:
    """Return the shipped configuration.

    Raises:
        GuardError: this installation has none.
    """
    from ruamel.yaml import YAML

    if not SHIPPED.is_file():
        raise GuardError(
            "`deploy/envoy/envoy.yaml` is not part of this installation; use a checkout"
        )
    # Aliases stand for copies: one listener is changed, the others stay.
    loaded = YAML(typ="safe", pure=True).load(SHIPPED.read_text("utf-8"))
    copied: dict[str, Any] = _with(loaded, {})
    return copied


def configuration(edge: Edge, *, admin: int, log: Path) -> dict[str, Any]:
    """Return the shipped configuration with addresses, certificates and servers of one's own."""
    found: dict[str, Any] = _with(shipped(), {9901: admin})
    resources = found["static_resources"]
    by_name = {one["name"]: one for one in resources["listeners"] + resources["clusters"]}
    listeners = [
        _with(by_name["clear"], {"clear": f"clear-{port}", 8080: port, "tools": name})
        for port, name in edge.clear.items()
    ]
    for port, name in edge.tls.items():
        changes: dict[object, object] = {
            **{kind: f"{kind}-{port}" for kind in ("tls", "quic")},
            _ANYWHERE: "127.0.0.1",
            8443: port,
            "tools": name,
            **{f"/etc/envoy/tls/{name}": str(file) for name, file in edge.certificates.items()},
        }
        listeners += [_with(by_name[kind], changes) for kind in ("tls", "quic")]
    clusters = [by_name["guard"]]
    [end] = clusters[0]["load_assignment"]["endpoints"][0]["lb_endpoints"]
    end["endpoint"]["address"] = _place(edge.guard)
    if edge.egress:
        listeners.append(_with(by_name["egress"], {"/run/guard/egress.sock": edge.egress}))
        [host] = _http(listeners[-1])["route_config"]["virtual_hosts"]
        [route] = host["routes"]
        host["routes"] = [_with(route, {"tools": name}) for name in edge.servers or {}]
        for name, (address, port) in (edge.servers or {}).items():
            changes = {"tools": name, "tools.internal": address, 8000: port}
            clusters.append(_with(by_name["tools"], changes))
    for one in listeners:
        http = _http(one)
        if "access_log" in http:
            line = http["access_log"][0]["typed_config"]["log_format"]
            kind = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
            config = {"@type": kind, "path": str(log), "log_format": line}
            name = "envoy.access_loggers.file"
            http["access_log"] = [{"name": name, "typed_config": config}]
        if edge.secret and one["name"] != "egress":
            header = {"key": "x-guard-front", "value": edge.secret}
            added = {"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for host in http["route_config"]["virtual_hosts"]:
                for route in host["routes"]:
                    route["request_headers_to_add"].append(added)
    resources["listeners"], resources["clusters"] = listeners, clusters
    return found


def _with(tree: Any, changes: Mapping[Any, object]) -> Any:
    """Return a copy of a tree in which some values are replaced by others."""
    if isinstance(tree, dict):
        return {key: _with(value, changes) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with(item, changes) for item in tree]
    return changes.get(tree, tree)


def _http(listener: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return config


def _place(text: str) -> dict[str, Any]:
    if text.startswith("unix:"):
        return {"pipe": {"path": text.removeprefix("unix:")}}
    host, _, port = text.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


@dataclass(slots=True)
class RunningEnvoy:
    """An Envoy process."""

    child: Child
    admin: int
    log: Path
    """Its access log: one JSON line for each request that it has answered."""

    def lines(self) -> list[dict[str, Any]]:
        """Return its access log; a line follows its answer after some milliseconds."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]

    def refused(self) -> int:
        """Return how many requests of agents it has answered by itself, or broken off."""
        stats = self._ask("stats?filter=agents.downstream_cx_protocol_error").decode()
        own = [one for one in self.lines() if one["details"] != "via_upstream"]
        return int(stats.rpartition(": ")[2] or 0) + len(own)

    def _ask(self, path: str) -> bytes:
        url = f"http://127.0.0.1:{self.admin}/{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            body: bytes = answer.read()
        return body


def start_envoy(directory: Path, edge: Edge) -> RunningEnvoy:
    """Start an Envoy and wait until it listens.

    Args:
        directory: for its configuration and logs.
        edge: what it is told besides what ships.

    Raises:
        GuardError: it is not installed, or did not start.
    """
    binary = find_envoy()
    if binary is None:
        raise GuardError("`envoy` is not installed; run `make envoy`")
    admin, log = free_port(), directory / "envoy-access.log"
    config = directory / "envoy.json"
    config.write_text(json.dumps(configuration(edge, admin=admin, log=log)), "utf-8")
    # A base id of its own: Envoys of one machine share memory by it otherwise.
    words = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
    words += ["--file-flush-interval-msec", "10"]
    child = start(directory / "envoy.log", binary, "-c", str(config), *words)
    for port in edge.clear:
        child.wait_listening(port)
    return RunningEnvoy(child, admin, log)


def fronted(words: Sequence[str], directory: Path, place: str = "") -> tuple[list[str], Edge]:
    """Translate the options of a ``guard run`` into a ``guard decide`` with an Envoy in front.

    Args:
        words: options of ``guard run``.
        directory: private; for the guard's socket and a file of settings.
        place: where the guard listens, if not on that socket.

    Returns:
        the command and options of the guard, and what its Envoy is told.

    Raises:
        GuardError: an Envoy in front cannot do what they ask for.
    """
    place = place or f"unix:{directory / 'front.sock'}"
    options, settings, ports = ["decide", "--listen", place], dict[str, Any](), dict[int, str]()
    flat = iter(
        piece
        for word in words
        for piece in (word.split("=", 1) if word.startswith("--") else [word])
    )
    for option in flat:
        value = next(flat)
        if option == "--reverse":
            one = Listener.parse(value)
            if one.route:
                raise GuardError("servers under paths are listeners of the guard's own")
            ports[one.port] = name = f"s{one.port}"
            principal = f"{one.principal}@" if one.principal else ""
            options += ["--server", f"{principal}{name}={one.upstream}{one.endpoint}"]
        elif option in _UNSUPPORTED:
            raise GuardError(f"`{option}` is of listeners of the guard's own")
        elif option in _SHARED:
            options += [option, value]
        elif option in _LISTS:
            settings.setdefault(option, []).append(value)
        elif option != "--pep":
            settings[option] = value
    lines = (f"{k.strip('-').replace('-', '_')} = {json.dumps(v)}\n" for k, v in settings.items())
    (directory / "front.toml").write_text("".join(lines), "utf-8")
    return [*options, "--config", str(directory / "front.toml")], Edge(place, ports)


class FrontedRig(Rig):
    """A rig whose guard has an Envoy in front, on the ports of its listeners."""

    def begin_guard(self, *options: str, admin: int = 0) -> Child:
        """Start ``guard decide`` and its Envoy, in place of ``guard run``.

        Raises:
            GuardError: Envoy is not installed, or cannot do what the options ask for.
        """
        words = ["--admin", f"127.0.0.1:{admin or free_port()}", "--audit", str(self.audit)]
        words += ["--label-key", str(self.directory / "label.key"), "--data", "memory"]
        command, edge = fronted([*words, *options], self.directory)
        self.keep(start_envoy(self.directory, edge).child)
        return self.start("guard", "-m", "guard", *command)
