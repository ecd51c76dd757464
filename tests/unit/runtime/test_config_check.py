"""``guard doctor --envoy``: what ships holds, and each way of breaking it is seen."""

import json
from functools import reduce

import pytest

from guard.core.errors import InputError
from guard.runtime.doctor_checks import Status
from guard.runtime.envoy_checks import check_envoy
from lab.envoy_rig import SHIPPED, shipped

LISTEN = ("unix:/run/guard/decide.sock",)
IN, OUT = ("listeners", "clear"), ("listeners", "egress")
TO_GUARD, TO_TOOLS = ("clusters", "guard"), ("clusters", "tools")
HTTP = ("filter_chains", 0, "filters", 0, "typed_config")
HOST = (*HTTP, "route_config", "virtual_hosts", 0)
ROUTE = (*HOST, "routes", 0)
ENDS = ("load_assignment", "endpoints", 0, "lb_endpoints")
PROTOCOLS = (
    "typed_extension_protocol_options",
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
)


def _at(config, kind, name, *path):
    """Return a part of the listener or cluster of a name."""
    found = next(one for one in config["static_resources"][kind] if one["name"] == name)
    return reduce(lambda node, key: node[key], path, found)


def _sets(*path, **changes):
    return lambda config: _at(config, *path).update(changes)


def _adds(*path, value):
    return lambda config: _at(config, *path).insert(0, value)


def _filter(name, kind="http", **options):
    made = f"type.googleapis.com/envoy.extensions.filters.{kind}.{name}.v3.Filter"
    return {"name": f"envoy.filters.{kind}.{name}", "typed_config": {"@type": made, **options}}


def _place(address, port):
    return {"socket_address": {"address": address, "port_value": port}}


def _said(name, value, **action):
    return {"header": {"key": name, "value": value}, **action}


