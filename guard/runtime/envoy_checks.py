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
    from collections.abc import Collection, Iterable, Iterator, Mapping

Config = dict[str, Any]
SECONDS: Final = 5.0
GUARD: Final = "guard"
"""Name of the cluster that leads to the guard, where its addresses are not given."""
ONCE: Final = frozenset({"connect-failure", "reset-before-request"})
"""Conditions of a retry under which nothing of the request has been sent."""
_SAID: Final = ("x-guard-server", "x-guard-connection", "x-guard-front")
_PROVES: Final = frozenset({*_SAID, "x-forwarded-client-cert", "proxy-authorization"})
"""By what the guard knows where a request goes, and of whom it is."""
_OVERWRITES: Final = frozenset({"OVERWRITE_IF_EXISTS_OR_ADD"})
_BELIEVES: Final = frozenset({"APPEND_FORWARD", "FORWARD_ONLY", "ALWAYS_FORWARD_ONLY"})
_OPEN: Final = ("failure_mode_allow", "allow_missing", "allow_missing_or_failed")
_ASKING: Final = ("ext_proc", "ext_authz", "lua")
_ROUTER: Final = "router"
_BEFORE: Final = frozenset(
    {
        *("basicauth", "buffer", "compressor", "connectionlimit", "cors", "csrf", "decompressor"),
        *("extauthz", "extproc", "healthcheck", "jwtauthn", "localratelimit", "oauth2"),
        *("ratelimit", "rbac", _ROUTER),
    }
)
"""Filters that leave the way to the guard as it is, or that are looked at by themselves."""
_TYPED: Final = 2
"""A filter's type has more parts than these where its last but one is a version."""
_OF_CONNECTIONS: Final = frozenset(
    {"connectionlimit", "extauthz", "localratelimit", "ratelimit", "rbac"}
)
"""Filters that refuse connections and send none of their bytes on."""
_UNREAD: Final = "its routes are in a `matcher`, which is not read here"
_CHANGES: Final = (
    *("normalize_path", "merge_slashes", "path_with_escaped_slashes_action"),
    *("path_normalization_options", "strip_any_host_port", "strip_matching_host_port"),
    *("strip_trailing_host_dot", "early_header_mutation_extensions"),
)
"""Settings by which a request that was judged becomes another one."""
_KEEPS: Final = frozenset({"KEEP_UNCHANGED", "REJECT_REQUEST"})
_LEADS: Final = frozenset(
    {
        *("cluster", "timeout", "idle_timeout", "flush_timeout", "max_stream_duration"),
        *("retry_policy", "upgrade_configs", "priority", "auto_host_rewrite"),
        *("host_rewrite_literal", "append_x_forwarded_host"),
    }
)
"""What a route on the way out may say: where it leads, and how long it waits."""
_OF_THE_CLIENT: Final = re.compile(
    r"%(?:REQ|REQ_WITHOUT_QUERY|PATH|QUERY_PARAMS?|REQUESTED_SERVER_NAME|DYNAMIC_METADATA"
    r"|FILTER_STATE|PER_REQUEST_STATE|COOKIE)\b"
)
"""What a header is filled in with that a client has chosen."""


@dataclass(frozen=True, slots=True)
class _Running:
    """Parts of a configuration that the check reads."""

    listeners: list[Config] = field(default_factory=list)
    clusters: list[Config] = field(default_factory=list)
    routes: dict[str, Config] = field(default_factory=dict)
    """Route configurations that listeners name."""
    admin: Config = field(default_factory=dict)
    is_whole: bool = True
    """Whether nothing of it comes from a control plane that only the running Envoy knows."""


