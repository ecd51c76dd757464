"""Check of an Envoy configuration for ways around the guard and for routes that fail open.

Reads a bootstrap file (YAML or JSON), or the configuration that an Envoy runs with (its admin
port's ``/config_dump``, or a file of that).  The guard forwards what it has judged itself, so what
has to hold is little: every route that agents can reach leads to the guard and nowhere else, once;
what Envoy says of a client, no client can say; and nobody but the guard reaches the way out.
"""

from __future__ import annotations

import ipaddress
import json
import re
import stat
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from guard.core.errors import InputError
from guard.runtime.doctor_checks import Checked, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

Config = dict[str, Any]
SECONDS: Final = 5.0
GUARD: Final = "guard"
"""Name of the cluster that leads to the guard, where its addresses are not given."""
ONCE: Final = frozenset({"connect-failure", "reset-before-request"})
"""Conditions of a retry under which nothing of the request has been sent."""
_SERVER, _CONNECTION = "x-guard-server", "x-guard-connection"
_SAID: Final = (_SERVER, _CONNECTION, "x-guard-front")
_PROVES: Final = frozenset({*_SAID, "x-forwarded-client-cert", "proxy-authorization"})
"""Headers by which the guard knows where a request goes, and of whom it is."""
_BEFORE: Final = frozenset(
    {
        *("basicauth", "buffer", "compressor", "connectionlimit", "cors", "csrf", "decompressor"),
        *("extauthz", "extproc", "healthcheck", "jwtauthn", "localratelimit", "oauth2"),
        *("ratelimit", "rbac", "router"),
    }
)
"""Filters that leave the way to the guard as it is, or that are looked at by themselves."""
_OF_CONNECTIONS: Final = frozenset(
    {"connectionlimit", "extauthz", "localratelimit", "ratelimit", "rbac"}
)
"""Filters that refuse connections and send none of their bytes on."""
_TYPED: Final = 2
"""A filter's type has more parts than these where its last but one is a version."""
_NOT_HTTP1: Final = frozenset(
    {
        *("http2_protocol_options", "http3_protocol_options"),
        *("use_downstream_protocol_config", "auto_config"),
    }
)
_CHANGES: Final = frozenset(
    {
        *("normalize_path", "merge_slashes", "path_with_escaped_slashes_action"),
        *("path_normalization_options", "strip_any_host_port", "strip_matching_host_port"),
        *("strip_trailing_host_dot", "early_header_mutation_extensions"),
    }
)
"""Settings by which a request that was judged becomes another one."""
_KEEPS: Final = (None, False, "KEEP_UNCHANGED", "REJECT_REQUEST")
_LEADS: Final = frozenset(
    {
        *("cluster", "timeout", "idle_timeout", "flush_timeout", "max_stream_duration"),
        *("retry_policy", "upgrade_configs", "priority", "auto_host_rewrite"),
        *("host_rewrite_literal", "append_x_forwarded_host"),
    }
)
"""Settings of a route on the way out: where it leads, and how long it waits."""
_OF_THE_CLIENT: Final = re.compile(
    r"%(?:REQ|REQ_WITHOUT_QUERY|PATH|QUERY_PARAMS?|REQUESTED_SERVER_NAME|DYNAMIC_METADATA"
    r"|FILTER_STATE|PER_REQUEST_STATE|COOKIE)\b"
)
"""Sources of a header's value that a client has chosen."""
_TAKE_OUT: Final = "take it out"
_DUMP: Final = "check what it runs with: `guard doctor --envoy http://127.0.0.1:9901`"


def _is_set(value: object) -> bool:
    return value not in (False, None)


_OPEN: Final = dict.fromkeys(
    ("failure_mode_allow", "allow_missing", "allow_missing_or_failed"),
    (_is_set, "fails open ({})", "what it decides must hold when it fails"),
)
"""Switches that let things through where a filter fails."""
_WRONG: Final[Mapping[str, tuple[Callable[[Any], bool], str, str]]] = {
    **_OPEN,
    **dict.fromkeys(
        ("request_mirror_policies", "hedge_policy", "internal_redirect_policy"),
        (bool, "`{}` sends a call more than once", _TAKE_OUT),
    ),
    **dict.fromkeys(
        ("cluster_header", "cluster_specifier_plugin"),
        (_is_set, "where it leads is not fixed", "name its cluster"),
    ),
    "connect_matcher": (_is_set, "tunnels: nobody judges what is in them", _TAKE_OUT),
    "retry_on": (
        lambda said: not {one.strip() for one in str(said).split(",") if one} <= ONCE,
        "by `{}` a call can be made twice",
        f"retry_on: {','.join(sorted(ONCE))}",
    ),
    "upgrade_type": (
        lambda said: str(said).lower() != "websocket",
        "upgrades to what nobody judges",
        "allow `websocket` only",
    ),
    "allow_chunked_length": (
        bool,
        "messages with a length and chunks are accepted",
        "allow_chunked_length: false",
    ),
    "forward_client_cert_details": (
        {"APPEND_FORWARD", "FORWARD_ONLY", "ALWAYS_FORWARD_ONLY"}.__contains__,
        "a client can say whose certificate it has",
        "forward_client_cert_details: SANITIZE_SET",
    ),
}
"""Settings that must not have a value, wherever they stand: test of it, finding and advice."""


