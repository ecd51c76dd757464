"""Requests leave framed as the guard read them, with nothing that was meant for the guard."""

import pytest
from mitmproxy.test import tflow, tutils

from guard.core.errors import MessageError
from guard.pep.mitm.translation import prepare_request, read_request


def flow_with(**changes):
    """Return a flow whose request has these properties."""
    return tflow.tflow(req=tutils.treq(**changes))


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "X-Forwarded-Host", "x_forwarded_user", "X-Real-IP", "X-Remote-User"],
)
def test_who_the_client_is_the_first_proxy_says(header):
    """A server that stands behind a proxy believes these; the guard is the first one."""
    flow = flow_with()
    flow.request.headers[header] = "admin"

    prepare_request(flow)

    assert header not in flow.request.headers


@pytest.mark.parametrize(
    ("said", "left"),
    [("close", "close"), ("Upgrade, x-a, upgrade", "upgrade"), ("x-close, sk_1", None)],
)
def test_of_a_connection_only_known_words_are_left(said, left):
    """How long it lives and what it becomes, in the guard's own spelling."""
    flow = flow_with()
    for name in ("connection", "keep-alive", "te", "trailer", "proxy-connection"):
        flow.request.headers[name] = said

    prepare_request(flow)

    assert flow.request.headers.get("connection") == left
    assert not {"keep-alive", "te", "trailer", "proxy-connection"} & set(flow.request.headers)


def test_what_was_meant_for_the_guard_is_taken_out():
    """Session ids and proxy credentials are nobody else's business."""
    flow = flow_with()
    for name in ("X-Guard-Session", "x-guard-other", "Proxy-Authorization", "Proxy-Connection"):
        flow.request.headers[name] = "x"

    prepare_request(flow)

    names = {name.lower() for name in flow.request.headers}
    assert not any(name.startswith(("x-guard", "proxy-")) for name in names)


def test_a_request_is_read_with_every_header_in_lower_case():
    """Hop 1 keeps repeated headers, so that hop 2 can refuse them."""
    flow = flow_with(content=b"body")
    flow.client_conn.sockname = ("127.0.0.1", 8080)
    flow.request.headers.add("X-A", "1")
    flow.request.headers.add("x-a", "2")

    request = read_request(flow, 1000)

    assert [value for name, value in request.headers if name == "x-a"] == ["1", "2"]
    assert (request.body, request.server) == (b"body", "127.0.0.1:8080")


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\r\n ", "\x00"])
@pytest.mark.parametrize("where", ["name", "value", "path", "method", "authority"])
def test_a_line_end_in_a_request_head_is_refused(end, where):
    """A lenient upstream would find a request in it that nobody has judged."""
    flow = flow_with()
    flow.client_conn.sockname = ("127.0.0.1", 8080)
    if where in {"name", "value"}:
        name, value = ("x" + end + "y", "1") if where == "name" else ("x", "1" + end + "y")
        flow.request.headers.fields = (
            *flow.request.headers.fields,
            (name.encode(), value.encode()),
        )
    else:
        setattr(flow.request, where, getattr(flow.request, where) + end + "y")

    with pytest.raises(MessageError) as refused:
        read_request(flow, 1000)

    assert refused.value.code == "bad_http"
