"""``guard doctor --envoy``: what ships holds, and each way of breaking it is seen."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guard.core.errors import InputError
from guard.runtime.doctor_checks import Status
from guard.runtime.envoy_checks import check_envoy
from lab.envoy_rig import SHIPPED, shipped

if TYPE_CHECKING:
    from collections.abc import Callable

LISTEN = ("unix:/run/guard/decide.sock",)
TCP_PROXY = {
    "name": "envoy.filters.network.tcp_proxy",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "cluster": "tools",
    },
}


def _listener(config: dict[str, Any], name: str) -> Any:
    found = config["static_resources"]["listeners"]
    return next(one for one in found if one["name"] == name)


def _http(config: dict[str, Any], name: str = "clear") -> Any:
    return _listener(config, name)["filter_chains"][0]["filters"][0]["typed_config"]


def _host(config: dict[str, Any]) -> Any:
    return _http(config)["route_config"]["virtual_hosts"][0]


def _route(config: dict[str, Any]) -> Any:
    return _host(config)["routes"][0]


def _guard(config: dict[str, Any]) -> Any:
    return next(one for one in config["static_resources"]["clusters"] if one["name"] == "guard")


def _filter(name: str, **options: Any) -> dict[str, Any]:
    kind = f"type.googleapis.com/envoy.extensions.filters.http.{name}.v3.Filter"
    return {"name": f"envoy.filters.http.{name}", "typed_config": {"@type": kind, **options}}


def _insert(name: str, **options: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: _http(config)["http_filters"].insert(0, _filter(name, **options))


def _to(action: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda config: _route(config).update(route=action)


def _action(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: _route(config)["route"].update(changes)


def _more_routes(config: dict[str, Any]) -> None:
    other = copy.deepcopy(_route(config))
    other["match"], other["route"]["cluster"] = {"path": "/fast"}, "tools"
    _host(config)["routes"].insert(0, other)


def _open_egress(config: dict[str, Any]) -> None:
    place = {"socket_address": {"address": "0.0.0.0", "port_value": 9000}}
    _listener(config, "egress")["address"] = place


def _append(config: dict[str, Any]) -> None:
    for added in _route(config)["request_headers_to_add"]:
        del added["append_action"]


def _second_endpoint(config: dict[str, Any]) -> None:
    place = {"socket_address": {"address": "10.0.0.9", "port_value": 80}}
    ends = _guard(config)["load_assignment"]["endpoints"][0]["lb_endpoints"]
    ends.append({"endpoint": {"address": place}})


def _speak_h2(config: dict[str, Any]) -> None:
    for options in _guard(config)["typed_extension_protocol_options"].values():
        options["explicit_http_config"] = {"http2_protocol_options": {}}


def _out(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: _http(config, "egress").update({name: value})


def _route_out(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        _http(config, "egress")["route_config"]["virtual_hosts"][0]["routes"][0]["route"][name] = (
            value
        )

    return change


def _server(**changes: Any) -> Callable[[dict[str, Any]], None]:
    clusters = "clusters"
    return lambda config: next(
        one for one in config["static_resources"][clusters] if one["name"] == "tools"
    ).update(changes)


def _said(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    added = {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    return lambda config: _route(config)["request_headers_to_add"].append(added)


AFTERWARDS = {
    **{
        name: (_out(name, True), "another request")
        for name in ("normalize_path", "merge_slashes", "strip_any_host_port")
    },
    "slashes": (_out("path_with_escaped_slashes_action", "UNESCAPE_AND_FORWARD"), "another req"),
    **{
        name: (_route_out(name, {"pattern": {}}), "changes, leads on or repeats")
        for name in ("regex_rewrite", "prefix_rewrite", "host_rewrite_header", "cluster_header")
    },
    "mirrors": (_route_out("request_mirror_policies", [{"cluster": "tools"}]), "more than once"),
    "retries": (_route_out("retry_policy", {"retry_on": "5xx"}), "made twice"),
    "connect": (_out("upgrade_configs", [{"upgrade_type": "CONNECT"}]), "nobody judges"),
    "filters": (_out("http_filters", [_filter("header_mutation")]), "what was judged"),
    "filters of a cluster": (
        _server(typed_extension_protocol_options={"x": {"http_filters": [_filter("lua")]}}),
        "change what was judged",
    ),
    "a server of the call's choice": (_server(type="ORIGINAL_DST"), "its own choice"),
    "a header of the call's choice": (
        _out(
            "route_config",
            {
                "virtual_hosts": [
                    {
                        "routes": [
                            {
                                "route": {"cluster": "tools"},
                                "request_headers_to_add": [
                                    {"header": {"key": "authorization", "value": "%REQ(x-a)%"}}
                                ],
                            }
                        ]
                    }
                ]
            },
        ),
        "the client's choice",
    ),
}
"""What an Envoy makes of a call after the guard has judged it."""
CHOSEN = {
    f"{name} of {value}": (_said(name, value), "the client's choice")
    for name in ("x-guard-server", "x-guard-connection", "x-forwarded-client-cert")
    for value in ("%REQ(x-me)%", "%QUERY_PARAM(me)%", "%REQUESTED_SERVER_NAME%")
}
BROKEN = {
    **{f"afterwards {name}": broken for name, broken in AFTERWARDS.items()},
    **CHOSEN,
    "bytes under another name": (
        lambda c: _listener(c, "clear")["filter_chains"].append(
            {"filters": [{**TCP_PROXY, "name": "mine"}]}
        ),
        "nobody judges",
    ),
    "routes in a matcher": (lambda c: _host(c).update(matcher={}), "not read here"),
    "a route past the guard": (_more_routes, "past the guard"),
    "a share of the calls": (
        _to({"weighted_clusters": {"clusters": [{"name": "guard"}, {"name": "tools"}]}}),
        "past the guard",
    ),
    "a cluster of the client's choice": (_to({"cluster_header": "x-to"}), "not fixed"),
    "a way out for everybody": (_open_egress, "past the guard"),
    "a pipe for everybody": (
        lambda c: _listener(c, "egress")["address"]["pipe"].update(mode=0o666),
        "everybody on this machine",
    ),
    "bytes": (
        lambda c: _listener(c, "clear")["filter_chains"].append({"filters": [TCP_PROXY]}),
        "nobody judges",
    ),
    "ext_authz that fails open": (
        _insert("ext_authz", failure_mode_allow=True),
        "fails open (failure_mode_allow)",
    ),
    "tokens that may be missing": (
        _insert("jwt_authn", rules=[{"requires": {"allow_missing_or_failed": {}}}]),
        "fails open",
    ),
    "retries": (_action(retry_policy={"retry_on": "5xx,connect-failure"}), "made twice"),
    "retries of a host": (
        lambda c: _host(c).update(retry_policy={"retry_on": "reset"}),
        "made twice",
    ),
    "mirrors": (_action(request_mirror_policies=[{"cluster": "tools"}]), "more than once"),
    "hedges": (_action(hedge_policy={"hedge_on_per_try_timeout": True}), "more than once"),
    "redirects": (_action(internal_redirect_policy={"max_internal_redirects": 3}), "more than"),
    "certificates that clients name": (
        lambda c: _http(c).update(forward_client_cert_details="APPEND_FORWARD"),
        "whose certificate",
    ),
    "connect": (
        lambda c: _http(c).update(upgrade_configs=[{"upgrade_type": "CONNECT"}]),
        "nobody judges",
    ),
    "connect by its route": (lambda c: _route(c)["match"].update(connect_matcher={}), "tunnels"),
    "two lengths": (
        lambda c: _http(c)["http_protocol_options"].update(allow_chunked_length=True),
        "length and chunks",
    ),
    "words appended": (_append, "appended"),
    "http/2 to the guard": (_speak_h2, "HTTP/2 to the guard"),
    "a second endpoint": (_second_endpoint, "which is no guard"),
    "an open admin port": (
        lambda c: c["admin"]["address"]["socket_address"].update(address="0.0.0.0"),
        "from elsewhere",
    ),
    "another socket": (
        lambda c: _guard(c)["load_assignment"].update(endpoints=[]),
        "none leads to the guard",
    ),
}


def _found(tmp_path: Path, config: dict[str, Any], **options: Any) -> list[Any]:
    (tmp_path / "envoy.json").write_text(json.dumps(config), "utf-8")
    return check_envoy(str(tmp_path / "envoy.json"), LISTEN, **options)


def test_what_ships_holds():
    """As it is in the repository: YAML, with aliases."""
    found = check_envoy(str(SHIPPED), LISTEN)

    assert [(one.status, one.detail) for one in found] == [
        (Status.OK, "3 listeners that agents reach, every route leads to the guard")
    ]


@pytest.mark.parametrize("name", BROKEN)
def test_each_way_of_breaking_it_is_seen(name: str, tmp_path: Path):
    """And nothing else is said of it than what was broken."""
    config = shipped()
    change, words = BROKEN[name]
    change(config)

    failed = [one for one in _found(tmp_path, config) if one.status is Status.FAIL]

    assert any(words in one.detail for one in failed), failed
    assert all(one.advice for one in failed)


def test_without_the_route_s_word_the_client_chooses(tmp_path: Path):
    """Of several servers that is a failure."""
    config = shipped()
    _route(config)["request_headers_to_add"] = []

    by_servers = {
        count: {one.status for one in _found(tmp_path, config, servers=count)} for count in (1, 2)
    }

    assert Status.FAIL not in by_servers[1]
    assert Status.FAIL in by_servers[2]


def test_a_dump_is_read_with_routes_that_came_by_rds(tmp_path: Path):
    """A listener names its routes, and they are judged as if they stood in it."""
    config = shipped()
    _more_routes(config)
    resources = config["static_resources"]
    routes = _http(config).pop("route_config")
    _http(config)["rds"] = {"route_config_name": routes["name"]}
    dump = {
        "configs": [
            {"bootstrap": {"admin": config["admin"]}},
            {"static_clusters": [{"cluster": one} for one in resources["clusters"]]},
            {
                "dynamic_listeners": [
                    {"active_state": {"listener": one}} for one in resources["listeners"]
                ]
            },
            {"dynamic_route_configs": [{"route_config": routes}]},
        ]
    }
    bad = _found(tmp_path, dump)
    dump["configs"].pop()
    missing = _found(tmp_path, dump)

    assert any("past the guard" in one.detail for one in bad)
    assert any("are not in this configuration" in one.detail for one in missing)


@pytest.mark.parametrize("text", ["[1]", "a: 1\na: 2\n", "{", "http://127.0.0.1:1"])
def test_what_is_no_configuration_is_invalid_input(text: str, tmp_path: Path):
    """Duplicate keys too: Envoy and we could read different ones."""
    source = text
    if not text.startswith("http"):
        (tmp_path / "envoy.yaml").write_text(text, "utf-8")
        source = str(tmp_path / "envoy.yaml")

    with pytest.raises(InputError):
        check_envoy(source)