def check_envoy(
    source: str, listen: Collection[str] = (), *, servers: int = 1, certificates: bool = False
) -> list[Checked]:
    """Check an Envoy's configuration.

    Args:
        source: a file, or the URL of an admin port.
        listen: the guard's addresses (``unix:PATH`` or ``HOST:PORT``); without, the cluster called
            ``guard`` is taken to lead to it.
        servers: how many the guard knows.
        certificates: whether principals are proved by certificates.

    Raises:
        InputError: it cannot be read.
    """
    running = _load(source)
    mine = {
        str(one.get("name")): one
        for one in running.clusters
        if (_addresses(one) & set(listen) if listen else one.get("name") == GUARD)
    }
    found = list(_clusters(mine, listen))
    found += _admin(running.admin)
    for listener in running.listeners:
        found += _listener(listener, running, set(mine), servers, certificates=certificates)
    if not running.listeners:
        found.append(Checked("envoy", Status.FAIL, "no listener in it", _DUMP))
    elif not running.is_whole:
        detail = "listeners, routes or clusters come from a control plane"
        found.append(Checked("envoy", Status.WARN, detail, _DUMP))
    if not any(one.status is Status.FAIL for one in found):
        count = sum(1 for one in running.listeners if not _is_private(one))
        detail = f"{count} listeners that agents reach, every route leads to the guard"
        found.insert(0, Checked("envoy", Status.OK, detail))
    return found


_DUMP: Final = "check what it runs with: `guard doctor --envoy http://127.0.0.1:9901`"


# --- reading ------------------------------------------------------------------------------------


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
        msg = f"the configuration of Envoy at `{source}` cannot be read ({type(error).__name__})"
        raise InputError(msg) from error
    if not isinstance(document, dict):
        msg = f"`{source}` is no configuration of an Envoy"
        raise InputError(msg)
    if isinstance(document.get("configs"), list):
        return _dumped(document["configs"])
    static = _table(document, "static_resources")
    return _Running(
        listeners=_tables(static, "listeners"),
        clusters=_tables(static, "clusters"),
        admin=_table(document, "admin"),
        is_whole="dynamic_resources" not in document,
    )


def _dumped(configs: Iterable[Config]) -> _Running:
    running = _Running()
    for one in configs:
        for item in _tables(one, "static_listeners"):
            running.listeners.append(_table(item, "listener"))
        for item in _tables(one, "dynamic_listeners"):
            running.listeners.append(_table(_table(item, "active_state"), "listener"))
        for name in ("static_clusters", "dynamic_active_clusters"):
            running.clusters.extend(_table(item, "cluster") for item in _tables(one, name))
        for name in ("static_route_configs", "dynamic_route_configs"):
            for item in _tables(one, name):
                route = _table(item, "route_config")
                running.routes[str(route.get("name"))] = route
        running.admin.update(_table(_table(one, "bootstrap"), "admin"))
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


# --- clusters and the admin port ----------------------------------------------------------------


def _clusters(mine: Mapping[str, Config], listen: Collection[str]) -> Iterator[Checked]:
    if not mine:
        advice = "give the guard's --listen, as `guard decide` has it"
        yield Checked("envoy clusters", Status.FAIL, "none leads to the guard", advice)
    for name, cluster in mine.items():
        where = f"envoy cluster {name}"
        if listen and (others := _addresses(cluster) - set(listen)):
            detail = f"leads to {', '.join(sorted(others))} as well, which is no guard"
            yield Checked(where, Status.FAIL, detail, "take these endpoints out")
        if cluster.get("type") in {"ORIGINAL_DST", "DYNAMIC"} or "cluster_type" in cluster:
            yield Checked(where, Status.FAIL, "its endpoints are the client's choice", "name them")
        if _speaks_h2(cluster):
            detail = "speaks HTTP/2 to the guard, which reads HTTP/1.1"
            yield Checked(where, Status.FAIL, detail, "use http_protocol_options")
        if cluster.get("connection_pool_per_downstream_connection") is not True:
            detail = "clients share connections to the guard"
            advice = "connection_pool_per_downstream_connection: true"
            yield Checked(where, Status.WARN, detail, advice)


def _speaks_h2(cluster: Config) -> bool:
    if "http2_protocol_options" in cluster:
        return True
    for options in _table(cluster, "typed_extension_protocol_options").values():
        explicit = options.get("explicit_http_config", {}) if isinstance(options, dict) else {}
        if "http2_protocol_options" in explicit or "http3_protocol_options" in explicit:
            return True
        if not options.keys().isdisjoint({"use_downstream_protocol_config", "auto_config"}):
            return True
    return False


def _admin(admin: Config) -> Iterator[Checked]:
    address = _address(_table(admin, "address"))
    if address and not address.startswith("unix:") and not _is_loopback(address):
        detail = f"{address} is reached from elsewhere: it stops Envoy and changes its settings"
        yield Checked("envoy admin", Status.FAIL, detail, "bind it to 127.0.0.1")