BYTES = _filter("tcp_proxy", "network", cluster="tools")
PAST = {"match": {"path": "/fast"}, "route": {"cluster": "tools", "timeout": "0s"}}
OVERWRITES = {"append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
AFTERWARDS = {
    **{
        name: (_sets(*OUT, *HTTP, **{name: True}), "another request")
        for name in ("normalize_path", "merge_slashes", "strip_any_host_port")
    },
    "slashes": (
        _sets(*OUT, *HTTP, path_with_escaped_slashes_action="UNESCAPE_AND_FORWARD"),
        "another req",
    ),
    **{
        name: (_sets(*OUT, *ROUTE, "route", **{name: {"pattern": {}}}), "changes, leads on")
        for name in ("regex_rewrite", "prefix_rewrite", "host_rewrite_header", "cluster_header")
    },
    "mirrors": (
        _sets(*OUT, *ROUTE, "route", request_mirror_policies=[{"cluster": "tools"}]),
        "more than once",
    ),
    "retries": (_sets(*OUT, *ROUTE, "route", retry_policy={"retry_on": "5xx"}), "made twice"),
    "connect": (
        _sets(*OUT, *HTTP, upgrade_configs=[{"upgrade_type": "CONNECT"}]),
        "nobody judges",
    ),
    "filters": (_sets(*OUT, *HTTP, http_filters=[_filter("header_mutation")]), "what was judged"),
    "filters of a cluster": (
        _sets(*TO_TOOLS, typed_extension_protocol_options={"x": {"http_filters": [BYTES]}}),
        "change what was judged",
    ),
    "a server of the call's choice": (_sets(*TO_TOOLS, type="ORIGINAL_DST"), "its own choice"),
    "a header of the call's choice": (
        _sets(*OUT, *ROUTE, request_headers_to_add=[_said("authorization", "%REQ(x-a)%")]),
        "the client's choice",
    ),
}
"""Changes that an Envoy makes to a call after the guard has judged it."""
CHOSEN = {
    f"{name} of {value}": (
        _adds(*IN, *ROUTE, "request_headers_to_add", value=_said(name, value, **OVERWRITES)),
        "the client's choice",
    )
    for name in ("x-guard-server", "x-guard-connection", "x-forwarded-client-cert")
    for value in ("%REQ(x-me)%", "%QUERY_PARAM(me)%", "%REQUESTED_SERVER_NAME%")
}
BROKEN = {
    **{f"afterwards {name}": broken for name, broken in AFTERWARDS.items()},
    **CHOSEN,
    "bytes under another name": (
        _adds(*IN, "filter_chains", value={"filters": [{**BYTES, "name": "mine"}]}),
        "nobody judges",
    ),
    "bytes": (_adds(*IN, "filter_chains", value={"filters": [BYTES]}), "nobody judges"),
    "routes in a matcher": (_sets(*IN, *HOST, matcher={}), "not read here"),
    "a route past the guard": (_adds(*IN, *HOST, "routes", value=PAST), "past the guard"),
    "a share of the calls": (
        _sets(
            *(*IN, *ROUTE),
            route={"weighted_clusters": {"clusters": [{"name": "guard"}, {"name": "tools"}]}},
        ),
        "past the guard",
    ),
    "a cluster of the client's choice": (
        _sets(*IN, *ROUTE, route={"cluster_header": "x-to"}),
        "not fixed",
    ),
    "a way out for everybody": (_sets(*OUT, address=_place("0.0.0.0", 9000)), "past the guard"),
    "a pipe for everybody": (_sets(*OUT, "address", "pipe", mode=0o666), "everybody on this"),
    "ext_authz that fails open": (
        _adds(*IN, *HTTP, "http_filters", value=_filter("ext_authz", failure_mode_allow=True)),
        "fails open (failure_mode_allow)",
    ),
    "tokens that may be missing": (
        _adds(
            *(*IN, *HTTP, "http_filters"),
            value=_filter("jwt_authn", rules=[{"requires": {"allow_missing_or_failed": {}}}]),
        ),
        "fails open",
    ),
    "retries": (
        _sets(*IN, *ROUTE, "route", retry_policy={"retry_on": "5xx,connect-failure"}),
        "made twice",
    ),
    "retries of a host": (_sets(*IN, *HOST, retry_policy={"retry_on": "reset"}), "made twice"),
    "mirrors": (
        _sets(*IN, *ROUTE, "route", request_mirror_policies=[{"cluster": "tools"}]),
        "more than once",
    ),
    "hedges": (
        _sets(*IN, *ROUTE, "route", hedge_policy={"hedge_on_per_try_timeout": True}),
        "more than once",
    ),
    "redirects": (
        _sets(*IN, *ROUTE, "route", internal_redirect_policy={"max_internal_redirects": 3}),
        "more than once",
    ),
    "certificates that clients name": (
        _sets(*IN, *HTTP, forward_client_cert_details="APPEND_FORWARD"),
        "whose certificate",
    ),
    "connect": (
        _sets(*IN, *HTTP, upgrade_configs=[{"upgrade_type": "CONNECT"}]),
        "nobody judges",
    ),
    "connect by its route": (_sets(*IN, *ROUTE, "match", connect_matcher={}), "tunnels"),
    "two lengths": (
        _sets(*IN, *HTTP, "http_protocol_options", allow_chunked_length=True),
        "length and chunks",
    ),
    "words appended": (
        _sets(*IN, *ROUTE, request_headers_to_add=[_said("x-guard-server", "tools")]),
        "appended",
    ),
    "http/2 to the guard": (
        _sets(*TO_GUARD, *PROTOCOLS, explicit_http_config={"http2_protocol_options": {}}),
        "HTTP/2 to the guard",
    ),
    "a second endpoint": (
        _adds(*TO_GUARD, *ENDS, value={"endpoint": {"address": _place("10.0.0.9", 80)}}),
        "which is no guard",
    ),
    "an open admin port": (
        lambda config: config["admin"].update(address=_place("0.0.0.0", 9901)),
        "from elsewhere",
    ),
    "another socket": (
        _sets(*TO_GUARD, "load_assignment", endpoints=[]),
        "none leads to the guard",
    ),
}


def _found(tmp_path, config, **options):
    (tmp_path / "envoy.json").write_text(json.dumps(config), "utf-8")
    return check_envoy(str(tmp_path / "envoy.json"), LISTEN, **options)


def test_what_ships_holds():
    """As it is in the repository: YAML, with aliases."""
    found = check_envoy(str(SHIPPED), LISTEN)

    assert [(one.status, one.detail) for one in found] == [
        (Status.OK, "3 listeners that agents reach, every route leads to the guard")
    ]


@pytest.mark.parametrize("name", BROKEN)
def test_each_way_of_breaking_it_is_seen(name, tmp_path):
    """And nothing else is said of it than what was broken."""
    config = shipped()
    change, words = BROKEN[name]
    change(config)

    failed = [one for one in _found(tmp_path, config) if one.status is Status.FAIL]

    assert any(words in one.detail for one in failed), failed
    assert all(one.advice for one in failed)


def test_without_the_route_s_word_the_client_chooses(tmp_path):
    """Of several servers that is a failure."""
    config = shipped()
    _at(config, *IN, *ROUTE)["request_headers_to_add"] = []

    by_servers = {
        count: {one.status for one in _found(tmp_path, config, servers=count)} for count in (1, 2)
    }

    assert Status.FAIL not in by_servers[1]
    assert Status.FAIL in by_servers[2]


def test_a_dump_is_read_with_routes_that_came_by_rds(tmp_path):
    """A listener names its routes, and they are judged as if they stood in it."""
    config = shipped()
    BROKEN["a route past the guard"][0](config)
    resources = config["static_resources"]
    http = _at(config, *IN, *HTTP)
    routes = http.pop("route_config")
    http["rds"] = {"route_config_name": routes["name"]}
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
def test_what_is_no_configuration_is_invalid_input(text, tmp_path):
    """Duplicate keys too: Envoy and we could read different ones."""
    source = text
    if not text.startswith("http"):
        (tmp_path / "envoy.yaml").write_text(text, "utf-8")
        source = str(tmp_path / "envoy.yaml")

    with pytest.raises(InputError):
        check_envoy(source)
