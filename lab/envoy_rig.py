"""An Envoy on loopback with the shipped configuration, in front of a ``guard decide``.

For tests and benchmarks: what they measure is ``deploy/envoy/envoy.yaml``, with addresses,
certificates and servers of their own in it and nothing else changed.
"""

from __future__ import annotations

import copy
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
    from collections.abc import Iterable, Mapping, Sequence


SHIPPED: Final = Path(__file__).parents[1] / "deploy" / "envoy" / "envoy.yaml"
INSTALLED: Final = Path(__file__).parents[1] / "tests" / "envoy" / ".venv"
"""Directory in which ``make envoy`` installs it; its Python package carries the binary."""
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
class Certificates:
    """Files of a listener that speaks TLS."""

    chain: Path
    key: Path
    clients: Path
    """PEM of the authorities of clients' certificates."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Additions to the shipped configuration of an Envoy."""

    guard: str
    """``unix:PATH`` or ``HOST:PORT`` of the guard."""
    clear: Mapping[int, str]
    """Ports of listeners in the clear, and the server each leads to."""
    tls: Mapping[int, str] = field(default_factory=dict)
    """Ports of listeners over TLS and QUIC, and the server each leads to."""
    certificates: Certificates | None = None
    """Needed by these."""
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
    return json.loads(json.dumps(loaded))  # type: ignore[no-any-return]


def configuration(edge: Edge, *, admin: int, log: Path) -> dict[str, Any]:
    """Return the shipped configuration with addresses, certificates and servers of one's own."""
    found = shipped()
    found["admin"]["address"]["socket_address"]["port_value"] = admin
    resources = found["static_resources"]
    by_name = {one["name"]: one for one in resources["listeners"]}
    listeners = [_clear(by_name["clear"], port, name) for port, name in edge.clear.items()]
    if edge.certificates is not None:
        for port, name in edge.tls.items():
            for kind in ("tls", "quic"):
                listeners.append(_secured(by_name[kind], port, edge.certificates, name))
    clusters = {one["name"]: one for one in resources["clusters"]}
    _lead_to(clusters["guard"], _place(edge.guard))
    kept = [clusters["guard"]]
    if edge.egress:
        listeners.append(_egress(by_name["egress"], edge))
        for name, (host, port) in (edge.servers or {}).items():
            cluster = copy.deepcopy(clusters["tools"])
            cluster["name"] = cluster["load_assignment"]["cluster_name"] = name
            _lead_to(cluster, {"socket_address": {"address": host, "port_value": port}})
            kept.append(cluster)
    for one in listeners:
        http = _http(one)
        if "access_log" in http:
            line = http["access_log"][0]["typed_config"]["log_format"]
            kind = "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog"
            config = {"@type": kind, "path": str(log), "log_format": line}
            name = "envoy.access_loggers.file"
            http["access_log"] = [{"name": name, "typed_config": config}]
        if edge.secret and one["name"] != "egress":
            for route in _routes(http):
                header = {"key": "x-guard-front", "value": edge.secret}
                action = "OVERWRITE_IF_EXISTS_OR_ADD"
                route["request_headers_to_add"].append({"header": header, "append_action": action})
    resources["listeners"], resources["clusters"] = listeners, kept
    return found


def _clear(listener: dict[str, Any], port: int, server: str) -> dict[str, Any]:
    made = copy.deepcopy(listener)
    made["name"] = f"clear-{port}"
    made["address"]["socket_address"]["port_value"] = port
    _name(made, server)
    return made


def _secured(
    listener: dict[str, Any], port: int, files: Certificates, server: str
) -> dict[str, Any]:
    made = copy.deepcopy(listener)
    made["name"] += f"-{port}"
    made["address"]["socket_address"] |= {"address": "127.0.0.1", "port_value": port}
    config = made["filter_chains"][0]["transport_socket"]["typed_config"]
    common = config.get("downstream_tls_context", config)["common_tls_context"]
    common["tls_certificates"][0]["certificate_chain"]["filename"] = str(files.chain)
    common["tls_certificates"][0]["private_key"]["filename"] = str(files.key)
    if "validation_context" in common:
        common["validation_context"]["trusted_ca"]["filename"] = str(files.clients)
    _name(made, server)
    return made


def _egress(listener: dict[str, Any], edge: Edge) -> dict[str, Any]:
    made = copy.deepcopy(listener)
    made["address"]["pipe"]["path"] = edge.egress
    host = _http(made)["route_config"]["virtual_hosts"][0]
    template = host["routes"][0]
    host["routes"] = []
    for name in edge.servers or {}:
        route = copy.deepcopy(template)
        route["match"]["headers"][0]["string_match"]["exact"] = name
        route["route"]["cluster"] = name
        host["routes"].append(route)
    return made


def _name(listener: dict[str, Any], server: str) -> None:
    for route in _routes(_http(listener)):
        for added in route["request_headers_to_add"]:
            if added["header"]["key"] == "x-guard-server":
                added["header"]["value"] = server


def _http(listener: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return config


def _routes(http: dict[str, Any]) -> Iterable[dict[str, Any]]:
    return (route for host in http["route_config"]["virtual_hosts"] for route in host["routes"])


def _place(text: str) -> dict[str, Any]:
    if text.startswith("unix:"):
        return {"pipe": {"path": text.removeprefix("unix:")}}
    host, _, port = text.rpartition(":")
    return {"socket_address": {"address": host, "port_value": int(port)}}


def _lead_to(cluster: dict[str, Any], address: dict[str, Any]) -> None:
    cluster["load_assignment"]["endpoints"] = [
        {"lb_endpoints": [{"endpoint": {"address": address}}]}
    ]


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