# --- listeners ----------------------------------------------------------------------------------


def _listener(
    listener: Config, running: _Running, mine: set[str], servers: int, *, certificates: bool
) -> Iterator[Checked]:
    where = f"envoy listener {listener.get('name') or _address(_table(listener, 'address'))}"
    chains = _tables(listener, "filter_chains")
    if default := _table(listener, "default_filter_chain"):
        chains.append(default)
    managers = 0
    for filter_ in (one for chain in chains for one in _tables(chain, "filters")):
        config = _table(filter_, "typed_config")
        if not str(config.get("@type", "")).lower().endswith("httpconnectionmanager"):
            yield from _other_filter(where, filter_)
            continue
        managers += 1
        if _is_private(listener):
            yield from _way_out(where, listener)
            yield from _unchanged(where, config, running, servers)
        else:
            yield from _manager(where, config, certificates=certificates)
            yield from _all_routes(where, config, running, mine, servers)
    if not managers:
        yield Checked(where, Status.FAIL, "is no HTTP", "only HTTP can be judged: take it out")


def _unchanged(where: str, config: Config, running: _Running, servers: int) -> Iterator[Checked]:
    """See whether what the guard has judged goes out as it is, once, to a server that is named."""
    for name in _CHANGES:
        if config.get(name) not in (None, False, *_KEEPS):
            detail = f"`{name}` makes another request of the one that was judged"
            yield Checked(where, Status.FAIL, detail, "take it out: the guard reads paths strictly")
    for filter_ in _tables(config, "http_filters"):
        if _kind(filter_) != _ROUTER:
            detail = f"`{filter_.get('name')}` changes, answers or leads on what was judged"
            yield Checked(where, Status.FAIL, detail, "put it before the guard")
    yield from _upgrades(where, config)
    table = _route_table(config, running)
    clusters = {str(one.get("name")): one for one in running.clusters}
    for host in _tables(table, "virtual_hosts"):
        if "matcher" in host:
            yield Checked(where, Status.FAIL, _UNREAD, "use `routes`")
        for route in _tables(host, "routes"):
            place = f"{where}, {host.get('name')} {json.dumps(route.get('match', {}))[:80]}"
            yield from _route_out(place, (table, host, route), servers)
            cluster = clusters.get(str(_table(route, "route").get("cluster")), {})
            yield from _server(place, cluster)


def _route_out(
    place: str, scopes: tuple[Config, Config, Config], servers: int
) -> Iterator[Checked]:
    table, host, route = scopes
    match, action = _table(route, "match"), _table(route, "route")
    for name in sorted(action.keys() - _LEADS):
        detail = f"`{name}` changes, leads on or repeats what was judged"
        yield Checked(place, Status.FAIL, detail, "take it out")
    yield from _twice(place, (table, host, action))
    yield from _upgrades(place, action)
    if "connect_matcher" in match:
        yield Checked(place, Status.FAIL, "tunnels: nobody judges what is in them", "take it out")
    named = {str(one.get("name")).lower() for one in _tables(match, "headers")}
    if servers > 1 and _SAID[0] not in named:
        detail = "does not look at `x-guard-server`, which says for whom a call was judged"
        yield Checked(place, Status.FAIL, detail, "match it exactly")
    for added in _added(scopes):
        if _OF_THE_CLIENT.search(str(added.get("value"))):
            detail = f"`{added.get('key')}` is filled in with what a call says"
            yield Checked(place, Status.FAIL, detail, "give it a value of your own")


def _server(place: str, cluster: Config) -> Iterator[Checked]:
    """See whether a cluster of the way out is a named server, which is sent what was judged."""
    if cluster.get("type") in {"ORIGINAL_DST", "DYNAMIC"} or "cluster_type" in cluster:
        yield Checked(place, Status.FAIL, "where the call goes is its own choice", "name a server")
    for options in _table(cluster, "typed_extension_protocol_options").values():
        filters = _tables(options, "http_filters") if isinstance(options, dict) else []
        if any(_kind(one) != "upstreamcodec" for one in filters):
            detail = "filters of its cluster change what was judged"
            yield Checked(place, Status.FAIL, detail, "put them before the guard")


def _added(scopes: Iterable[Config]) -> Iterator[Config]:
    for scope in scopes:
        for one in _tables(scope, "request_headers_to_add"):
            yield _table(one, "header")