@dataclass(frozen=True, slots=True)
class _Running:
    """Parts of a configuration that the check reads."""

    listeners: list[Config] = field(default_factory=list)
    clusters: list[Config] = field(default_factory=list)
    routes: dict[str, Config] = field(default_factory=dict)
    """Route configurations that listeners name."""
    admin: Config = field(default_factory=dict)
    is_whole: bool = True
    """True if nothing of it comes from a control plane that only the running Envoy knows."""


def check_envoy(source: str, listen: Collection[str] = (), *, servers: int = 1) -> list[Checked]:
    """Check an Envoy's configuration.

    Args:
        source: a file, or the URL of an admin port.
        listen: the guard's addresses (``unix:PATH`` or ``HOST:PORT``); without, the cluster called
            ``guard`` is taken to lead to it.
        servers: how many the guard knows.

    Raises:
        InputError: it cannot be read.
    """
    running = _load(source)
    check = _Check(running, frozenset(listen), servers)
    check.clusters()
    for listener in running.listeners:
        check.listener(listener)
    if not running.listeners:
        check.fail("", "no listener in it", _DUMP)
    elif not running.is_whole:
        check.warn("", "listeners, routes or clusters come from a control plane", _DUMP)
    if not any(one.status is Status.FAIL for one in check.found):
        count = sum(1 for one in running.listeners if not _is_private(one))
        detail = f"{count} listeners that agents reach, every route leads to the guard"
        check.found.insert(0, Checked("envoy", Status.OK, detail))
    return check.found


