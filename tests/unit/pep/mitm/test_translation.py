"""Requests leave framed as the guard read them, with nothing that was meant for the guard."""

import pytest
from mitmproxy.test import tflow, tutils

from guard.pep.mitm.translation import prepare_request, read_request


def flow_with(**changes):
    """Return a flow whose request has these properties."""
    return tflow.tflow(req=tutils.treq(**changes))


@pytest.mark.parametrize(
    "header",
    [
        *("Forwarded", "X-Forwarded-Host", "x_forwarded_user", "X-Real-IP", "X-Remote-User"),
        *("X-Guard-Session", "x-guard-other", "Proxy-Authorization", "Proxy-Connection"),
    ],
)
def test_who_the_client_is_the_first_proxy_says(header):
    """A server behind a proxy believes these, and the guard is the first; others are its own."""
    flow = flow_with()
    flow.request.headers[header] = "admin"

    prepare_request(flow)

    assert header not in flow.request.headers


def test_a_request_is_read_with_every_header_in_lower_case():
    """Hop 1 keeps repeated headers, so that hop 2 can refuse them."""
    flow = flow_with(content=b"body")
    flow.client_conn.sockname = ("127.0.0.1", 8080)
    flow.request.headers.add("X-A", "1")
    flow.request.headers.add("x-a", "2")

    request = read_request(flow, 1000)

    assert [value for name, value in request.headers if name == "x-a"] == ["1", "2"]
    assert (request.body, request.server) == (b"body", "127.0.0.1:8080")