def _kind(filter_: Config) -> str:
    """Return which filter it is, whatever it is called: of its type, without its version."""
    kind = str(_table(filter_, "typed_config").get("@type", ""))
    parts = kind.rpartition("/")[2].split(".")
    if len(parts) > _TYPED and re.fullmatch(r"v\d\w*", parts[-2]):
        return parts[-3].replace("_", "")
    return str(filter_.get("name", "")).rpartition(".")[2].replace("_", "")


def _other_filter(where: str, filter_: Config) -> Iterator[Checked]:
    name = str(filter_.get("name", ""))
    if _kind(filter_) not in _OF_CONNECTIONS:
        detail = f"`{name}` passes bytes on that nobody judges"
        yield Checked(where, Status.FAIL, detail, "take it out")
    if _open_switches(_table(filter_, "typed_config")):
        detail = f"`{name}` lets connections through where it fails"
        yield Checked(where, Status.FAIL, detail, "failure_mode_allow: false")


def _way_out(where: str, listener: Config) -> Iterator[Checked]:
    mode = _table(_table(listener, "address"), "pipe").get("mode", 0)
    if isinstance(mode, int) and mode & (stat.S_IWOTH | stat.S_IROTH):
        detail = f"everybody on this machine may connect (mode {mode:o})"
        yield Checked(where, Status.FAIL, detail, "mode: 384 (octal 600)")


def _manager(where: str, config: Config, *, certificates: bool) -> Iterator[Checked]:
    details = str(config.get("forward_client_cert_details", "SANITIZE"))
    if details in _BELIEVES:
        detail = f"{details}: a client can say whose certificate it has"
        yield Checked(where, Status.FAIL, detail, "forward_client_cert_details: SANITIZE_SET")
    elif certificates and not (
        details == "SANITIZE_SET" and _table(config, "set_current_client_cert_details").get("chain")
    ):
        advice = "SANITIZE_SET, set_current_client_cert_details: { chain: true }"
        yield Checked(where, Status.WARN, "the guard is shown no certificates", advice)
    yield from _upgrades(where, config)
    if _table(config, "http_protocol_options").get("allow_chunked_length"):
        detail = "messages with a length and chunks are accepted"
        yield Checked(where, Status.FAIL, detail, "allow_chunked_length: false")
    yield from _http_filters(where, config)


def _upgrades(where: str, config: Config) -> Iterator[Checked]:
    for upgrade in _tables(config, "upgrade_configs"):
        if str(upgrade.get("upgrade_type")).lower() != "websocket":
            detail = f"upgrades to {upgrade.get('upgrade_type')}, which nobody judges"
            yield Checked(where, Status.FAIL, detail, "allow `websocket` only")


def _http_filters(where: str, config: Config) -> Iterator[Checked]:
    for filter_ in _tables(config, "http_filters"):
        name, options = str(filter_.get("name", "")), _table(filter_, "typed_config")
        kind = str(options.get("@type", name)).lower()
        if switches := _open_switches(options):
            detail = f"`{name}` fails open ({', '.join(switches)})"
            yield Checked(where, Status.FAIL, detail, "what it decides must hold when it fails")
        if any(one.replace("_", "") in kind.replace("_", "") for one in _ASKING) and (
            GUARD in json.dumps(options)
        ):
            detail = f"`{name}` asks the guard, and then sends bytes that the guard has not written"
            advice = "routes must lead to the guard; a filter can be skipped, late or partial"
            yield Checked(where, Status.FAIL, detail, advice)
        if _kind(filter_) not in _BEFORE:
            detail = f"`{name}` may answer, or lead calls on, by itself"
            yield Checked(where, Status.WARN, detail, "take it out, or put it behind the guard")


def _open_switches(config: Any) -> list[str]:
    """Return the switches in a filter's options that let things through where it fails."""
    found: list[str] = []
    if isinstance(config, dict):
        for key, value in config.items():
            if key in _OPEN and value not in (False, None):
                found.append(key)
            found += _open_switches(value)
    elif isinstance(config, list):
        for value in config:
            found += _open_switches(value)
    return found


# --- routes -------------------------------------------------------------------------------------