def _load(source: str) -> _Running:
    try:
        if source.startswith(("http://", "https://")):
            url = f"{source.rstrip('/')}/config_dump"
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310  (the operator's)
                document = json.load(answer)
        else:
            text = Path(source).read_text(encoding="utf-8")
            is_json = text.lstrip().startswith("{")
            document = json.loads(text) if is_json else YAML(typ="safe", pure=True).load(text)
    except (OSError, ValueError, YAMLError, UnicodeDecodeError) as error:
        raise InputError(
            f"the configuration of Envoy at `{source}` cannot be read ({type(error).__name__})"
        ) from error
    if not isinstance(document, dict):
        raise InputError(f"`{source}` is no configuration of an Envoy")
    if isinstance(document.get("configs"), list):
        return _dumped(document["configs"])
    static = _table(document, "static_resources")
    return _Running(
        listeners=_tables(static, "listeners"),
        clusters=_tables(static, "clusters"),
        admin=_table(document, "admin"),
        is_whole="dynamic_resources" not in document,
    )


def _dumped(configs: list[Config]) -> _Running:
    running = _Running()
    for key, value in _walk(configs):
        if key == "listener" and isinstance(value, dict):
            running.listeners.append(value)
        elif key == "cluster" and isinstance(value, dict):
            running.clusters.append(value)
        elif key == "admin" and isinstance(value, dict):
            running.admin.update(value)
        elif key in {"static_route_configs", "dynamic_route_configs"}:
            found = [one["route_config"] for one in value]
            running.routes.update({str(one.get("name")): one for one in found})
    return running


def _table(config: Mapping[str, Any], name: str) -> Config:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _tables(config: Mapping[str, Any], name: str) -> list[Config]:
    found = config.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _address(config: Config) -> str:
    """Return ``unix:PATH``, ``HOST:PORT``, or nothing where it is neither."""
    if pipe := _table(config, "pipe"):
        return f"unix:{pipe.get('path')}"
    place = _table(config, "socket_address")
    return f"{place.get('address')}:{place.get('port_value')}" if place else ""


def _addresses(cluster: Config) -> set[str]:
    return {
        _address(_table(_table(one, "endpoint"), "address"))
        for group in _tables(_table(cluster, "load_assignment"), "endpoints")
        for one in _tables(group, "lb_endpoints")
    }


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
    except ValueError:
        return False


def _is_private(listener: Config) -> bool:
    """Return whether only who may enter a directory reaches a listener."""
    return _address(_table(listener, "address")).startswith("unix:")


def _walk(node: object) -> Iterator[tuple[str, Any]]:
    """Yield every setting below a node, by its name."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield key, value
            yield from _walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value)


def _without(config: Config, *names: str) -> Config:
    return {key: value for key, value in config.items() if key not in names}


def _is_chosen(cluster: Config) -> bool:
    """Return whether a call chooses the server that a cluster leads to."""
    return cluster.get("type") in {"ORIGINAL_DST", "DYNAMIC"} or "cluster_type" in cluster


def _kind(filter_: Config) -> str:
    """Return which filter it is, whatever it is called: of its type, without its version."""
    kind = str(_table(filter_, "typed_config").get("@type", ""))
    parts = kind.rpartition("/")[2].split(".")
    if len(parts) > _TYPED and re.fullmatch(r"v\d\w*", parts[-2]):
        return parts[-3].replace("_", "")
    return str(filter_.get("name", "")).rpartition(".")[2].replace("_", "")


class _Check:
    """Findings about one configuration."""

    def __init__(self, running: _Running, listen: frozenset[str], servers: int) -> None:
        self.found: list[Checked] = []
        self._running = running
        self._listen = listen
        self._servers = servers
        self._clusters = {str(one.get("name")): one for one in running.clusters}
        self._mine = {
            name
            for name, one in self._clusters.items()
            if (_addresses(one) & listen if listen else name == GUARD)
        }

    def fail(self, where: str, detail: str, advice: str = _TAKE_OUT) -> None:
        """Note a way around the guard."""
        self.found.append(Checked(f"envoy {where}".rstrip(), Status.FAIL, detail, advice))

    def warn(self, where: str, detail: str, advice: str) -> None:
        """Note what may be meant."""
        self.found.append(Checked(f"envoy {where}".rstrip(), Status.WARN, detail, advice))

    def clusters(self) -> None:
        """Check the clusters that lead to the guard, and the admin port."""
        if not self._mine:
            advice = "give the guard's --listen, as `guard decide` has it"
            self.fail("clusters", "none leads to the guard", advice)
        for name in self._mine:
            cluster, where = self._clusters[name], f"cluster {name}"
            if self._listen and (others := _addresses(cluster) - self._listen):
                detail = f"leads to {', '.join(sorted(others))} as well, which is no guard"
                self.fail(where, detail, "take these endpoints out")
            if _is_chosen(cluster):
                self.fail(where, "its endpoints are the client's choice", "name them")
            options = dict(_walk(cluster.get("typed_extension_protocol_options")))
            if not _NOT_HTTP1.isdisjoint({*options, *cluster}):
                detail = "speaks HTTP/2 to the guard, which reads HTTP/1.1"
                self.fail(where, detail, "use http_protocol_options")
            if cluster.get("connection_pool_per_downstream_connection") is not True:
                advice = "connection_pool_per_downstream_connection: true"
                self.warn(where, "clients share connections to the guard", advice)
        address = _address(_table(self._running.admin, "address"))
        if address and not address.startswith("unix:") and not _is_loopback(address):
            detail = f"{address} is reached from elsewhere: it stops Envoy and changes its settings"
            self.fail("admin", detail, "bind it to 127.0.0.1")

    def listener(self, listener: Config) -> None:
        """Check one listener, with its filters and routes."""
        where = f"listener {listener.get('name') or _address(_table(listener, 'address'))}"
        is_private, managers = _is_private(listener), 0
        chains = (*_tables(listener, "filter_chains"), _table(listener, "default_filter_chain"))
        for filter_ in (one for chain in chains for one in _tables(chain, "filters")):
            config = _table(filter_, "typed_config")
            if not str(config.get("@type", "")).lower().endswith("httpconnectionmanager"):
                if _kind(filter_) not in _OF_CONNECTIONS:
                    self.fail(where, f"`{filter_.get('name')}` passes bytes on that nobody judges")
                self._look(where, config)
                continue
            managers += 1
            self._filters(where, config, is_private=is_private)
            self._routes(where, config, is_private=is_private)
        if not managers:
            self.fail(where, "is no HTTP", "only HTTP can be judged: take it out")
        mode = _table(_table(listener, "address"), "pipe").get("mode", 0)
        if isinstance(mode, int) and mode & (stat.S_IWOTH | stat.S_IROTH):
            detail = f"everybody on this machine may connect (mode {mode:o})"
            self.fail(where, detail, "mode: 384 (octal 600)")

    def _look(self, where: str, node: object) -> None:
        """Find what must not stand anywhere below a node."""
        for key, value in _walk(node):
            is_wrong, detail, advice = _WRONG.get(key, (bool, "", ""))
            if detail and is_wrong(value):
                self.fail(where, detail.format(key), advice)

    def _filters(self, where: str, config: Config, *, is_private: bool) -> None:
        for filter_ in _tables(config, "http_filters"):
            name, kind = filter_.get("name"), _kind(filter_)
            if is_private and kind != "router":
                detail = f"`{name}` changes, answers or leads on what was judged"
                self.fail(where, detail, "put it before the guard")
            for key, value in _walk(filter_):
                if key in _OPEN and _is_set(value):
                    advice = "what it decides must hold when it fails"
                    self.fail(where, f"`{name}` fails open ({key})", advice)
            if kind not in _BEFORE:
                detail = f"`{name}` may answer, or lead calls on, by itself"
                self.warn(where, detail, "take it out, or put it behind the guard")

    def _routes(self, where: str, config: Config, *, is_private: bool) -> None:
        rds = _table(config, "rds").get("route_config_name")
        table = self._running.routes.get(str(rds), {}) if rds else _table(config, "route_config")
        if not table:
            self.fail(where, "its routes are not in this configuration", _DUMP)
        outside = _without(config, "http_filters", "route_config")
        self._look(where, [outside, _without(table, "virtual_hosts")])
        if is_private:
            for name in _CHANGES:
                if config.get(name) not in _KEEPS:
                    detail = f"`{name}` makes another request of the one that was judged"
                    self.fail(where, detail, "take it out: the guard reads paths strictly")
        for host in _tables(table, "virtual_hosts"):
            self._look(f"{where}, {host.get('name')}", _without(host, "routes"))
            if "matcher" in host:
                detail = "its routes are in a `matcher`, which is not read here"
                self.fail(where, detail, "use `routes`")
            for route in _tables(host, "routes"):
                match = json.dumps(route.get("match", {}))[:80]
                place = f"{where}, {host.get('name')} {match}"
                self._look(place, route)
                if is_private:
                    self._way_out(place, route)
                elif "direct_response" in route or "redirect" in route:
                    continue
                else:
                    self._way_in(place, route)
                self._headers(place, (table, host, route), is_private=is_private)

    def _way_out(self, place: str, route: Config) -> None:
        """See whether what the guard has judged goes out as it is to a server that is named."""
        action = _table(route, "route")
        for name in sorted(action.keys() - _LEADS):
            self.fail(place, f"`{name}` changes, leads on or repeats what was judged")
        headers = _tables(_table(route, "match"), "headers")
        if self._servers > 1 and _SERVER not in {str(x.get("name")).lower() for x in headers}:
            detail = f"does not look at `{_SERVER}`, which says for whom a call was judged"
            self.fail(place, detail, "match it exactly")
        cluster = self._clusters.get(str(action.get("cluster")), {})
        if _is_chosen(cluster):
            self.fail(place, "where the call goes is its own choice", "name a server")
        for options in _table(cluster, "typed_extension_protocol_options").values():
            filters = _tables(options, "http_filters") if isinstance(options, dict) else []
            if any(_kind(one) != "upstreamcodec" for one in filters):
                detail = "filters of its cluster change what was judged"
                self.fail(place, detail, "put them before the guard")

    def _way_in(self, place: str, route: Config) -> None:
        """See whether a route that agents reach leads to the guard alone."""
        action = _table(route, "route")
        weighted = _tables(_table(action, "weighted_clusters"), "clusters")
        clusters = {str(one.get("name")) for one in weighted}
        clusters |= {str(action["cluster"])} if "cluster" in action else set()
        if not clusters:
            self.fail(place, "where it leads is not fixed", "name the guard's cluster")
        elif others := clusters - self._mine:
            detail = f"leads to {', '.join(sorted(others))}, past the guard"
            advice = "lead it to the guard; a way out belongs on a pipe in the guard's directory"
            self.fail(place, detail, advice)

    def _headers(self, place: str, scopes: Iterable[Config], *, is_private: bool) -> None:
        """See whether what Envoy says of a client replaces what the client says."""
        asserted: set[str] = set()
        for added in (one for scope in scopes for one in _tables(scope, "request_headers_to_add")):
            header = _table(added, "header")
            name, value = str(header.get("key", "")).lower(), str(header.get("value"))
            if (is_private or name in _PROVES) and _OF_THE_CLIENT.search(value):
                detail = f"`{name}` is the client's choice ({value})"
                self.fail(place, detail, "give it a value of your own")
            overwrites = added.get("append_action") == "OVERWRITE_IF_EXISTS_OR_ADD"
            if name in _SAID and not overwrites and added.get("append") is not False:
                detail = f"`{name}` is appended to what a client says, and calls are refused for it"
                self.fail(place, detail, "append_action: OVERWRITE_IF_EXISTS_OR_ADD")
            asserted.add(name)
        if is_private:
            return
        if _SERVER not in asserted:
            note = self.fail if self._servers > 1 else self.warn
            note(place, f"`{_SERVER}` is the client's choice", f"request_headers_to_add: {_SERVER}")
        if _CONNECTION not in asserted:
            detail = "clients are told apart by Envoy's connections only"
            self.warn(place, detail, f"request_headers_to_add: {_CONNECTION}")