def _all_routes(
    where: str, config: Config, running: _Running, mine: set[str], servers: int
) -> Iterator[Checked]:
    table = _route_table(config, running)
    if not table:
        yield Checked(where, Status.FAIL, "its routes are not in this configuration", _DUMP)
    for host in _tables(table, "virtual_hosts"):
        around = (table, host)
        if "matcher" in host:
            yield Checked(where, Status.FAIL, _UNREAD, "use `routes`")
        for route in _tables(host, "routes"):
            match = json.dumps(route.get("match", {}))[:80]
            place = f"{where}, {host.get('name')} {match}"
            if "direct_response" in route or "redirect" in route:
                continue
            yield from _route(place, route, mine)
            yield from _twice(place, (*around, _table(route, "route")))
            yield from _assertions(place, (*around, route), servers)


def _route_table(config: Config, running: _Running) -> Config:
    if name := _table(config, "rds").get("route_config_name"):
        return running.routes.get(str(name), {})
    return _table(config, "route_config")


def _route(place: str, route: Config, mine: set[str]) -> Iterator[Checked]:
    action = _table(route, "route")
    weighted = _tables(_table(action, "weighted_clusters"), "clusters")
    clusters = {str(one.get("name")) for one in weighted} | (
        {str(action["cluster"])} if "cluster" in action else set()
    )
    if not clusters or "cluster_header" in action or "cluster_specifier_plugin" in action:
        yield Checked(place, Status.FAIL, "where it leads is not fixed", "name the guard's cluster")
    elif others := clusters - mine:
        detail = f"leads to {', '.join(sorted(others))}, past the guard"
        advice = "lead it to the guard; a way out belongs on a pipe in the guard's directory"
        yield Checked(place, Status.FAIL, detail, advice)
        return
    if "connect_matcher" in _table(route, "match"):
        yield Checked(place, Status.FAIL, "tunnels: nobody judges what is in them", "take it out")
    if "timeout" not in action:
        detail = "streams and calls that are held open end after 15 s"
        yield Checked(place, Status.WARN, detail, "timeout: 0s")
    for upgrade in _tables(action, "upgrade_configs"):
        if str(upgrade.get("upgrade_type")).lower() != "websocket":
            yield Checked(place, Status.FAIL, "upgrades to what nobody judges", "take it out")


def _twice(place: str, scopes: Iterable[Config]) -> Iterator[Checked]:
    """See whether a request may be sent more than once."""
    for scope in scopes:
        if conditions := _table(scope, "retry_policy").get("retry_on"):
            unsafe = {one.strip() for one in str(conditions).split(",")} - ONCE
            if unsafe:
                detail = f"retries on {', '.join(sorted(unsafe))}: a call can be made twice"
                yield Checked(place, Status.FAIL, detail, f"retry_on: {','.join(sorted(ONCE))}")
        for name in ("request_mirror_policies", "hedge_policy", "internal_redirect_policy"):
            if scope.get(name):
                detail = f"`{name}` sends a call more than once"
                yield Checked(place, Status.FAIL, detail, "take it out")


def _assertions(place: str, scopes: Iterable[Config], servers: int) -> Iterator[Checked]:
    """See whether what Envoy says of a client replaces what the client says."""
    asserted: set[str] = set()
    for added in (one for scope in scopes for one in _tables(scope, "request_headers_to_add")):
        name = str(_table(added, "header").get("key", "")).lower()
        value = str(_table(added, "header").get("value"))
        if name in _PROVES and _OF_THE_CLIENT.search(value):
            detail = f"`{name}` is the client's choice ({value})"
            yield Checked(place, Status.FAIL, detail, "give it a value of your own")
        if name not in _SAID:
            continue
        asserted.add(name)
        if added.get("append_action") not in _OVERWRITES and added.get("append") is not False:
            detail = f"`{name}` is appended to what a client says, and calls are refused for it"
            yield Checked(place, Status.FAIL, detail, "append_action: OVERWRITE_IF_EXISTS_OR_ADD")
    if _SAID[0] not in asserted:
        status = Status.FAIL if servers > 1 else Status.WARN
        detail = "`x-guard-server` is the client's choice"
        yield Checked(place, status, detail, "request_headers_to_add: x-guard-server")
    if _SAID[1] not in asserted:
        detail = "clients are told apart by Envoy's connections only"
        yield Checked(place, Status.WARN, detail, "request_headers_to_add: x-guard-connection")
